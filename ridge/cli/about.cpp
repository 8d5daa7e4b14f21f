#include <fmt/format.h>

#include <memory>
#include <utility>

#include "ridge/base/version.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"
#include "ridge/session/record.h"

namespace ridge {

int about() {
  Terminal terminal;
  const RunOptions options;
  const std::unique_ptr<Device> device = open_device(options);
  const SystemInfo info = system_info(*device, options);
  terminal.line(fmt::format("ridge {}", info.ridge_version));
  if (!commit().empty()) terminal.line(fmt::format("Commit: {}", commit()));
  terminal.line(fmt::format("Compiler: {}", info.compiler));
  terminal.line(fmt::format("Device: {} ({})", device->name(), device->description()));
  for (const auto& [kind, heading] :
       {std::pair{ScheduleRow::Kind::version, "Versions"},
        std::pair{ScheduleRow::Kind::compile_mode, "Compile modes"}}) {
    terminal.line(fmt::format("{}:", heading));
    for (const ScheduleRow& row : schedules())
      if (row.kind == kind) terminal.line(fmt::format("  {:<16}{}", row.name, row.description));
  }
  return 0;
}

void add_about_command(Command program, Action& action) {
  program.add_subcommand("about", "Show this program's version and its devices")
      .callback([&action] { action = about; });
}

}  // namespace ridge
