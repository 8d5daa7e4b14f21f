#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridge/study/gate.h"

namespace ridge {

// What the flags of `ridge gate` ask for.
struct GateRequest {
  std::string baseline, candidate, commands_file;
  std::vector<std::string> command;  // behind --
  std::vector<std::string> metrics, least_effects;
  double budget = 120;  // seconds, of each command
  std::string false_alarms = "0.5%";
  std::int64_t seed = 0;
  std::string store;
  bool other_machines = false;

  bool history = false;
  std::string filter;
  std::optional<std::string> history_metric;

  bool self_test = false;
  std::optional<std::int64_t> rounds;
  std::optional<std::string> slowdown;
  bool slowed_alone = false;

  std::string json_file, junit_file, markdown_file;  // "-": standard output

  // UsageError for flags that make no sense, or not together.
  void check() const;
  double rate() const;  // of false alarms
  // The commands to run, in order.
  std::vector<std::vector<std::string>> commands() const;
  // The program that is tested.
  std::filesystem::path candidate_program() const;
};

// "5%" or "0.05", above 0 and below 1, or 0 if there may be none. UsageError about `flag` for
// anything else.
double part_from(const std::string& text, std::string_view flag, bool may_be_none = false);

// Whether there is a file that can be run.
bool is_program(const std::filesystem::path& file);

// `ridge gate --self-test`; the exit code of the program.
int gate_self_test(const GateRequest& request);

}  // namespace ridge
