// Whole steps of training in the machine: the session of `ridge train`, with the losses, logits and
// gradients of the CPU within what `ridge verify` allows.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "ridge/analyze/verify.h"
#include "ridge/cpu/device.h"
#include "ridge/gpu/device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

// Trains in each version as long as v1 does on the CPU, whose losses are those to come to. Loss,
// logits and gradients of the first step are compared with the double-precision reference.
void expect_verified(RunOptions options, const std::string& dtype,
                     std::initializer_list<const char*> versions, std::int64_t steps) {
  options.resolve();
  CpuDevice cpu;
  const auto machine = open_gpu({.deterministic = true});
  const Reference reference(options, cpu);
  const Baseline baseline = baseline_of(reference, dtype, cpu, steps);
  EXPECT_EQ(baseline.curve.size(), static_cast<std::size_t>(steps));
  for (const char* version : versions) {
    const auto begin = std::chrono::steady_clock::now();
    const Verdict verdict = verify(reference, schedule_named(version), dtype, *machine, baseline);
    fmt::print(
        "{} {} {}: {} steps in {:.0f} s; loss off by {:.1e}, logits {:.1e}, gradients {:.1e}, "
        "losses of all steps {:.1e}\n",
        options.network, version, dtype, verdict.curve_steps,
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
        verdict.loss_error, verdict.logits_error, verdict.gradient_error, verdict.curve_error);
    EXPECT_EQ(verdict.failure, "") << version << " " << dtype;
    EXPECT_EQ(verdict.curve_steps, steps) << version << " " << dtype;
  }
}

RunOptions tiny_llama() {
  RunOptions options = small_llama(one_layer);
  options.n_kv_heads = 1;
  options.learning_rate = 1e-3;
  options.max_grad_norm = 1;
  return options;
}

TEST(SimtTraining, TwentyStepsOfALlamaAreThoseOfTheCpu) {
  for (const char* dtype : {"fp32", "bf16"})
    expect_verified(tiny_llama(), dtype, {"v1", "v2", "v3"}, 20);
}

TEST(SimtTraining, AStepOfResnet18IsThatOfTheCpu) {
  expect_verified(small_options("resnet18"), "fp32", {"v3"}, 1);
}

}  // namespace
}  // namespace ridge
