#pragma once

#include <span>
#include <string_view>

namespace ridge {

// A version of the workshop's model: one schedule of the one graph.
struct Version {
  std::string_view name;   // "v1"
  std::string_view title;  // "V1 - Baseline"
  std::string_view description;
  bool available;
};

std::span<const Version> versions();

// UsageError for a name that is none, or a version that does not run yet.
const Version& version_named(std::string_view name);

}  // namespace ridge
