#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

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

struct Request {
  std::string path;
  std::vector<std::string> tools;  // empty: all
  bool json = false;
};

// Leaves only the verdicts of these tools.
void select(TraceCheck& check, const std::vector<std::string>& tools) {
  const auto names = std::views::transform(check.verdicts, &TraceVerdict::consumer);
  for (const std::string& tool : tools)
    if (std::ranges::find(names, tool) == names.end())
      throw UsageError("--tool is {}; there are: {}", tool, fmt::join(names, ", "));
  if (tools.empty()) return;
  std::erase_if(check.verdicts, [&](const TraceVerdict& verdict) {
    return std::ranges::find(tools, verdict.consumer) == tools.end();
  });
}

int check(const Request& request) {
  const std::string& path = request.path;
  if (path.empty()) throw UsageError("check which trace? give a file");
  const MappedFile file{std::filesystem::path(path)};
  const std::string name = std::filesystem::path(path).filename().string();
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::string unpacked;
  const bool compressed = is_gzip(file.bytes());
  if (compressed) text = unpacked = gunzip(file.bytes(), max_unpacked, name);
  TraceCheck result = check_trace(text, name, compressed);
  select(result, request.tools);
  Terminal().lines(request.json ? trace_check_json(result) : trace_check_text(result));
  return std::ranges::all_of(result.verdicts, &TraceVerdict::accepts) ? 0 : 1;
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
  const auto request = std::make_shared<Request>();
  checking
      .add_option("file", request->path, "Check this JSON trace of any program; gzip is read too")
      .type_name("FILE");
  checking
      .add_option("--tool", request->tools,
                  "Check for this tool only: chrome://tracing, Perfetto, torch-tb-profiler, "
                  "HolisticTraceAnalysis or TraceLens; give several one by one")
      .type_name("NAME");
  checking.add_flag("--json", request->json, "Print JSON");
  checking.footer("The exit code is 1 if one of the tools refuses it.");
  checking.callback([request, &action] { action = [request] { return check(*request); }; });
}

}  // namespace ridge
