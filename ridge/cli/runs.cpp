// `ridge runs`: the runs of a store.

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/runs_text.h"
#include "ridge/cli/terminal.h"
#include "ridge/study/run_exchange.h"
#include "ridge/study/store.h"
#include "ridge/study/store_file.h"
#include "ridge/study/store_schema.h"

namespace ridge {
namespace {

constexpr std::int64_t runs_shown = 50;
constexpr std::int64_t max_runs = std::int64_t{1} << 40;
constexpr std::size_t bytes_at_once = 1 << 16;
constexpr std::size_t damage_shown = 10;

struct RunsRequest {
  std::string store, filter, order = "created", file;
  std::vector<std::string> names;  // of runs; the last may be a tag
  std::optional<std::int64_t> limit, keep;
  bool all = false, reverse = false, json = false, jsonl = false, csv = false;
  bool tagged = false, yes = false;
};

Store open(const RunsRequest& request) { return Store(existing_store_file(request.store)); }

// Prints many lines, some at a time.
class LinePrinter {
 public:
  explicit LinePrinter(Terminal& terminal) : terminal_(terminal) {}
  void add(std::string_view line) {
    text_ += line;
    text_ += '\n';
    if (text_.size() >= bytes_at_once) flush();
  }
  void flush() {
    if (!text_.empty()) terminal_.lines(text_);
    text_.clear();
  }

