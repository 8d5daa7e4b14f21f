#pragma once

#include <span>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/models/llama/llama.h"
#include "ridge/profile/recorder.h"
#include "ridge/run/executor.h"
#include "ridge/session/optimizer.h"
#include "ridge/session/options.h"

namespace ridge {

// A small LLaMA with its training step, and a recording of some steps of it.
struct SmallTraining {
  static constexpr std::int64_t batch = 2, seq = 12;
  static constexpr LlamaConfig config{.vocab_size = 20,
                                      .hidden_dim = 24,
                                      .n_layers = 2,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .intermediate_dim = 40};
  Graph graph;
  Model model;
  TrainingStep training;
  Recorder recorder;

  explicit SmallTraining(DType compute = DType::f32)
      : model(build_llama(graph, config, batch, seq, compute)),
        training(add_training_step(model.loss, {})) {}

  // The same as options of a run.
  static RunOptions options() {
    RunOptions o;
    o.vocab_size = config.vocab_size;
    o.hidden_dim = config.hidden_dim;
    o.n_layers = config.n_layers;
    o.n_heads = config.n_heads;
    o.n_kv_heads = config.n_kv_heads;
    o.intermediate_dim = config.intermediate_dim;
    o.batch_size = batch;
    o.seq_len = seq;
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
