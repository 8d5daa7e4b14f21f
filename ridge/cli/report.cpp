// `ridge report`: a profile, a study, or any runs of the store, as a page to look at.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/report/report_page.h"
#include "ridge/report/runs/report.h"
#include "ridge/study/gathered_study.h"
#include "ridge/study/store.h"
#include "ridge/study/store_file.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_runs = 5000;  // of a report

struct ReportRequest {
  std::vector<std::string> names;  // a profile's directory, or runs
  std::string study, store, output, markdown, json, machine_file;
};

nlohmann::ordered_json document_of(const ReportRequest& request) {
  nlohmann::ordered_json document = profile_document(request.names.front());
  const ProfiledMachine machine = profiled_machine(document);
  std::optional<Roof> roof;
  if (!request.machine_file.empty())
    roof = roof_from_file(request.machine_file, machine.device, machine.hardware, machine.threads);
  else if (!machine.has_roof)  // else the page says how to measure it
    roof = kept_roof(machine.device, machine.hardware, machine.threads).roof;
  if (roof) set_roof(document, *roof);
  return document;
}

int report_profile(const ReportRequest& request) {
  if (!request.markdown.empty() || !request.json.empty() || !request.store.empty())
    throw UsageError(
        "--markdown, --json and --store are for reports of runs: name runs of the store, or "
        "--study "
        "NAME, instead of the directory {}",
        shown(request.names.front()));
  Terminal terminal;
  terminal.busy("Reading the profile...");
  const std::string page = report_page(document_of(request));
  const fs::path output = request.output.empty() ? fs::path(request.names.front()) / "report.html"
                                                 : fs::path(request.output);
  write_text_file(output, page);
  terminal.line(fmt::format("Wrote {} ({}): open it in a browser", output.string(),
                            format_bytes(page.size())));
  return 0;
}

// Whether a name is a filter: it compares something, and is no tag.
bool is_filter(Store& store, const std::string& name) {
  const std::vector<std::string> tags = store.tags();
  return name.find_first_of("=<>~") != std::string::npos &&
         std::ranges::find(tags, name) == tags.end();
}

// A store, or why there is neither that nor the directory of a profile.
fs::path store_of(const ReportRequest& request) {
  if (request.names.size() != 1) return existing_store_file(request.store);
  try {
    return existing_store_file(request.store);
  } catch (const IoError& error) {
    throw IoError("{} is no directory of a profile, and no kept run: {}",
                  shown(request.names.front()), error.what());
  }
}

// The runs that are named, each once.
std::vector<RunRow> runs_named(Store& store, const std::vector<std::string>& names) {
  std::vector<RunRow> runs;
  const auto add = [&](RunRow run) {
    if (std::ranges::find(runs, run.id, &RunRow::id) == runs.end()) runs.push_back(std::move(run));
  };
  for (const std::string& name : names) {
    if (!is_filter(store, name)) {
      try {
        add(store.find(name));
      } catch (const UsageError& error) {
        throw UsageError("{}; nor is there a directory of that name", error.what());
      }
      continue;
    }
    RunPage page = store.list({.filter = name, .limit = most_runs + 1});
    if (page.runs.empty())
      throw UsageError("no run of {} matches the filter {}", store.file().string(), shown(name));
    for (RunRow& run : page.runs) add(std::move(run));
  }
  if (std::ssize(runs) > most_runs)
    throw UsageError("a report is of at most {} runs; these are more: filter them",
                     format_count(most_runs));
  return runs;
}

// What makes the same report again. The store has a name in it unless it is the nearest one.
std::vector<std::string> command_of(const ReportRequest& request) {
  std::vector<std::string> words{"ridge", "report"};
  words.insert(words.end(), request.names.begin(), request.names.end());
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--study", request.study);
  add("--store", request.store);
  add("--output", request.output);
  add("--markdown", request.markdown);
  add("--json", request.json);
  return words;
}

// Pictures stand beside the Markdown file that shows them, which is written last.
void write_markdown(const fs::path& file, const ReportDocument& document) {
  const std::string prefix = file.stem().string() + "-";
  for (const ReportPicture* picture : pictures_of(document))
    write_text_file(file.parent_path() / (prefix + picture->name + ".svg"), picture->svg);
  write_text_file(file, report_markdown(document, prefix));
}

