#pragma once

// Counts of what passes do to graphs, and the table of them that the suite compares with.

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/passes/schedules.h"
#include "ridge/session/options.h"

namespace ridge::testing {

// What a graph costs, read off it without a device; or how much a pass changes that.
struct Counts {
  std::int64_t kernels = 0;  // operators that do more than name memory anew
  std::int64_t added = 0;    // of a pass: kernels that the graph without it does not have
  std::int64_t products =
      0;  // of them, those that multiply and add: matrices, convolutions, attention
  std::int64_t casts = 0, adds = 0, permutes = 0;
  std::int64_t in_place = 0;  // that write their result over an operand
  std::int64_t flops = 0;
  std::int64_t bytes = 0;  // moved: each operand of each kernel once
  std::int64_t peak = 0;   // bytes alive at once, without workspaces

  bool operator==(const Counts&) const = default;
  friend Counts operator-(const Counts& a, const Counts& b);
};

// Something to build a graph of. Nothing runs, so that only the number of nodes takes time.
struct Configuration {
  std::string name;
  RunOptions options;      // resolved
  std::string full_row;    // the schedule with all passes
  bool needs_gpu = false;  // for its precision

  // For messages of GoogleTest.
  friend void PrintTo(const Configuration& c, std::ostream* out) { *out << c.name; }
};

std::vector<Configuration> AllConfigurations();
Configuration configuration_named(std::string_view name);

Target a_cpu();
Target a_gpu();  // of sm90

// `options` are resolved.
Counts counts_of(const RunOptions& options, const Schedule& schedule);

// A row of the table: what a schedule's graph costs, or what a pass changes, alone or beside all
// others of the full schedule.
struct EffectRow {
  std::string configuration;
  std::string target;    // "cpu", "gpu"
  std::string schedule;  // "v4"
  std::string pass;      // empty: the schedule itself
  Counts counts;
  std::string why;  // of a pass without effect

  bool is_of_pass() const { return !pass.empty(); }
  std::string name() const;  // "llama, gpu, v4: swiglu"
};

// All rows of a configuration, without reasons. A pass is looked at on a GPU unless schedules have
// it on a CPU alone:
//   - in the full schedule, if that has it: against that schedule without it alone;
//   - alone, beside what it needs: if that has an effect, or the full schedule does not have it.
std::vector<EffectRow> effects_of(const Configuration& configuration);

// One line for each row that is new, gone, or has other counts.
std::vector<std::string> differences(const std::vector<EffectRow>& expected,
                                     const std::vector<EffectRow>& found);

// The table as it stands in tests/passes/effects.tsv.
class EffectsFile {
 public:
  EffectsFile();

  const std::vector<EffectRow>& rows() const { return rows_; }
  std::vector<EffectRow> rows_of(std::string_view configuration) const;
  // Puts these rows in place of a configuration's own, whose reasons stay, and writes the file. A
  // pass newly without effect gets the reason "?".
  void replace(std::string_view configuration, std::vector<EffectRow> rows);

 private:
  void write() const;

  std::vector<EffectRow> rows_;
};

}  // namespace ridge::testing
