// `ridge trace diff`: two traces of the same kind of run.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/base/text_table.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/trace/diff.h"
#include "ridge/trace/named_traces.h"

namespace ridge {
namespace {

// Exit codes of --fail-above, beside 0 for "no slower".

struct TraceDiffRequest {
  std::vector<std::string> paths;
  std::int64_t top = 20;
  std::optional<double> most_slowdown;  // --fail-above, percent
  bool json = false;
};

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
      exit_code = exit_regression;
    }
  }
  return exit_code;
}

int diff(const TraceDiffRequest& request) {
  if (request.paths.size() != 2)
    throw UsageError("compare which traces? give two: files, or directories of ranks");
  check_range("top", request.top, 1, 1'000'000);
  if (request.most_slowdown) check_real("fail-above", *request.most_slowdown, 0, 1e6);
  Terminal terminal;
  const std::vector<trace::TraceDiff> diffs =
      trace::diff_named(request.paths[0], request.paths[1], progress_on(terminal));
  terminal.lines(request.json ? trace::diff_json(diffs)
                              : trace::diff_text(diffs, static_cast<std::size_t>(request.top)));
  return request.most_slowdown ? judge(diffs, *request.most_slowdown) : 0;
}

}  // namespace

void add_trace_diff(Command trace_command, Action& action) {
  const Command comparing =
      trace_command.add_subcommand("diff", "Tell what makes one trace slower than another");
  const auto request = std::make_shared<TraceDiffRequest>();
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
