#pragma once

// Traces as a user names them: files, and directories that have a trace of each rank.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ridge/trace/diff.h"
#include "ridge/trace/trace.h"

namespace ridge::trace {

// Told how many bytes of all files have been read, from one thread at a time. What it throws ends
// the reading.
using ReadingProgress = std::function<void(std::int64_t done_bytes, std::int64_t all_bytes)>;

// How many threads read a trace on this machine.
int reading_threads();

struct NamedTrace {
  std::filesystem::path path;
  bool in_directory = false;  // that was named
};

// The files among `names`, and the traces within the directories among them. UsageError if there is
// no name, or no trace in a directory.
std::vector<NamedTrace> named_traces(std::span<const std::string> names);

// Reads the files one after the other, as trace::read() does, and hands each to `take`. Returns a
// line for each file of a directory that is no trace, which is left out. FormatError if all are.
std::vector<std::string> read_each(std::span<const NamedTrace> files,
                                   const ReadingProgress& progress,
                                   const std::function<void(Trace&&)>& take);

// Compares two traces, or those of the ranks that both directories have, in the order of the ranks.
// UsageError if traces of a directory do not tell their rank, tell the same, or no rank is in both;
// FormatError if a file of a directory is no trace.
std::vector<TraceDiff> diff_named(const std::string& before, const std::string& after,
                                  const ReadingProgress& progress);

}  // namespace ridge::trace
