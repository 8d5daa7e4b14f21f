#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/profile/recording.h"
#include "ridge/session/record.h"

namespace ridge {

// What one operator does in a step of a run.
struct OperatorUse {
  double seconds = 0, calls = 0, bytes = 0;
};
using OperatorUses = std::vector<std::pair<std::string, OperatorUse>>;  // in alphabetical order

// One of several runs that stand side by side, made a moment ago or read from its files.
struct ComparedRun {
  std::string name;      // as the table calls it
  std::string version;   // "v1"
  std::string workload;  // "tiny_llama"
  bool trains = true;
  // What decides how much work a step is, and where it ran, in the order of importance.
  std::vector<std::pair<std::string, std::string>> setting;
  std::size_t work_settings = 0;   // the first so many decide the work
  double samples = 0, tokens = 0;  // of a step; no tokens: samples are no sequences
  // Seconds, without the warm-up; of phases those that are known.
  std::vector<double> step, forward, backward, optimizer;
  // Seconds of a step in each round, paired with the other runs'; empty if not interleaved.
  std::vector<double> round_seconds;
  double peak_bytes = 0;
  std::optional<double> price_per_hour;  // of its machine, as the reader gives it
  double resident_bytes = 0;             // of the process at its peak; 0: not known
  std::vector<double> losses;            // of every step
  std::string seed;                      // of weights and data
  bool has_operators = false;
  OperatorUses operators;

  double kernels() const;             // of a step; 0 if not known
  double samples_per_second() const;  // in the median time; 0 if that is 0
  // The value of a setting, or of "network" or "version"; empty if it has none.
  std::string value_of(std::string_view setting) const;
};

// A run of this process.
ComparedRun run_of(const Record& record, const std::string& name);

// From the content of performance_summary.json and, if it is not empty, operators.json. FormatError
// naming `source` and the member if they do not hold what is needed.
ComparedRun parse_run(const std::string& name, const std::string& source, std::string_view summary,
                      std::string_view operators);

// From the directory of a run or of a profile, or from the record that a benchmark has written to a
// file. IoError if it is none of them.
ComparedRun read_run(const std::filesystem::path& path);

// What the operators do in a recorded step, on the average over the steps.
OperatorUses operator_uses(const Recording& recording);
// The medians of times over several recordings of one graph, which a disturbed one does not move.
OperatorUses typical_uses(const std::vector<OperatorUses>& recorded);

// How many times as fast as the first a run is: paired where both took turns.
Ratio speedup_of(const ComparedRun& first, const ComparedRun& run);

// Whether a step of each is the same work, so that one can be faster than the other.
bool same_work(const ComparedRun& a, const ComparedRun& b);
// The first thing in which the two were not the same work on the same machine, in words; empty if
// there is none.
std::string first_difference(const ComparedRun& a, const ComparedRun& b);

enum class OperatorFate : std::uint8_t { appeared, vanished, changed, same };
std::string_view name_of(OperatorFate fate);

struct OperatorChange {
  std::string name;
  std::optional<OperatorUse> before, after;  // one at least
  OperatorFate fate = OperatorFate::same;    // "changed" in its calls or bytes; times always vary

  double seconds() const;  // more than before
};

// The largest change of time first.
std::vector<OperatorChange> operator_changes(const ComparedRun& before, const ComparedRun& after);

// The settings in which the runs differ, of those that all of them have; "network" among them.
std::vector<std::string> differing_settings(const std::vector<ComparedRun>& runs);

// Side by side, then what changed from the first run to each other. Two runs at least.
std::string comparison_text(const std::vector<ComparedRun>& runs);
std::string comparison_json(const std::vector<ComparedRun>& runs);

}  // namespace ridge
