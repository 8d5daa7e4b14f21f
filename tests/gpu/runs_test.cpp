// Training runs on the card: the same bits again with --deterministic, and the CPU's losses.

#include <fmt/format.h>

#include <cmath>

#include "ridge/analyze/verify.h"
#include "ridge/cpu/device.h"
#include "ridge/train/trainer.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/train/runs.h"

namespace ridge {
namespace {

TrainOptions small_options() {
  TrainOptions o;
  o.vocab_size = 120;
  o.hidden_dim = 128;
  o.n_layers = 2;
  o.n_heads = 2;
  o.n_kv_heads = 1;
  o.intermediate_dim = 192;
  o.batch_size = 4;
  o.seq_len = 65;
  o.num_steps = 10;
  o.learning_rate = 1e-3;
  o.max_grad_norm = 0.5;
  return o;
}

class GpuRuns : public testing::GpuTest {
 protected:
  // The losses of some steps and the bytes of what they leave behind.
  struct Outcome {
    std::vector<double> losses;
    std::string checkpoint;
  };
  Outcome run(const TrainOptions& options, int steps) {
    Trainer trainer(options, device());
    Outcome outcome{.losses = losses_of(trainer, steps)};
    trainer.save(cache_.path() / "checkpoint");
    outcome.checkpoint = content(cache_.path() / "checkpoint");
    return outcome;
  }
  void expect_same_bits(TrainOptions options, int steps) {
    options.resolve();
    SCOPED_TRACE(fmt::format("{} {}: {}", options.version, options.dtype, describe(options)));
    const Outcome first = run(options, steps), second = run(options, steps);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_TRUE(first.checkpoint == second.checkpoint);
  }

  TemporaryCache cache_;  // of the tuner: both runs make the same choices
};

TEST_F(GpuRuns, RepeatTheirBitsWithDeterministic) {
  for (const char* version : {"v1", "v2", "v3", "v4"})
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      TrainOptions options = small_options();
      options.version = version;
      options.dtype = dtype;
      expect_same_bits(options, 4);
      options.max_grad_norm = 0;  // without it the optimizer may begin before the backward ends
      options.gradient_accumulation_steps = 2;
      expect_same_bits(options, 3);
    }
}

// Where keys are many, gradients of queries are else summed in the order in which blocks end.
TEST_F(GpuRuns, RepeatTheirBitsInLongSequences) {
  for (const char* version : {"v3", "v4"}) {
    TrainOptions options = small_options();
    options.version = version;
    options.dtype = "bf16";
    options.n_layers = options.batch_size = 1;
    options.seq_len = 4096;
    expect_same_bits(options, 3);
  }
}

TEST_F(GpuRuns, HaveTheLossesOfTheCpu) {
  CpuDevice cpu;
  // Three to ten times the differences seen on an H100.
  for (const auto& [dtype, limit] : {std::pair{"fp32", 5e-6}, {"tf32", 1e-3}, {"bf16", 3e-3}})
    for (const char* version : {"v1", "v4"}) {
      TrainOptions options = small_options();
      options.version = version;
      options.dtype = dtype;
      options.resolve();
      const std::vector<double> on_gpu = loss_curve(options, device(), options.num_steps);
      const std::vector<double> on_cpu = loss_curve(options, cpu, options.num_steps);
      double most = 0;
      for (std::size_t i = 0; i < on_cpu.size(); ++i)
        most = std::max(most, std::abs(on_gpu[i] - on_cpu[i]));
      RecordProperty(fmt::format("{} {}", version, dtype), fmt::format("{:.1e}", most));
      fmt::print("{} {}: losses differ by {:.1e} at most in {} steps\n", version, dtype, most,
                 on_cpu.size());
      EXPECT_LE(most, limit) << version << " " << dtype;
      EXPECT_NE(on_gpu.back(), on_gpu.front());
    }
}

}  // namespace
}  // namespace ridge
