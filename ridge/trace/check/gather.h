#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/trace/check/facts.h"
#include "ridge/trace/read.h"

namespace ridge::trace {

// Where in a file the events of a piece stand.
struct PiecePlace {
  std::uint32_t first_event = 0;  // its index
  std::uint64_t at = 0, bytes = 0;
  bool first = false, last = false;
};

struct GatheredFacts {
  TraceFacts facts;
  std::vector<PiecePlace> pieces;  // in the file's order
};

// The facts of a trace in JSON, gzip's or not. IoError if the file cannot be read; FormatError if
// no reader of JSON takes it, or if it is no trace.
GatheredFacts gather_facts(const std::filesystem::path& file, const ReadOptions& options);
GatheredFacts gather_facts(std::string_view file, std::string_view name,
                           const ReadOptions& options);

// The JSON of some of a file's events, by their indices, which ascend. Only their pieces are
// parsed.
std::vector<std::string> events_at(const std::filesystem::path& file, const GatheredFacts& gathered,
                                   const std::vector<std::uint32_t>& indices);
std::vector<std::string> events_at(std::string_view file, const GatheredFacts& gathered,
                                   const std::vector<std::uint32_t>& indices);

}  // namespace ridge::trace
