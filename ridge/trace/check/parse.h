#pragma once

// Parses a piece of a trace as strictly as the strictest reader of JSON, and where that fails as
// leniently as the most lenient one, noting what the difference was.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/trace/check/facts.h"

namespace ridge::trace {

struct PieceFacts {
  TraceFacts facts;
  bool has_list = false;    // of events
  bool list_ended = false;  // other members follow it
};

class FactsParser {
 public:
  FactsParser();
  ~FactsParser();
  FactsParser(FactsParser&&) noexcept;

  // The facts of the events of `text`, an object with a list "traceEvents" or a list, which has
  // room for PieceParser::padding bytes behind it. None if no reader takes it for JSON.
  std::optional<PieceFacts> parse(std::string_view text);

  // The JSON of some of its events, by their places in its list; empty if there is none.
  std::vector<std::string> events(std::string_view text, std::span<const std::uint32_t> places);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge::trace
