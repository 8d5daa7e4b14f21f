#pragma once

#include <cstdint>

#include "ridge/bench/options.h"

namespace ridge {

// What is known of a network without running it, whatever its schedule makes of it.
struct NetworkFacts {
  std::int64_t parameters = 0;  // elements
  std::int64_t macs = 0;        // of one image, forward
};
NetworkFacts facts_of(const BenchOptions& options);

}  // namespace ridge
