#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "ridge/trace/trace.h"

namespace ridge::trace {

struct ReadOptions {
  int threads = 2;
  std::size_t piece_bytes = std::size_t{2} << 20;  // of text, parsed at once
  // Told of the bytes of the file that have been taken in, from one thread at a time.
  std::function<void(std::uint64_t bytes)> progress;
};

// Reads a trace, gzip's or not, whose format shows in how the file begins:
// - JSON with a member "traceEvents", or a list of events (Chromium's "Trace Event Format"). What
// is
//   damaged or cut short is read as far as events can be told apart, and Trace::damage says so.
//   Memory is taken for the columns and a few pieces, not for the text.
// - SQLite as Nsight Systems exports it (read_nsys.h).
// - JSON or CSV of rocprofv3 (read_rocprof.h); with a table, those that the same run wrote beside
//   it.
// IoError if the file cannot be read; FormatError if it is none of these, or if no event of it can
// be read.
Trace read(const std::filesystem::path& path, const ReadOptions& options = {});

// The same of what a file of this name would hold, with nothing beside it.
Trace read_text(std::string_view file, std::string_view name, const ReadOptions& options = {});

}  // namespace ridge::trace
