#pragma once

#include <memory>
#include <vector>

#include "ridge/bench/options.h"
#include "ridge/graph/op_rules.h"
#include "ridge/models/vision.h"
#include "ridge/run/executor.h"

namespace ridge {

// One forward pass over the batch.
struct BenchIteration {
  double loss = 0;     // mean cross-entropy in nats
  double seconds = 0;  // of the device's clock, from the first kernel to the last
};

// A network on a device, with one batch of images in its memory.
class BenchSession {
 public:
  // Weights are drawn as the network's authors initialise them, images from N(0, 1) and targets
  // uniformly, all from options.seed. The device outlives the session. Errors are those of
  // build_vision() and Executor.
  BenchSession(const BenchOptions& options, Device& device);

  BenchIteration iterate();

  Graph& graph() { return *graph_; }
  Executor& executor() { return *executor_; }

 private:
  void feed(std::uint64_t seed);

  std::unique_ptr<Graph> graph_;
  VisionModel model_;
  std::unique_ptr<Executor> executor_;
};

// Elements of all parameters; buffers are none.
std::int64_t parameter_count(Graph& graph);
// Exact work of all nodes.
Cost total_cost(const Graph& graph);

}  // namespace ridge