 private:
  Terminal& terminal_;
  std::string text_;
};

// Newest first; by any other column the smallest first.
RunQuery query_of(const RunsRequest& request, std::int64_t limit) {
  const bool newest_first = request.order == "created" || request.order == "id";
  return {.filter = request.filter,
          .order = request.order,
          .descending = newest_first != request.reverse,
          .limit = request.all ? 0 : request.limit.value_or(limit)};
}

// For programs: all that were asked for, one by one.
void print_each(Store& store, const RunsRequest& request, Terminal& terminal) {
  LinePrinter lines(terminal);
  if (request.csv) lines.add(csv_heading());
  bool first = true;
  if (request.json)
    lines.add(fmt::format("{{\"total\": {}, \"runs\": [", store.count(request.filter)));
  store.each(query_of(request, 0), [&](const RunRow& row) {
    if (request.csv) return lines.add(row_csv(row));
    lines.add((request.json && !first ? "," : "") + row_json(row));
    first = false;
  });
  if (request.json) lines.add("]}");
  lines.flush();
}

int list(const RunsRequest& request) {
  if (request.json + request.jsonl + request.csv > 1)
    throw UsageError("--json, --jsonl and --csv exclude each other");
  if (request.all && request.limit) throw UsageError("--all and --limit exclude each other");
  if (request.limit) check_range("limit", *request.limit, 1, max_runs);
  Store store = open(request);
  Terminal terminal;
  if (request.json || request.jsonl || request.csv) {
    print_each(store, request, terminal);
    return 0;
  }
  terminal.lines(runs_text(store.list(query_of(request, runs_shown))));
  return 0;
}

int show(const RunsRequest& request) {
  if (request.names.size() != 1) throw UsageError("show which run? give its id, a tag or its uuid");
  Store store = open(request);
  const RunRow row = store.find(request.names.front());
  const RunDocument document = store.document(row.id);
  Terminal().lines(request.json ? run_line(document) : run_text(row, document));
  return 0;
}

// The runs that are named, and the tag behind them.
std::pair<std::vector<std::int64_t>, std::string> runs_and_tag(Store& store,
                                                               const RunsRequest& request,
                                                               std::string_view command) {
  if (request.names.size() < 2)
    throw UsageError("{} which runs with what? ridge runs {} RUN.. TAG", command, command);
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i + 1 < request.names.size(); ++i)
    ids.push_back(store.find(request.names[i]).id);
  return {ids, request.names.back()};
}

std::string in_quotes(std::string_view tag) {
  constexpr std::size_t width = 60;
  return '"' + shortened(printable(tag), width) + '"';
}

int tag(const RunsRequest& request) {
  Store store = open(request);
  const auto [ids, name] = runs_and_tag(store, request, "tag");
  const std::int64_t added = store.tag(ids, name);
  Terminal().line(fmt::format("Tagged {} as {}{}", counted(added, "run"), in_quotes(name),
                              added == std::ssize(ids) ? "" : "; the others had that tag"));
  return 0;
}

int untag(const RunsRequest& request) {
  Store store = open(request);
  const auto [ids, name] = runs_and_tag(store, request, "untag");
  const std::int64_t removed = store.untag(ids, name);
  Terminal().line(fmt::format("Took the tag {} from {}", in_quotes(name), counted(removed, "run")));
  return 0;
}

int export_to_file(const RunsRequest& request) {
  if (request.file.empty()) throw UsageError("export to which file? give one, or - to print");
  Store store = open(request);
  Terminal terminal;
  if (request.file == "-") {
    LinePrinter lines(terminal);
    export_runs(store, request.filter, [&](std::string_view line) { lines.add(line); });
    lines.flush();
    return 0;
  }
  AtomicFile file(request.file);
  const std::int64_t count = export_runs(store, request.filter, [&](std::string_view line) {
    file.write(line);
    file.write("\n");
  });
  file.commit();
  terminal.line(fmt::format("Wrote {} to {}", counted(count, "run"), request.file));
  return 0;
}

int import_from_file(const RunsRequest& request) {
  if (request.file.empty()) throw UsageError("import which file? give one of ridge runs export");
  const auto found = find_store_file(request.store);
  if (found && found->named) make_store(found->path);
  Store store = open(request);
  std::ifstream file(request.file);
  if (!file || file.peek() == std::ifstream::traits_type::eof())
    throw IoError("cannot read {}: it is missing, empty or not to be read", request.file);
  Terminal terminal;
  terminal.busy("Importing...");
  const Imported imported = import_runs(store, file);
  terminal.line(fmt::format("Imported {} into {}; {} were there already",
                            counted(imported.added, "run"), store.file().string(),
                            format_count(imported.read - imported.added)));
  if (imported.damaged.empty()) return 0;
  for (std::size_t i = 0; i < std::min(imported.damaged.size(), damage_shown); ++i)
    terminal.line(fmt::format("{}: line {} is no run and was left out: {}", request.file,
                              imported.damaged[i].line, printable(imported.damaged[i].reason)));
  throw FormatError("{} has {} damaged {}, the first is line {}; all other runs are in the store",
                    request.file, imported.damaged.size(),
                    imported.damaged.size() == 1 ? "line" : "lines", imported.damaged.front().line);
}

int prune(const RunsRequest& request) {
  if (request.filter.empty() && !request.keep)
    throw UsageError("prune which runs? give --filter, or --keep N, or both");
  if (request.keep) check_range("keep", *request.keep, 0, max_runs);
  const Store::Pruning pruning{
      .filter = request.filter, .keep = request.keep.value_or(0), .tagged = request.tagged};
  Store store = open(request);
  Terminal terminal;
  if (!request.yes) {
    const std::vector<std::int64_t> ids = store.prunable(pruning);
    if (ids.empty()) {
      terminal.line("No runs to remove");
      return 0;
    }
    terminal.line(fmt::format("Would remove {}, number {} the newest; --yes removes them",
                              counted(std::ssize(ids), "run"), ids.front()));
    return 0;
  }
  terminal.line(fmt::format("Removed {}", counted(store.prune(pruning), "run")));
  terminal.busy("Compacting the file...");
  store.compact();
  return 0;
}

using Handler = int (*)(const RunsRequest&);

Command add_command(Command runs, const char* name, const char* help, Handler run, Action& action,
                    const std::shared_ptr<RunsRequest>& request) {
  const Command command = runs.add_subcommand(name, help);
  add_value(command, "--store", request->store,
            "Read this store (default: $RIDGE_STORE, else .ridge/runs.db here or above)")
      .type_name("FILE");
  command.callback([run, request, &action] { action = [run, request] { return run(*request); }; });
  return command;
}

void add_filter(Command command, RunsRequest& request) {
  add_value(command, "--filter", request.filter, "Take the runs for which this holds")
      .type_name("FILTER");
}

void add_names(Command command, RunsRequest& request, const char* help, const char* type) {
  command.add_option("names", request.names, help).type_name(type);
}

void add_list(Command runs, Action& action) {
  const auto request = std::make_shared<RunsRequest>();
  const Command command =
      add_command(runs, "list", "List runs, the newest first", list, action, request);
  add_filter(command, *request);
  add_value(command, "--sort", request->order, "Sort by this column").type_name("COLUMN");
  command.add_flag("--reverse", request->reverse, "Sort the other way");
  add_value(command, "--limit", request->limit, "Show so many (default: 50 in the table, else all)")
      .type_name("N");
  command.add_flag("--all", request->all, "Show all");
  command.add_flag("--json", request->json, "Print JSON");
  command.add_flag("--jsonl", request->jsonl, "Print a line of JSON for each run");
  command.add_flag("--csv", request->csv, "Print CSV");
}

constexpr const char* runs_footer =
    R"(A filter compares columns with values, and joins comparisons by and, or, not and parentheses:
  version=v4 and gpu~NVIDIA        ~ is "contains"; = != < <= > >= and !~ are the others
  batch_size>=8 or tag=baseline    any of a run's tags
  created>2026-11-01               after that day; a year, a month or a time of a day serve as well
  hidden_dim=512                   any option of the run
  performance_summary.variation<0.02, machine.libraries.oneDNN=2.6.1
                                   any path in what ridge runs show --json prints
Quotes surround values with blanks or signs: host='build 7'. Columns are those of --csv.

A run is named by its id, by a tag (the newest that has it), or by the beginning of its uuid.

Examples:
  ridge train --num-steps 20 --record --tag baseline
  ridge runs list --filter "workload=tiny_llama and created>=2026-11" --sort median_seconds
  ridge runs show baseline
  ridge runs tag 12 13 release-1
  ridge runs export runs.jsonl --filter tag=release-1
  ridge runs prune --filter "outcome!=completed" --yes)";

}  // namespace

