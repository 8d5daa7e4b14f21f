// What findings say that passes would do is what they do: of the graph that a run would have with
// them.

#include "ridge/analyze/pass_effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/cpu/device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::Contains;
using ::testing::Not;

RunOptions llama(std::string dtype) {
  RunOptions o = small_llama();
  o.dtype = std::move(dtype);
  o.resolve();
  return o;
}

std::vector<PassEffect> effects_of(const RunOptions& options) {
  CpuDevice device(1);
  Graph graph;
  build_graph(graph, options, device.target());
  return pass_effects(options, device, graph);
}

std::vector<std::string> names_of(const std::vector<PassEffect>& effects) {
  std::vector<std::string> names;
  for (const PassEffect& effect : effects) names.emplace_back(effect.pass->name);
  return names;
}

TEST(PassEffects, AreWhatEnablingThePassGives) {
  CpuDevice device(1);
  const RunOptions options = llama("fp32");
  const std::vector<PassEffect> effects = effects_of(options);
  EXPECT_THAT(names_of(effects), Contains("flash-attention"));
  for (const PassEffect& effect : effects) {
    RunOptions with = options;
    with.enable_pass = effect.enable;
    const StepPlan plan = plan_step(with, device);
    EXPECT_EQ(effect.kernels_saved(), plan_step(options, device).launches - plan.launches)
        << effect.enable;
    EXPECT_EQ(effect.after.cost.total(), plan.cost.total()) << effect.enable;
    EXPECT_EQ(effect.after.memory.peak_bytes, plan.memory.peak_bytes) << effect.enable;
  }
}

// Its name brings what it needs, which finds something by itself.
TEST(PassEffects, AreNotThoseOfThePassesThatItNeeds) {
  const std::vector<std::string> in_f32 = names_of(effects_of(llama("fp32")));
  EXPECT_THAT(in_f32, Contains("fuse-optimizer"));
  EXPECT_THAT(in_f32, Not(Contains("rounded-weights"))) << "no weight is read in 16 bits";
  EXPECT_THAT(in_f32, Not(Contains("split-weights")));
  const std::vector<std::string> in_bf16 = names_of(effects_of(llama("bf16")));
  for (const char* name : {"fuse-optimizer", "rounded-weights", "split-weights"})
    EXPECT_THAT(in_bf16, Contains(name));
}

}  // namespace
}  // namespace ridge
