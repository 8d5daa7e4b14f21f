#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/gzip.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/terminal.h"
#include "ridge/profile/trace_check.h"

namespace ridge {
namespace {

constexpr std::size_t max_unpacked = std::size_t{4} << 30;

int check(const std::string& path) {
  if (path.empty()) throw UsageError("check which trace? give a file");
  const MappedFile file{std::filesystem::path(path)};
  const std::string name = std::filesystem::path(path).filename().string();
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::string unpacked;
  if (is_gzip(file.bytes())) text = unpacked = gunzip(file.bytes(), max_unpacked, name);
  const TraceCheck result = check_trace(text, name);
  Terminal().lines(trace_check_text(result));
  return std::ranges::any_of(result.verdicts, &TraceVerdict::refuses) ? 1 : 0;
}

}  // namespace

void add_trace_command(Command program, Action& action) {
  const Command command = program.add_subcommand("trace", "Check traces");
  command.take_one_subcommand();
  command.callback([command, &action] {
    if (command.chosen_subcommands().empty())
      action = []() -> int {
        throw UsageError("ridge trace does what? there is: ridge trace check FILE");
      };
  });
  const Command checking =
      command.add_subcommand("check", "Check which tools can read a Chrome trace");
  const auto path = std::make_shared<std::string>();
  checking.add_option("file", *path, "Check this JSON trace of any program; gzip is read too")
      .type_name("FILE");
  checking.footer("The exit code is 1 if one of the tools refuses it.");
  checking.callback([path, &action] { action = [path] { return check(*path); }; });
}

}  // namespace ridge
