// `ridge trace diff`: two traces of the same kind of run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/base/text_table.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"
#include "ridge/trace/diff.h"
#include "ridge/trace/read.h"
#include "ridge/trace/report.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Exit codes of --fail-above, beside 0 for "no slower".
constexpr int exit_slower = 1, exit_undecided = 3;
constexpr int most_threads = 8;  // that read a trace: more wait for the one that unpacks it

struct Request {
  std::vector<std::string> paths;
  std::int64_t top = 20;
  std::optional<double> most_slowdown;  // --fail-above, percent
  bool json = false;
};

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::uint64_t size_of(const fs::path& path) {
  std::error_code ignored;
  const std::uintmax_t bytes = fs::file_size(path, ignored);
  return ignored ? 0 : bytes;
}

// The file, or those of the directory.
std::vector<fs::path> files_of(const std::string& path) {
  if (!is_directory(path)) return {path};
  std::vector<fs::path> files = trace::traces_in(path);
  if (files.empty())
    throw UsageError("there is no trace in {}: no file there ends in .json or .json.gz", path);
  return files;
}

// Reads trees of traces, and shows how far it is of all of them.
class Reader {
 public:
  Reader(Terminal& terminal, std::uint64_t all_bytes)
      : show_(progress_on(terminal)), all_bytes_(all_bytes) {}

  std::vector<trace::StepTree> read(const std::vector<fs::path>& files) {
    std::vector<trace::StepTree> trees;
    for (const fs::path& file : files) {
      trees.push_back(trace::step_tree(
          trace::read(file, {.threads = std::min(threads_of_rank(1), most_threads),
                             .progress = [&](std::uint64_t bytes) { show(bytes); }})));
      done_bytes_ += size_of(file);
    }
    return trees;
  }

 private:
  void show(std::uint64_t bytes) {
    show_(static_cast<std::int64_t>(done_bytes_ + bytes), static_cast<std::int64_t>(all_bytes_));
  }

  std::function<void(std::int64_t, std::int64_t)> show_;
  std::uint64_t all_bytes_, done_bytes_ = 0;
};

std::uint64_t bytes_of(const std::vector<fs::path>& files) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : files) bytes += size_of(file);
  return bytes;
}

using ByRank = std::map<std::int64_t, const trace::StepTree*>;

// The traces of a directory by rank. UsageError if some have no rank, or the same.
ByRank by_rank(const std::vector<trace::StepTree>& trees, const std::string& directory) {
  ByRank ranks;
  for (const trace::StepTree& tree : trees) {
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

std::vector<trace::TraceDiff> diffs_of(const Request& request, Terminal& terminal) {
  const std::vector<fs::path> before_files = files_of(request.paths[0]),
                              after_files = files_of(request.paths[1]);
  Reader reader(terminal, bytes_of(before_files) + bytes_of(after_files));
  const std::vector<trace::StepTree> before = reader.read(before_files),
                                     after = reader.read(after_files);
  if (before.size() == 1 && after.size() == 1) return {diff_of(before.front(), after.front())};
  const ByRank before_ranks = by_rank(before, request.paths[0]),
               after_ranks = by_rank(after, request.paths[1]);
  std::vector<trace::TraceDiff> diffs;
  for (const auto& [rank, tree] : before_ranks)
    if (const auto found = after_ranks.find(rank); found != after_ranks.end())
      diffs.push_back(diff_of(*tree, *found->second));
  if (diffs.empty())
    throw UsageError("no rank has a trace in both {} and {}", request.paths[0], request.paths[1]);
  return diffs;
}

// Beside the tables, so that JSON stays JSON.
void complain(const std::string& line) {
  std::fputs(fmt::format("ridge: {}\n", line).c_str(), stderr);
}

// The exit code of --fail-above: whether a step takes longer by more than so many percent, beyond
// doubt.
int judge(const std::vector<trace::TraceDiff>& diffs, double percent) {
  int exit_code = 0;
  for (const trace::TraceDiff& diff : diffs) {
    const trace::Judgement judgement = trace::judge(diff, percent);
    const std::string before = printable(diff.before.file), after = printable(diff.after.file);
    if (judgement.verdict == trace::Verdict::undecided) {
      complain(
          fmt::format("too few whole steps of {} or {} to say which is slower: trace three or "
                      "more",
                      before, after));
      if (exit_code == 0) exit_code = exit_undecided;
    } else if (judgement.verdict == trace::Verdict::slower) {
      complain(fmt::format("{} is slower than {} by more than {} %: by {:.1f} % at least", after,
                           before, percent, judgement.least_percent));
      exit_code = exit_slower;
    }
  }
  return exit_code;
}

int diff(const Request& request) {
  if (request.paths.size() != 2)
    throw UsageError("compare which traces? give two: files, or directories of ranks");
  check_range("top", request.top, 1, 1'000'000);
  if (request.most_slowdown) check_real("fail-above", *request.most_slowdown, 0, 1e6);
  Terminal terminal;
  const std::vector<trace::TraceDiff> diffs = diffs_of(request, terminal);
  terminal.lines(request.json ? trace::diff_json(diffs)
                              : trace::diff_text(diffs, static_cast<std::size_t>(request.top)));
  return request.most_slowdown ? judge(diffs, *request.most_slowdown) : 0;
}

}  // namespace

void add_trace_diff(Command trace_command, Action& action) {
  const Command comparing =
      trace_command.add_subcommand("diff", "Tell what makes one trace slower than another");
  const auto request = std::make_shared<Request>();
  comparing
      .add_option("traces", request->paths,
                  "Two JSON traces of the same kind of run, before and after a change; or two "
                  "directories with a trace of each rank")
      .type_name("FILE|DIR");
  add_value(comparing, "--top", request->top, "Rows of the table of what differs")
      .type_name("N")
      .default_text("20");
  add_value(comparing, "--fail-above", request->most_slowdown,
            "Exit with 1 if the second's steps are slower than the first's by more than this, "
            "beyond doubt; 3 if there are too few steps to tell")
      .type_name("PERCENT");
  comparing.add_flag("--json", request->json, "Print JSON, with all rows");
  comparing.footer(R"(Examples:
  ridge trace diff before.json.gz after.json.gz
  ridge trace diff before/ after/ --fail-above 3
  ridge trace diff a.json b.json --json | jq '.ranks[].rows[:5]')");
  comparing.callback([request, &action] { action = [request] { return diff(*request); }; });
}

}  // namespace ridge
