#pragma once

// How our own kernels divide the gradient by the weights of a convolution: a task has a block of
// output channels, one of input channels, and a part of the results. Parts are added up at the end,
// in order; how many there are depends on the shape alone, so that the result has the same bits on
// any number of threads.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ridge/base/ceil_div.h"
#include "ridge/base/thread_pool.h"
#include "ridge/cpu/add_parts.h"
#include "ridge/cpu/onednn_conv.h"

namespace ridge {

struct ChannelRange {
  std::int64_t first, count;
};

class WeightGradTasks {
 public:
  // Of blocks of `block` channels and at most `most_parts` parts.
  WeightGradTasks(const ConvShape& shape, std::int64_t block, std::int64_t most_parts)
      : block_(block), in_(shape.x.c), out_(shape.y.c), taps_(shape.weight.pixels()) {
    constexpr std::int64_t wanted = 64;  // for as many processors
    const std::int64_t tasks_of_part = blocks(in_) * blocks(out_);
    parts_ =
        std::clamp<std::int64_t>(std::min(ceil_div(wanted, tasks_of_part), most_parts), 1, wanted);
  }

  std::int64_t parts() const { return parts_; }
  std::size_t workspace() const {
    return static_cast<std::size_t>((parts_ - 1) * weights()) * sizeof(float);
  }

  // Calls task(out, in, part, weights) for each, which writes its channels of the tensor `weights`.
  template <class Task>
  void run(ThreadPool& pool, float* result, void* workspace, const Task& task) const {
    auto* const others = static_cast<float*>(workspace);  // the parts behind the first
    const std::int64_t in_blocks = blocks(in_), out_blocks = blocks(out_);
    pool.run(parts_ * out_blocks * in_blocks, [&](std::int64_t i) {
      const std::int64_t part = i / (in_blocks * out_blocks);
      task(range(i / in_blocks % out_blocks, out_), range(i % in_blocks, in_), part,
           part == 0 ? result : others + (part - 1) * weights());
    });
    add_parts(pool, others, weights(), parts_ - 1, weights(), result);
  }

 private:
  std::int64_t blocks(std::int64_t channels) const { return ceil_div(channels, block_); }
  ChannelRange range(std::int64_t number, std::int64_t channels) const {
    const std::int64_t first = number * block_;
    return {first, std::min(block_, channels - first)};
  }
  std::int64_t weights() const { return taps_ * in_ * out_; }

  std::int64_t block_, in_, out_, taps_, parts_ = 1;
};

}  // namespace ridge
