#include "ridge/trace/named_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/thread_pool.h"
#include "ridge/base/utf8.h"
#include "ridge/trace/read.h"
#include "ridge/trace/report.h"
#include "ridge/trace/step_tree.h"

namespace ridge::trace {
namespace {

namespace fs = std::filesystem;

std::int64_t size_of(const fs::path& path) {
  std::error_code ignored;
  const std::uintmax_t bytes = fs::file_size(path, ignored);
  return ignored ? 0 : static_cast<std::int64_t>(bytes);
}

using ByRank = std::map<std::int64_t, const StepTree*>;

// The traces of a directory by rank. UsageError if some have no rank, or the same.
ByRank by_rank(std::span<const StepTree> trees, const std::string& directory) {
  ByRank ranks;
  for (const StepTree& tree : trees) {
    if (!tree.rank)
      throw UsageError("{} has several traces, and {} does not tell its rank: compare two files",
                       directory, printable(tree.file));
    const auto [found, added] = ranks.emplace(*tree.rank, &tree);
    if (!added)
      throw UsageError("{} has two traces of rank {}, {} and {}: compare two files", directory,
                       *tree.rank, printable(found->second->file), printable(tree.file));
  }
  return ranks;
}

// The trace; none if a directory's file is no trace, which `left_out` then says.
std::optional<Trace> read_named(const NamedTrace& named, const ReadOptions& options,
                                std::vector<std::string>& left_out) {
  if (!named.in_directory) return read(named.path, options);
  try {
    Trace trace = read(named.path, options);
    if (trace.event_count > 0) return trace;
    left_out.push_back(fmt::format("{} has no event", shown(trace.file)));
  } catch (const FormatError& error) {
    left_out.emplace_back(error.what());
  }
  return std::nullopt;
}

}  // namespace

int reading_threads() {
  constexpr int most = 8;  // more wait for the one that unpacks the file
  return std::clamp(available_processors(), 1, most);
}

std::vector<NamedTrace> named_traces(std::span<const std::string> names) {
  if (names.empty()) throw UsageError("report which trace? give a file or a directory of ranks");
  std::vector<NamedTrace> traces;
  for (const std::string& name : names) {
    std::error_code ignored;
    if (!fs::is_directory(name, ignored)) {
      traces.push_back({.path = name});
      continue;
    }
    const std::vector<fs::path> within = traces_in(name);
    if (within.empty())
      throw UsageError(
          "there is no trace in {}: no file there ends in .json, .json.gz, .sqlite or "
          "_kernel_trace.csv",
          name);
    for (const fs::path& path : within) traces.push_back({.path = path, .in_directory = true});
  }
  return traces;
}

std::vector<std::string> read_each(std::span<const NamedTrace> files,
                                   const ReadingProgress& progress,
                                   const std::function<void(Trace&&)>& take) {
  std::int64_t all_bytes = 0, done_bytes = 0;
  for (const NamedTrace& file : files) all_bytes += size_of(file.path);
  const ReadOptions options{.threads = reading_threads(), .progress = [&](std::uint64_t bytes) {
                              progress(done_bytes + static_cast<std::int64_t>(bytes), all_bytes);
                            }};
  std::vector<std::string> left_out;
  for (const NamedTrace& file : files) {
    if (auto trace = read_named(file, options, left_out)) take(std::move(*trace));
    done_bytes += size_of(file.path);
  }
  if (left_out.size() == files.size()) throw FormatError("there is no trace: {}", left_out.front());
  return left_out;
}

std::vector<TraceDiff> diff_named(const std::string& before, const std::string& after,
                                  const ReadingProgress& progress) {
  std::vector<NamedTrace> files = named_traces({&before, 1});
  const std::size_t count_before = files.size();
  std::ranges::move(named_traces({&after, 1}), std::back_inserter(files));
  std::vector<StepTree> trees;
  const std::vector<std::string> left_out =
      read_each(files, progress, [&](Trace&& trace) { trees.push_back(step_tree(trace)); });
  if (!left_out.empty()) throw FormatError("{}", left_out.front());
  const std::span all(trees);
  const std::span trees_before = all.first(count_before), trees_after = all.subspan(count_before);
  if (trees_before.size() == 1 && trees_after.size() == 1)
    return {diff_of(trees_before.front(), trees_after.front())};
  const ByRank ranks_before = by_rank(trees_before, before),
               ranks_after = by_rank(trees_after, after);
  std::vector<TraceDiff> diffs;
  for (const auto& [rank, tree] : ranks_before)
    if (const auto found = ranks_after.find(rank); found != ranks_after.end())
      diffs.push_back(diff_of(*tree, *found->second));
  if (diffs.empty()) throw UsageError("no rank has a trace in both {} and {}", before, after);
  return diffs;
}

}  // namespace ridge::trace