int report_of_runs(const ReportRequest& request) {
  if (!request.machine_file.empty())
    throw UsageError("--machine is for the page of a profile: give its directory, and no runs");
  if (!request.names.empty() && !request.study.empty())
    throw UsageError("report on the study {} or on the runs {}: give one of both",
                     shown(request.study), fmt::join(request.names, " "));
  const fs::path output =
      request.output.empty() ? fs::path("report.html") : fs::path(request.output);
  for (const fs::path& file : {output, fs::path(request.markdown), fs::path(request.json)})
    if (!file.empty()) probe_writing(file);
  Store store(store_of(request));
  Terminal terminal;
  terminal.busy("Reading the store...");
  StudyResult result = request.study.empty()
                           ? gather_study(store, "", runs_named(store, request.names))
                           : find_study_result(store, request.study, most_runs);
  const RunsReport report = report_runs(store, std::move(result), command_of(request));
  const std::string page = report_html(report.document);
  write_text_file(output, page);
  if (!request.markdown.empty()) write_markdown(request.markdown, report.document);
  if (!request.json.empty()) write_text_file(request.json, report.json);
  terminal.line(fmt::format("Wrote {} ({}): open it in a browser", output.string(),
                            format_bytes(page.size())));
  if (!request.markdown.empty())
    terminal.line(fmt::format("Wrote {} and {} beside it", request.markdown,
                              counted(std::ssize(pictures_of(report.document)), "picture")));
  if (!request.json.empty()) terminal.line(fmt::format("Wrote {}", request.json));
  return 0;
}

int report(const ReportRequest& request) {
  if (request.names.empty() && request.study.empty())
    throw UsageError(
        "report on which profile? give the --profile-dir of a run with --profile, or runs of the "
        "store (ids, tags or filters), or --study NAME");
  std::error_code ignored;
  const auto is_directory = [&](const std::string& name) {
    return fs::is_directory(name, ignored);
  };
  const auto directory = std::ranges::find_if(request.names, is_directory);
  if (directory == request.names.end()) return report_of_runs(request);
  if (request.names.size() > 1 || !request.study.empty())
    throw UsageError(
        "{} is a directory: a profile is reported alone, and runs of the store are named by id, "
        "tag "
        "or filter",
        shown(*directory));
  return report_profile(request);
}

}  // namespace

void add_report_command(Command program, Action& action) {
  const Command command = program.add_subcommand(
      "report", "Report on a profile, a study or kept runs, as a page for a browser");
  const auto request = std::make_shared<ReportRequest>();
  command
      .add_option("profile", request->names,
                  "Draw the --profile-dir of a run with --profile, or report on these kept runs: "
                  "ids, tags (the newest run that has it) or filters")
      .type_name("PROFILE_DIR or RUN..");
  add_value(command, "--study", request->study, "Report on this study of the store")
      .type_name("NAME");
  add_value(command, "--store", request->store,
            "Read this store (default: $RIDGE_STORE, else .ridge/runs.db here or above)")
      .type_name("FILE");
  add_value(command, "--output", request->output,
            "Write the page here (default: PROFILE_DIR/report.html; of runs, report.html)")
      .type_name("FILE");
  add_value(command, "--markdown", request->markdown,
            "Write the report of runs as Markdown too, with its pictures beside it")
      .type_name("FILE");
  add_value(command, "--json", request->json, "Write the report of runs as JSON too")
      .type_name("FILE");
  command
      .add_option("--machine,--machine-file", request->machine_file,
                  "Read the machine's ceilings from this file (default: those of the profile)")
      .type_name("FILE");
  command.footer(
      R"(Each page is one file that needs no network. That of a profile has bottlenecks and a roofline, if
the machine's ceilings had been measured when the profile was taken: ridge roofline does that, once.
That of a study or of runs has a summary, how they were measured, tables and pictures with intervals,
findings with what they rest on, and the commands that make every figure again.

Examples:
  ridge train --enable-all-profiling --profile-dir ./profiles
  ridge report ./profiles
  ridge report 12 13
  ridge report before after --output comparison.html
  ridge report "tag=release-1 and version=v4" baseline --markdown release.md
  ridge report --study batches --markdown batches.md --json batches.json)");
  command.callback([request, &action] { action = [request] { return report(*request); }; });
}

}  // namespace ridge
