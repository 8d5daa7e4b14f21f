#include "ridge/cli/gate_request.h"

#include <unistd.h>

#include <charconv>
#include <sstream>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/study/paced_run.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_commands_bytes = std::size_t{1} << 20;
constexpr double longest_budget = 1e6;
constexpr std::int64_t most_gate_rounds = 1'000'000;

}  // namespace

double part_from(const std::string& text, std::string_view flag, bool may_be_none) {
  const bool percent = text.ends_with('%');
  const char* const last = text.data() + text.size() - (percent ? 1 : 0);
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), last, value);
  if (percent) value /= 100;
  const bool in_range = (value > 0 || (may_be_none && value == 0)) && value < 1;
  if (fault != std::errc() || end != last || !in_range)
    throw UsageError("{} is '{}'; it must be a part {} 0 and below 1, such as 5%", flag, text,
                     may_be_none ? "of at least" : "above");
  return value;
}

bool is_program(const fs::path& file) {
  std::error_code fault;
  return fs::is_regular_file(file, fault) && ::access(file.c_str(), X_OK) == 0;
}

double GateRequest::rate() const { return part_from(false_alarms, "--false-alarms"); }

void GateRequest::check() const {
  rate();
  if (!(budget > 0) || budget > longest_budget)
    throw UsageError("--budget is {}; it must be above 0 and at most {} seconds", budget,
                     longest_budget);
  if (rounds) check_range("rounds", *rounds, 1, most_gate_rounds);
  if (history && self_test) throw UsageError("--history and --self-test exclude each other");
  const bool runs = !command.empty() || !commands_file.empty();
  if (history && (runs || !baseline.empty() || !candidate.empty()))
    throw UsageError(
        "--history looks at runs that are kept: leave out --baseline, --candidate and "
        "commands");
  if (!history && (!filter.empty() || history_metric))
    throw UsageError("--filter and --metric are for --history{}",
                     history_metric ? "; --metrics names what is compared" : "");
  if (history && (!junit_file.empty() || !markdown_file.empty()))
    throw UsageError("--history writes --json alone");
  if (!self_test && (rounds || slowdown || slowed_alone))
    throw UsageError("--rounds, --slowdown and --slowed-alone are for --self-test");
  if (self_test && (!baseline.empty() || !junit_file.empty() || !markdown_file.empty()))
    throw UsageError("--self-test compares a program with itself and writes --json alone");
  if (!history && !self_test && baseline.empty())
    throw UsageError(
        "gate against what? name a --baseline: a program, a tag, a commit or a file "
        "of runs");
  if (!command.empty() && !commands_file.empty())
    throw UsageError("--commands and a command behind -- exclude each other");
}

std::vector<std::vector<std::string>> GateRequest::commands() const {
  std::vector<std::vector<std::string>> all;
  if (commands_file.empty()) {
    all.push_back(command);
  } else {
    std::istringstream lines(read_text_file(commands_file, max_commands_bytes));
    for (std::string line; std::getline(lines, line);) {
      const std::vector<std::string> words = split_words(line);
      if (!words.empty() && !words.front().starts_with('#')) all.push_back(words);
    }
    if (all.empty()) throw UsageError("{} has no command", commands_file);
  }
  for (const std::vector<std::string>& words : all) check_gated_command(words);
  return all;
}

fs::path GateRequest::candidate_program() const {
  if (candidate.empty()) return own_program();
  if (!is_program(candidate))
    throw UsageError("the candidate {} is no program that can be run", candidate);
  return fs::absolute(candidate);
}

}  // namespace ridge
