#pragma once

#include <functional>
#include <optional>

#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// Lets what a library enqueues begin only when all before it has ended.
//
// Kernels of ours let the next one take its place while they are at work, since whatever is
// launched so waits for them first. Libraries launch some of theirs so too, and not all of those
// wait before they read: convolutions that cuDNN generates load their weights at once, as if nobody
// could have written them a moment ago.
class OrderedStart {
 public:
  // Calls enqueue(stream), and at the first call outside of a capture also to see how the library
  // launches: into a capture of its own, which is never run.
  void run(Stream stream, const std::function<void(Stream)>& enqueue);

 private:
  std::optional<bool> begins_early_;
};

}  // namespace ridge::gpu
