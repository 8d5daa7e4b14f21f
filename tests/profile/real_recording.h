#pragma once

#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/profile/recorder.h"
#include "ridge/run/executor.h"
#include "ridge/session/optimizer.h"
#include "tests/models/tiny_llama.h"

namespace ridge {

// A small model, trained for a few steps with a recorder attached.
struct RealRecording {
  Graph graph;
  Model model;
  TrainingStep training;
  CpuDevice device{2};
  Executor executor;
  Recorder recorder;
  std::int64_t accumulation;
  std::size_t allocations_before = 0;

  explicit RealRecording(std::int64_t batches_a_step = 1, int steps = 3,
                         RecorderOptions options = {})
      : model(build_llama(graph, tiny_llama, 2, 12)),
        training(
            add_training_step(model.loss, AdamWConfig{.max_grad_norm = 1.0}, {batches_a_step})),
        executor(graph, device),
        recorder(options),
        accumulation(batches_a_step) {
    executor.initialize(1);
    std::vector<std::int32_t> tokens(24, 3), targets(24, 5);
    executor.write(model.input, std::span<const std::int32_t>(tokens));
    executor.write(model.targets, std::span<const std::int32_t>(targets));
    executor.write(training.schedule, std::span<const float>(optimizer_schedule({}, 1e-3, 1)));
    executor.run();  // kept values are alive from now on
    executor.reset_peak_memory();
    allocations_before = executor.memory().allocations;
    recorder.attach(executor);
    for (int step = 5; step < 5 + steps; ++step) {
      recorder.begin_step(step);
      for (std::int64_t i = 0; i < accumulation; ++i) {
        executor.run(Phase::forward);
        executor.run(Phase::backward);
      }
      executor.run(Phase::optimizer);
      recorder.end_step(1.0);
    }
    recorder.detach(executor);
  }

  const Recording& recording() const { return recorder.recording(); }
};

}  // namespace ridge
