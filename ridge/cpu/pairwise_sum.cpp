#include "ridge/ops/pairwise_sum.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr PairwiseSum::cpu(CpuPrepare& prepare) const {
  const std::int64_t n = prepare.in[1].numel();
  return make_kernel([&pool = prepare.pool, op = *this, n](const Launch& call) {
    const auto tensors = static_cast<std::uint32_t>(call.outputs.size());
    const PairwiseStep step(op, tensors, *call.in<std::int32_t>(0));
    const float* x = call.in<float>(1);
    std::vector<float*> sums;
    for (std::uint32_t t = 0; t < tensors; ++t) sums.push_back(call.out<float>(t));
    parallel_for(pool, n, elements_per_task, [&](std::int64_t begin, std::int64_t end) {
      // The tensor that is written may be one of those that are added.
      std::array<float, 512> s;
      for (std::int64_t i = begin; i < end; i += std::ssize(s)) {
        const std::int64_t count = std::min<std::int64_t>(std::ssize(s), end - i);
        std::copy_n(x + i, count, s.begin());
        const auto add = [&](const float* term) {
#pragma omp simd
          for (std::int64_t k = 0; k < count; ++k) s[static_cast<std::size_t>(k)] += term[i + k];
        };
        if (step.adds_to_chain) add(sums.back());
        for (std::uint32_t level = 0; level < step.carries; ++level) add(sums[level]);
        std::copy_n(s.begin(), count, sums[step.to] + i);
      }
    });
  });
}

}  // namespace ridge
