#pragma once

#include <span>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/profile/recorder.h"
#include "ridge/run/executor.h"
#include "ridge/session/optimizer.h"
#include "tests/models/tiny_llama.h"
#include "tests/session/runs.h"

namespace ridge {

// A small LLaMA with its training step, and a recording of some steps of it.
struct SmallTraining {
  static constexpr std::int64_t batch = 2, seq = 12;
  Graph graph;
  Model model;
  TrainingStep training;
  Recorder recorder;

  explicit SmallTraining(DType compute = DType::f32)
      : model(build_llama(graph, tiny_llama, batch, seq, compute)),
        training(add_training_step(model.loss, {})) {}

  // The same as options of a run.
  static RunOptions options() {
    const LlamaConfig& c = tiny_llama;
    RunOptions o = small_llama({c.vocab_size, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads,
                                c.intermediate_dim, batch, seq});
    o.resolve();
    return o;
  }

  const Recording& record(int steps) {
    CpuDevice device(2);
    Executor executor(graph, device);
    executor.initialize(1);
    const std::vector<std::int32_t> tokens(batch * seq, 3);
    executor.write(model.input, std::span<const std::int32_t>(tokens));
    executor.write(model.targets, std::span<const std::int32_t>(tokens));
    const std::vector<float> schedule = optimizer_schedule({}, 1e-3, 1);
    executor.write(training.schedule, std::span<const float>(schedule));
    executor.run();
    recorder.attach(executor);
    for (int step = 1; step <= steps; ++step) {
      recorder.begin_step(step);
      executor.run();
      recorder.end_step(0);
    }
    recorder.detach(executor);
    return recorder.recording();
  }
};

}  // namespace ridge