void add_runs_command(Command program, Action& action) {
  const Command runs = program.add_subcommand("runs", "List, show, tag and exchange kept runs");
  runs.take_one_subcommand();
  runs.footer(runs_footer);
  runs.callback([runs, &action] {
    if (runs.chosen_subcommands().empty())
      action = []() -> int { throw UsageError("ridge runs does what? see ridge runs --help"); };
  });
  add_list(runs, action);
  const auto make = [&](const char* name, const char* help, Handler run) {
    auto request = std::make_shared<RunsRequest>();
    return std::pair<Command, std::shared_ptr<RunsRequest>>(
        add_command(runs, name, help, run, action, request), request);
  };
  {
    auto [command, request] = make("show", "Show a run", show);
    add_names(command, *request, "Show this run", "RUN");
    command.add_flag("--json", request->json, "Print all that is kept, as one line of JSON");
  }
  {
    auto [command, request] = make("tag", "Tag runs", tag);
    add_names(command, *request, "Give these runs the tag that is named last", "RUN.. TAG");
  }
  {
    auto [command, request] = make("untag", "Take a tag from runs", untag);
    add_names(command, *request, "Take the tag that is named last from these runs", "RUN.. TAG");
  }
  {
    auto [command, request] = make("export", "Write whole runs to a file", export_to_file);
    command.add_option("file", request->file, "Write JSON lines to this file; - prints them")
        .type_name("FILE");
    add_filter(command, *request);
  }
  {
    auto [command, request] =
        make("import", "Add the runs of a file; those that are there stay", import_from_file);
    command.add_option("file", request->file, "Read this file of ridge runs export")
        .type_name("FILE");
  }
  {
    auto [command, request] = make("prune", "Remove runs", prune);
    add_filter(command, *request);
    add_value(command, "--keep", request->keep, "Leave the newest N of them").type_name("N");
    command.add_flag("--tagged", request->tagged, "Remove runs with tags too");
    command.add_flag("--yes", request->yes, "Do it; without, only say how many");
  }
}

}  // namespace ridge
