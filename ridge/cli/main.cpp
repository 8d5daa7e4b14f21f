#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/version.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/workshop_names.h"

namespace ridge {
namespace {

// Breaks what is said of an option into lines.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(44); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), sentence_width - 44);
  }
};

constexpr int exit_failure = 1, exit_usage = 2;

void add_commands(CLI::App& program, Action& action) {
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
  program.require_subcommand(0, 1);
  program.footer(fmt::format("ridge {}. Each command has its own --help.", version()));
  program.add_flag("--version")->description("Show the version, as ridge about does");
  program.callback([&] {
    if (program.count("--version") > 0)
      action = about;
    else if (program.get_subcommands().empty())
      action = []() -> int { throw UsageError("which command? see ridge --help"); };
  });
}

// So that refuse_unknown() may say in our words what is wrong with them.
void allow_extras(CLI::App& command) {
  command.allow_extras();
  for (CLI::App* sub : command.get_subcommands({})) allow_extras(*sub);
}

void refuse_unknown(const CLI::App& command) {
  for (const CLI::App* sub : command.get_subcommands()) refuse_unknown(*sub);
  refuse_unknown_arguments(command);
}

// CLI11 reports a missing value itself, as "--flag: 1 required N missing".
std::string in_our_words(const CLI::ParseError& error) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error))
    return fmt::format("{} needs one value", text.substr(0, text.find(':')));
  return text;
}

// `arguments` without the program's name.
int run(const std::string& name, std::vector<std::string> arguments) {
  Action action;
  CLI::App program(
      "Trains a small LLaMA, runs vision networks, and shows where the time and the memory go.",
      "ridge");
  program.formatter(std::make_shared<HelpFormatter>());  // before commands, which inherit it
  add_commands(program, action);
  allow_extras(program);

  const auto words = workshop_command(name, arguments);
  if (words) arguments = *words;
  std::vector<std::string> reversed;  // as CLI11 takes them
  for (const std::string& argument : arguments) reversed.push_back(with_dashes(argument));
  std::ranges::reverse(reversed);
  try {
    program.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    if (words) Terminal().line(fmt::format("{} is this command:\n", name));
    Terminal().line(program.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(in_our_words(error));
  }
  refuse_unknown(program);
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
