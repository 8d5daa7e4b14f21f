// `ridge trace`: traces of any program.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/trace_output.h"
#include "ridge/report/trace/read_report.h"
#include "ridge/trace/check/check.h"
#include "ridge/trace/critical_path.h"
#include "ridge/trace/named_traces.h"
#include "ridge/trace/read.h"
#include "ridge/trace/report.h"

namespace ridge {
namespace {

struct CheckRequest {
  std::string path;
  std::vector<std::string> tools;  // empty: all
  bool json = false;
};

struct ReportRequest {
  std::vector<std::string> paths;
  std::int64_t top = 10;
  std::optional<double> most_gain;  // --fail-above, percent
  std::string page;                 // --html
  bool json = false;
};

// Leaves only the verdicts of these tools.
void select(trace::TraceCheck& check, const std::vector<std::string>& tools) {
  const auto names = std::views::transform(check.verdicts, &trace::TraceVerdict::consumer);
  for (const std::string& tool : tools)
    if (std::ranges::find(names, tool) == names.end())
      throw UsageError("--tool is {}; there are: {}", tool, fmt::join(names, ", "));
  if (tools.empty()) return;
  std::erase_if(check.verdicts, [&](const trace::TraceVerdict& verdict) {
    return std::ranges::find(tools, verdict.consumer) == tools.end();
  });
}

struct PathRequest {
  std::string path;
  std::int64_t top = 15;
  std::string page;  // --html
  bool json = false;
};

int check(const CheckRequest& request) {
  if (request.path.empty()) throw UsageError("check which trace? give a file");
  Terminal terminal;
  terminal.busy("Reading the trace...");
  trace::TraceCheck result =
      trace::check_trace(request.path, {.threads = trace::reading_threads(), .progress = {}});
  select(result, request.tools);
  terminal.lines(request.json ? trace::trace_check_json(result) : trace::trace_check_text(result));
  return std::ranges::all_of(result.verdicts, &trace::TraceVerdict::accepts) ? 0 : 1;
}

// The exit code of --fail-above: whether something would help by more than so many percent.
int judge(const std::vector<trace::Report>& reports, double percent) {
  int exit_code = 0;
  for (const trace::Report& report : reports) {
    if (report.findings.empty() || report.findings.front().gain_part <= percent / 100) continue;
    std::fputs(fmt::format("ridge: {}: {} costs up to {:.1f} % of the time, more than {} %\n",
                           printable(report.file), report.findings.front().rule,
                           100 * report.findings.front().gain_part, percent)
                   .c_str(),
               stderr);
    exit_code = 1;
  }
  return exit_code;
}

// Writes the page of a report, and says so unless it is `quiet`.
void write_page(const TraceReport& report, const std::string& file, Terminal& terminal,
                bool quiet) {
  const std::string page = report.page();
  write_text_file(file, page);
  if (quiet) return;
  for (const std::string& left_out : report.run.left_out) terminal.line("Left out: " + left_out);
  terminal.line(
      fmt::format("Wrote {} ({}): open it in a browser", file, format_bytes(page.size())));
}

int report(const ReportRequest& request) {
  check_range("top", request.top, 1, 1'000'000);
  if (request.most_gain) check_real("fail-above", *request.most_gain, 0, 100);
  if (!request.page.empty()) check_output("--html", request.page, request.paths);
  Terminal terminal;
  const TraceReport report =
      read_report(request.paths, !request.page.empty(), progress_on(terminal));
  const trace::RunReport& run = report.run;
  if (report.drawn) {
    write_page(report, request.page, terminal, request.json);
    if (!request.json) return request.most_gain ? judge(run.ranks, *request.most_gain) : 0;
  }
  terminal.lines(request.json ? trace::report_json(run)
                              : trace::report_text(run, static_cast<std::size_t>(request.top)));
  return request.most_gain ? judge(run.ranks, *request.most_gain) : 0;
}

// The page of the whole report, which draws the path.
int critical_path_page(const PathRequest& request, Terminal& terminal) {
  check_output("--html", request.page, {&request.path, 1});
  const TraceReport report = read_report({&request.path, 1}, true, progress_on(terminal));
  if (!report.drawn->path) throw trace::no_critical_path(report.run.ranks.front().file);
  write_page(report, request.page, terminal, request.json);
  if (request.json) terminal.lines(trace::critical_path_json(report.drawn->path->path));
  return 0;
}

int critical_path(const PathRequest& request) {
  if (request.path.empty()) throw UsageError("the critical path of which trace? give a file");
  check_range("top", request.top, 1, 1'000'000);
  Terminal terminal;
  if (!request.page.empty()) return critical_path_page(request, terminal);
  terminal.busy("Reading the trace...");
  const trace::Trace trace =
      trace::read(request.path, {.threads = trace::reading_threads(), .progress = {}});
  const trace::HostNesting nesting(trace);
  const trace::CriticalPath path =
      trace::critical_path(trace, trace::work_of(trace, nesting), nesting);
  terminal.lines(request.json
                     ? trace::critical_path_json(path)
                     : trace::critical_path_text(path, static_cast<std::size_t>(request.top)));
  return 0;
}

void add_critical_path(Command command, Action& action) {
  const Command walking = command.add_subcommand(
      "critical-path", "Tell what the time of a trace depended on, and what would shorten it");
  const auto request = std::make_shared<PathRequest>();
  walking.add_option("file", request->path, "Read this trace, as ridge trace report does")
      .type_name("FILE");
  add_value(walking, "--top", request->top, "Rows of the table of names")
      .type_name("N")
      .default_text("15");
  walking.add_flag("--json", request->json, "Print JSON, with all rows");
  walking
      .add_option("--html", request->page,
                  "Write the page of ridge trace report, which draws the path, instead of printing")
      .type_name("FILE");
  walking.footer(R"(Examples:
  ridge trace critical-path trace.json.gz
  ridge trace critical-path trace.json.gz --html path.html)");
  walking.callback([request, &action] { action = [request] { return critical_path(*request); }; });
}

void add_check(Command command, Action& action) {
  const Command checking =
      command.add_subcommand("check", "Check which tools can read a Chrome trace");
  const auto request = std::make_shared<CheckRequest>();
  checking
      .add_option("file", request->path, "Check this JSON trace of any program; gzip is read too")
      .type_name("FILE");
  checking
      .add_option("--tool", request->tools,
                  "Check for this tool only: chrome://tracing, Perfetto, torch-tb-profiler, "
                  "HolisticTraceAnalysis or TraceLens; give several one by one")
      .type_name("NAME");
  checking.add_flag("--json", request->json, "Print JSON");
  checking.footer(R"(The exit code is 1 if one of the tools refuses it.

Examples:
  ridge trace check trace.json.gz
  ridge trace check trace.json --tool HolisticTraceAnalysis --json)");
  checking.callback([request, &action] { action = [request] { return check(*request); }; });
}

void add_report(Command command, Action& action) {
  const Command reporting =
      command.add_subcommand("report", "Tell where the time went in a trace, and what would help");
  const auto request = std::make_shared<ReportRequest>();
  reporting
      .add_option(
          "traces", request->paths,
          "JSON traces of PyTorch's profiler, of Ridge or of Chrome's kind, gzip or not; SQLite "
          "that Nsight Systems exports; JSON or CSV of rocprofv3; of a directory, all that it has: "
          "one of each rank")
      .type_name("FILE|DIR");
  add_value(reporting, "--top", request->top, "Rows of each table")
      .type_name("N")
      .default_text("10");
  add_value(reporting, "--fail-above", request->most_gain,
            "Exit with 1 if something would save more than this part of the time")
      .type_name("PERCENT");
  reporting.add_flag("--json", request->json, "Print JSON, with all rows");
  reporting
      .add_option("--html", request->page,
                  "Write a page to look at, with a timeline, instead of printing")
      .type_name("FILE");
  reporting.footer(R"(Examples:
  ridge trace report trace.json.gz
  ridge trace report log/ --top 20
  ridge trace report trace.json.gz --html trace.html
  ridge trace report trace.json --json | jq '.ranks[].findings')");
  reporting.callback([request, &action] { action = [request] { return report(*request); }; });
}

}  // namespace

void add_trace_command(Command program, Action& action) {
  const Command command = program.add_subcommand("trace", "Read traces of any program");
  command.take_one_subcommand();
  command.callback([command, &action] {
    if (command.chosen_subcommands().empty())
      action = []() -> int {
        throw UsageError(
            "ridge trace does what? there are: ridge trace report FILE, diff FILE FILE, "
            "critical-path FILE, export FILE, check FILE, and record -- COMMAND");
      };
  });
  add_report(command, action);
  add_trace_diff(command, action);
  add_critical_path(command, action);
  add_trace_export(command, action);
  add_trace_record(command, action);
  add_check(command, action);
}

}  // namespace ridge
