// `ridge trace export`: a trace as tables, and as Perfetto's viewer reads it.
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/trace_output.h"
#include "ridge/trace/export.h"
#include "ridge/trace/named_traces.h"
#include "ridge/trace/read.h"

namespace ridge {
namespace {

struct ExportRequest {
  std::string file, sqlite, csv, perfetto;
};

int export_trace(const ExportRequest& request) {
  if (request.file.empty()) throw UsageError("export which trace? give a file");
  if (request.sqlite.empty() && request.csv.empty() && request.perfetto.empty())
    throw UsageError("export as what? give --sqlite FILE, --csv DIR or --perfetto FILE");
  const std::span traces(&request.file, 1);
  if (!request.sqlite.empty()) check_output("--sqlite", request.sqlite, traces);
  if (std::filesystem::exists(request.csv))
    check_output("--csv", request.csv + "/kernels.csv", traces);
  if (!request.perfetto.empty()) check_output("--perfetto", request.perfetto, traces);
  const trace::Trace read =
      trace::read(request.file, {.threads = trace::reading_threads(), .progress = {}});
  if (!request.sqlite.empty()) trace::export_sqlite(read, request.sqlite);
  if (!request.csv.empty()) trace::export_csv(read, request.csv);
  if (!request.perfetto.empty()) trace::export_perfetto(read, request.perfetto);
  return 0;
}

}  // namespace

void add_trace_export(Command trace_command, Action& action) {
  const Command exporting =
      trace_command.add_subcommand("export", "Write a trace as tables, or for Perfetto's viewer");
  const auto request = std::make_shared<ExportRequest>();
  exporting.add_option("file", request->file, "Any trace that `ridge trace report` reads")
      .type_name("FILE");
  exporting.add_option("--sqlite", request->sqlite, "Write a database of SQLite").type_name("FILE");
  exporting
      .add_option("--csv", request->csv,
                  "Write kernels.csv, operators.csv, steps.csv, idle.csv and events.csv here")
      .type_name("DIR");
  exporting
      .add_option("--perfetto", request->perfetto,
                  "Write a file to open at https://ui.perfetto.dev, with the critical path and the "
                  "findings")
      .type_name("FILE");
  exporting.footer(R"(Examples:
  ridge trace export trace.json.gz --sqlite trace.db
  ridge trace export report.sqlite --csv tables/
  ridge trace export trace.json.gz --perfetto trace.pftrace)");
  exporting.callback([request, &action] { action = [request] { return export_trace(*request); }; });
}

}  // namespace ridge
