// `ridge report`: a profile as a page to look at.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/terminal.h"
#include "ridge/report/report_page.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Request {
  std::string profile, output, machine_file;
};

nlohmann::ordered_json document_of(const Request& request) {
  nlohmann::ordered_json document = profile_document(request.profile);
  const ProfiledMachine machine = profiled_machine(document);
  std::optional<Roof> roof;
  if (!request.machine_file.empty())
    roof = roof_from_file(request.machine_file, machine.device, machine.hardware, machine.threads);
  else if (!machine.has_roof)  // else the page says how to measure it
    roof = kept_roof(machine.device, machine.hardware, machine.threads).roof;
  if (roof) set_roof(document, *roof);
  return document;
}

int report(const Request& request) {
  if (request.profile.empty())
    throw UsageError("report on which profile? give the --profile-dir of a run with --profile");
  Terminal terminal;
  terminal.busy("Reading the profile...");
  const std::string page = report_page(document_of(request));
  const fs::path output =
      request.output.empty() ? fs::path(request.profile) / "report.html" : fs::path(request.output);
  write_text_file(output, page);
  terminal.line(fmt::format("Wrote {} ({}): open it in a browser", output.string(),
                            format_bytes(page.size())));
  return 0;
}

}  // namespace

void add_report_command(CLI::App& program, Action& action) {
  CLI::App& command = *program.add_subcommand("report", "Draw a profile as a page for a browser");
  const auto request = std::make_shared<Request>();
  command.add_option("profile", request->profile, "Draw the --profile-dir of a run with --profile")
      ->type_name("PROFILE_DIR");
  command
      .add_option("--output", request->output,
                  "Write the page here (default: PROFILE_DIR/report.html)")
      ->type_name("FILE");
  command
      .add_option("--machine,--machine-file", request->machine_file,
                  "Read the machine's ceilings from this file (default: those of the profile)")
      ->type_name("FILE");
  command.footer(
      R"(The page is one file that needs no network. With bottlenecks and a roofline, if the machine's
ceilings had been measured when the profile was taken: ridge roofline does that, once.

Example:
  ridge train --enable-all-profiling --profile-dir ./profiles
  ridge report ./profiles)");
  command.callback([request, &action] { action = [request] { return report(*request); }; });
}

}  // namespace ridge
