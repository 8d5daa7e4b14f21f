#pragma once

#include <span>
#include <string_view>

#include "ridge/passes/passes.h"

namespace ridge {

// A version of the workshop's model: one schedule of the one graph.
struct Version {
  std::string_view name;   // "v1"
  std::string_view title;  // "V1 - Baseline"
  std::string_view description;
  std::span<const std::string_view> passes;  // in the order in which the versions bring them
};

std::span<const Version> versions();

// UsageError for a name that is none.
const Version& version_named(std::string_view name);

// How a graph is run: a version, with passes added and taken away.
struct Schedule {
  PassNames passes;
  Recompute recompute = Recompute::none;

  bool has(std::string_view pass) const { return passes.contains(pass); }
};

// `enable` and `disable` are names of passes, separated by commas; what an enabled pass needs is
// enabled with it. On a GPU no version computes attention again unless it is asked to: that costs
// more there than its memory is worth. UsageError for a name that is none, a pass that is both, or
// one enabled that needs one disabled.
Schedule schedule_of(std::string_view version, std::string_view enable, std::string_view disable,
                     std::string_view recompute, bool on_gpu = false);

}  // namespace ridge
