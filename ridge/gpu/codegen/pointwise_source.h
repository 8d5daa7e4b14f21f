#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/ops/pointwise.h"

namespace ridge::gpu {

// A kernel that computes one chain and nothing else, in the dialect of runtime_rtc.h. Its
// parameters are: unsigned long long, the number of elements of a result; bool, whether it may read
// and write in packs; the operands; the results. It depends on extents only where operands
// broadcast.
struct PointwiseSource {
  std::string name;  // "pointwise_add_gelu_5f3c29d1": by its operators, and a digest of the code
  std::string code;
  int threads = 0;
  std::int64_t block_elements = 0;     // that a block computes
  std::vector<std::size_t> alignment;  // in bytes, of operands, then results, for packs
};

// Types and shape are those of the operator's operands and results.
PointwiseSource pointwise_source(const Pointwise& op, Types in, const Shape& shape);

}  // namespace ridge::gpu
