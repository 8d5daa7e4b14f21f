#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/version.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/rocm_profiler.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/workshop_names.h"

namespace ridge {
namespace {

constexpr int exit_failure = 1, exit_usage = 2;

void add_commands(Command program, Action& action) {
  add_train_command(program, action);
  add_eval_command(program, action);
  add_plan_command(program, action);
  add_passes_command(program, action);
  add_verify_command(program, action);
  add_ablate_command(program, action);
  add_compare_command(program, action);
  add_export_command(program, action);
  add_bench_command(program, action);
  add_ops_command(program, action);
  add_roofline_command(program, action);
  add_speed_of_light_command(program, action);
  add_report_command(program, action);
  add_trace_command(program, action);
  add_exercise_command(program, action);
  add_runs_command(program, action);
  add_store_command(program, action);
  add_gate_command(program, action);
  add_study_command(program, action);
  add_workshop_study_command(program, action);
  add_dashboard_command(program, action);
  add_doctor_command(program, action);
  add_about_command(program, action);
  add_completion_command(program, action);
  program.take_one_subcommand();
  program.footer(fmt::format("ridge {}. Each command has its own --help.", version()));
  const Flag version_flag = program.add_flag("--version", "Show the version, as ridge about does");
  program.callback([program, version_flag, &action] {
    if (version_flag.was_given())
      action = about;
    else if (program.chosen_subcommands().empty())
      action = []() -> int { throw UsageError("which command? see ridge --help"); };
  });
}

void refuse_unknown(Command command) {
  for (const Command sub : command.chosen_subcommands()) refuse_unknown(sub);
  refuse_unknown_arguments(command);
}

// `arguments` without the program's name.
int run(const std::string& name, std::vector<std::string> arguments) {
  Action action;
  Program program(
      "ridge",
      "Trains a small LLaMA, runs vision networks, and shows where the time and the memory go.");
  add_commands(program.command(), action);

  if (const auto help = rocm_help(name, arguments)) {
    Terminal().lines(*help);
    return 0;
  }
  const auto words = workshop_command(name, arguments);
  if (words) arguments = *words;
  // Words behind "--" are no flags of ours.
  for (auto at = arguments.begin(); at != arguments.end() && *at != "--"; ++at)
    *at = with_dashes(*at);
  if (const std::optional<std::string> help = program.parse(std::move(arguments))) {
    if (words) Terminal().line(fmt::format("{} is this command:\n", name));
    Terminal().line(*help);
    return 0;
  }
  refuse_unknown(program.command());
  return action();
}

// One line, whatever the message has in it.
int complain(std::string_view message, int exit_code) {
  std::string line(message);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  // Not fmt::print(): standard error may be closed, and then nobody is left to be told of it.
  std::fputs(fmt::format("ridge: {}\n", line).c_str(), stderr);
  return exit_code;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  // A file beyond the limit on their size is to be an error with a message, not a sudden end.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "ridge";
  try {
    return ridge::run(name, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const ridge::UsageError& error) {
    return ridge::complain(error.what(), ridge::exit_usage);
  } catch (const std::bad_alloc&) {
    return ridge::complain("the system has no memory left: use a smaller batch or model",
                           ridge::exit_failure);
  } catch (const std::exception& error) {
    return ridge::complain(error.what(), ridge::exit_failure);
  }
}
