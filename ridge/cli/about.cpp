#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "ridge/cli/commands.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/passes/versions.h"

namespace ridge {

int about() {
  Terminal terminal;
  const TrainOptions options;
  const std::unique_ptr<Device> device = open_device(options);
  const SystemInfo info = system_info(*device, options);
  terminal.line(fmt::format("ridge {}", info.ridge_version));
  terminal.line(fmt::format("Compiler: {}", info.compiler));
  terminal.line(fmt::format("Device: {} ({})", device->name(), device->description()));
  terminal.line("Versions of the model:");
  for (const Version& version : versions())
    terminal.line(fmt::format("  {}  {}", version.name, version.description));
  return 0;
}

void add_about_command(CLI::App& program, Action& action) {
  program.add_subcommand("about", "The version of this program and the devices it sees")
      ->callback([&action] { action = about; });
}

}  // namespace ridge
