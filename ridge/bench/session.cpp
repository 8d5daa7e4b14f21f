#include "ridge/bench/session.h"

#include "ridge/base/random.h"
#include "ridge/graph/op_rules.h"

namespace ridge {

BenchSession::BenchSession(const BenchOptions& options, Device& device)
    : graph_(std::make_unique<Graph>()) {
  model_ = build_vision(*graph_, options.network,
                        {.batch_size = options.batch_size,
                         .image_size = options.image_size,
                         .compute = options.compute_dtype()});
  Execution execution;
  execution.kernels.tf32 = options.dtype == "tf32";
  executor_ = std::make_unique<Executor>(*graph_, device, execution);
  executor_->initialize(static_cast<std::uint64_t>(options.seed));
  feed(static_cast<std::uint64_t>(options.seed));
}

void BenchSession::feed(std::uint64_t seed) {
  std::vector<float> images(static_cast<std::size_t>(model_.images.type().numel()));
  fill_normal(images, 1.0f, seed, stream_of("images"));
  executor_->write(model_.images, std::span<const float>(images));
  const auto classes = static_cast<std::uint32_t>(model_.logits.shape()[1]);
  std::vector<std::int32_t> targets(static_cast<std::size_t>(model_.targets.type().numel()));
  const std::uint64_t stream = stream_of("targets");
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<std::int32_t>(uniform_integer(classes, seed, stream, i));
  executor_->write(model_.targets, std::span<const std::int32_t>(targets));
}

BenchIteration BenchSession::iterate() {
  Device& device = executor_->device();
  device.mark(0);
  executor_->run(Phase::forward);
  device.mark(1);
  device.wait(1);
  const double seconds = device.seconds_between(0, 1);
  return {.loss = executor_->read_scalar(model_.loss), .seconds = seconds};
}

std::int64_t parameter_count(Graph& graph) {
  std::int64_t count = 0;
  for (const Value& parameter : graph.parameters()) count += parameter.type().numel();
  return count;
}

Cost total_cost(const Graph& graph) {
  Cost sum;
  for (const Node& node : graph.nodes()) sum += cost(graph, node);
  return sum;
}

}  // namespace ridge
