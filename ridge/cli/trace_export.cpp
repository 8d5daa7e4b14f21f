// `ridge trace export`: a trace as tables.
#include <filesystem>
#include <memory>
#include <string>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/terminal.h"
#include "ridge/trace/export.h"
#include "ridge/trace/named_traces.h"
#include "ridge/trace/read.h"

namespace ridge {
namespace {

struct ExportRequest {
  std::string file, sqlite, csv;
};

int export_trace(const ExportRequest& request) {
  if (request.file.empty()) throw UsageError("export which trace? give a file");
  if (request.sqlite.empty() && request.csv.empty())
    throw UsageError("export as what? give --sqlite FILE, or --csv DIR");
  std::error_code ignored;
  if (std::filesystem::equivalent(request.file, request.sqlite, ignored))
    throw UsageError("--sqlite {} is the trace itself; give another file", request.sqlite);
  const trace::Trace read =
      trace::read(request.file, {.threads = trace::reading_threads(), .progress = {}});
  if (!request.sqlite.empty()) trace::export_sqlite(read, request.sqlite);
  if (!request.csv.empty()) trace::export_csv(read, request.csv);
  return 0;
}

}  // namespace

void add_trace_export(Command trace_command, Action& action) {
  const Command exporting =
      trace_command.add_subcommand("export", "Write a trace as tables, for questions of your own");
  const auto request = std::make_shared<ExportRequest>();
  exporting.add_option("file", request->file, "Any trace that `ridge trace report` reads")
      .type_name("FILE");
  exporting.add_option("--sqlite", request->sqlite, "Write a database of SQLite").type_name("FILE");
  exporting
      .add_option("--csv", request->csv,
                  "Write kernels.csv, operators.csv, steps.csv, idle.csv and events.csv here")
      .type_name("DIR");
  exporting.footer(R"(Examples:
  ridge trace export trace.json.gz --sqlite trace.db
  ridge trace export report.sqlite --csv tables/)");
  exporting.callback([request, &action] { action = [request] { return export_trace(*request); }; });
}

}  // namespace ridge
