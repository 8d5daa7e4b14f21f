#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/profile/module_tree.h"
#include "ridge/profile/recording.h"

namespace ridge {

// What one phase of a training step does: counted from the nodes that ran, never derived from
// another phase.
struct PhaseWork {
  std::int64_t macs = 0;   // multiply-accumulates: of matrix products only
  std::int64_t flops = 0;  // of everything, a multiply-accumulate being two
  std::int64_t bytes = 0;
  std::int64_t ns = 0;  // inside kernels

  PhaseWork& operator+=(const PhaseWork& other);
  double flops_per_second() const;
};

struct ModuleWork {
  std::int64_t parameters = 0;
  PhaseWork phases[3];  // by Phase

  ModuleWork& operator+=(const ModuleWork& other);
  const PhaseWork& forward() const { return phases[0]; }
  const PhaseWork& backward() const { return phases[1]; }
  const PhaseWork& optimizer() const { return phases[2]; }
  PhaseWork all() const;
};

// The work of every module of a model in one step, or in several together.
struct FlopsReport {
  ModuleTree tree;
  std::vector<ModuleWork> self, total;  // by module; `total` includes submodules
  std::int64_t steps = 0, first_step = 0, last_step = 0;
  std::int64_t phase_ns[3] = {};  // by Phase, with what passes between kernels
  std::int64_t step_ns = 0;
  std::uint64_t dropped = 0;

  const ModuleWork& root() const { return total.front(); }
};

// Reports one recorded step, or all of them. UsageError if that step was not recorded.
FlopsReport flops_report(const Recording& recording, std::optional<std::int32_t> step = {});

struct FlopsText {
  std::string_view model = "model";
  std::int64_t samples_per_step = 0;  // 0: not known
  std::size_t top_modules = 3;        // of each depth
  std::size_t max_depth = ~std::size_t{0};
};

// The layout of DeepSpeed's profiler: summary, aggregated profile by depth, detailed tree. All
// figures are of one step: means over the report's steps.
std::string flops_report_text(const FlopsReport& report, const FlopsText& options = {});

// modules.json: every module in the order of the tree, with its parent's index. Of one step. And
// as text.
nlohmann::ordered_json json_of(const FlopsReport& report);
std::string modules_json(const FlopsReport& report);

}  // namespace ridge
