#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "ridge/graph/graph.h"
#include "ridge/passes/int8.h"
#include "ridge/run/executor.h"

namespace ridge {

inline constexpr std::string_view int8_dtype = "int8";

// Which layers a device computes in integers. A processor's library takes any; the GPU's copy
// engine takes pixels of a multiple of 16 bytes, and our kernels no groups.
Int8Rules int8_rules(const Device& device);

// What such a network computes in besides: the narrowest in which the device computes fast.
DType beside_int8(const Device& device);

// The largest magnitude of each of these values in a forward pass over what `feed` writes, and
// weights drawn from the seed. Not a percentile: these numbers do not depend on how many were seen,
// and no result that is met again is cut off.
Int8Ranges calibrate(const Graph& graph, std::span<const ValueId> values, Device& device,
                     std::uint64_t seed, const std::function<void(Executor&)>& feed);

// Calibrates a network and lets its layers compute in integers (passes/int8.h).
void quantize(Graph& graph, Device& device, std::uint64_t seed,
              const std::function<void(Executor&)>& feed);

}  // namespace ridge
