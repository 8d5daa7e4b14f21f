#include "ridge/analyze/speed_of_light.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"

namespace ridge {
namespace {

struct SpeedOfLightRequest {
  std::string profile, against, name;
  std::int64_t top = 10;
  bool json = false, roofline = false;
};

// The file, or that of a profile directory.
SpeedOfLight read_light(const std::string& named) {
  constexpr std::size_t max_bytes = std::size_t{64} << 20;
  std::filesystem::path file = named;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) file /= "speed_of_light.json";
  if (!std::filesystem::exists(file))
    throw IoError(
        "{} is not there: give the --profile-dir of a run with --profile, taken after "
        "ridge roofline had measured this machine",
        file.string());
  return speed_of_light_from_json(read_text_file(file, max_bytes), file.string());
}

const LightRow& row_named(const SpeedOfLight& light, const std::string& name) {
  for (const auto* rows : {&light.operators, &light.kernels})
    if (const auto row = std::ranges::find(*rows, name, &LightRow::name); row != rows->end())
      return *row;
  throw UsageError("--name {}: the profile has no such operator, nor a family of kernels", name);
}

int print_light(const SpeedOfLightRequest& request) {
  check_range("top", request.top, 1, 1'000'000);
  Terminal terminal;
  const auto top = static_cast<std::size_t>(request.top);
  const SpeedOfLight light = read_light(request.profile);
  if (!request.against.empty()) {
    const SpeedOfLight before = read_light(request.against);
    terminal.lines(request.json ? compared_light_json(before, light)
                                : compared_light_text(before, light, top));
  } else if (request.json) {
    terminal.lines(speed_of_light_json(light));
  } else if (!request.name.empty()) {
    const LightRow& row = row_named(light, request.name);
    terminal.lines(fmt::format("Between the levels of memory, in a step of {}\n", row.name) +
                   memory_levels_text(light, row));
  } else if (request.roofline) {
    constexpr std::size_t operators = 5;  // each is a point for each level
    terminal.lines(roofline_text(points_by_level(light, std::min(top, operators)), light.roof));
  } else {
    terminal.lines(speed_of_light_text(light, top));
  }
  return 0;
}

}  // namespace

void add_speed_of_light_command(Command program, Action& action) {
  const Command command = program.add_subcommand(
      "speed-of-light", "Show how busy a profile's operators keep each unit of the device");
  const auto request = std::make_shared<SpeedOfLightRequest>();
  command.add_option("PROFILE", request->profile, "Read this --profile-dir, or its file");
  add_value(command, "--against", request->against,
            "Put this profile beside it, the run before a change")
      .type_name("PROFILE");
  add_value(command, "--name", request->name,
            "Draw the levels of memory of this operator or family of kernels alone")
      .type_name("NAME");
  command.add_flag("--roofline", request->roofline,
                   "Draw the first operators on the roofline, once for each level of memory");
  add_value(command, "--top", request->top, "Show so many rows of each table")
      .type_name("N")
      .default_text(fmt::format("{}", request->top));
  command.add_flag("--json", request->json, "Print JSON, with all rows");
  command.footer(
      R"(A unit is a pipe that computes or a level of memory. What --counters counted is marked with a star;
the rest follows from the operators' FLOPs and bytes, the ceilings of ridge roofline and the time.

Examples:
  ridge train --num-steps 12 --profile --counters --profile-dir before
  ridge speed-of-light before
  ridge speed-of-light after --against before
  ridge speed-of-light before --name matmul
  ridge speed-of-light before --roofline)");
  command.callback([request, &action] {
    action = [request] {
      if (request->profile.empty())
        throw UsageError("which profile? give the --profile-dir of a run with --profile");
      return print_light(*request);
    };
  });
}

}  // namespace ridge
