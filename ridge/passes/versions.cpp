#include "ridge/passes/versions.h"

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {

std::span<const Version> versions() {
  static constexpr Version table[] = {
      {"v1", "V1 - Baseline", "one kernel an operator, attention scores materialised", true},
      {"v2", "V2 - Fused", "fused projections and pointwise operators", false},
      {"v3", "V3 - Kernels", "own flash attention, norms, rotary and cross-entropy", false},
      {"v4", "V4 - Ultra", "planned memory, tuned products, captured steps", false},
  };
  return table;
}

const Version& version_named(std::string_view name) {
  const auto found = std::ranges::find(versions(), name, &Version::name);
  if (found == versions().end()) throw UsageError("there is no version '{}': choose v1", name);
  if (!found->available)
    throw UsageError("version {} ({}) does not run yet: choose v1", name, found->description);
  return *found;
}

}  // namespace ridge
