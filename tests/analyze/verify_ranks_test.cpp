// The verification of what several ranks do together.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ridge/analyze/verify.h"
#include "ridge/cpu/device.h"
#include "ridge/passes/rewrite.h"
#include "tests/base/temporary_cache.h"
#include "tests/cli/program.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

RunOptions tiny_options(std::int64_t ranks) {
  RunOptions o = small_llama({.vocab_size = 13, .hidden_dim = 24, .batch_size = 4, .seq_len = 11});
  o.learning_rate = 1e-3;
  return shared_by_ranks(o, {.ranks = ranks});
}

Verdict verdict(const RunOptions& options, const std::string& schedule, const std::string& dtype,
                const Sabotage& sabotage = {}) {
  const TemporaryCache cache;
  CpuDevice device(2);
  const Reference reference(options, device);
  const Baseline baseline = baseline_of(reference, dtype, device, 3);
  return verify(reference, schedule_named(schedule), dtype, device, baseline, sabotage);
}

TEST(VerifyRanks, IsGreenWhereTheyDoWhatOneDoes) {
  for (const std::int64_t ranks : {2, 3, 8})
    for (const char* schedule : {"v1", "v1 + bucket-gradients", "v1 + rounded-gradients", "v3",
                                 "v4", "v4 + recompute block"})
      for (const char* dtype : {"fp32", "bf16"})
        EXPECT_EQ(verdict(tiny_options(ranks), schedule, dtype).failure, "")
            << schedule << " in " << dtype << " on " << ranks;
}

// Takes the n-th reduction out of the graph, or makes it a sum.
Sabotage without_reduction(std::size_t n) {
  return [n](Graph& graph) {
    Rewriter rw(graph);
    std::size_t found = 0;
    for (NodeId node = 0; node < rw.nodes().size(); ++node)
      if (rw.op<AllReduce>(node) && found++ == n)
        rw.replace({node}, node, [&rw, node] {
          std::vector<Value> same;
          for (const Value& x : rw.values(rw.node(node).inputs)) same.push_back(scale(x, 1.0f));
          return Rewriter::each(rw.node(node).outputs, same);
        });
    rw.commit();
  };
}

Sabotage with_sums() {
  return [](Graph& graph) {
    Rewriter rw(graph);
    for (NodeId node = 0; node < rw.nodes().size(); ++node)
      if (const auto* op = rw.op<AllReduce>(node))
        rw.replace({node}, node, [&rw, node, ranks = op->ranks] {
          return Rewriter::each(rw.node(node).outputs, all_reduce(rw.values(rw.node(node).inputs),
                                                                  {.ranks = ranks, .mean = false}));
        });
    rw.commit();
  };
}

TEST(VerifyRanks, IsRedWhereOneGradientIsNotReduced) {
  for (const std::size_t n : {0, 1, 5})
    EXPECT_NE(verdict(tiny_options(2), "v1", "fp32", without_reduction(n)).failure, "") << n;
}

TEST(VerifyRanks, IsRedWhereGradientsAreAddedUp) {
  EXPECT_NE(verdict(tiny_options(2), "v1", "fp32", with_sums()).failure, "");
}

TEST(VerifyRanks, IsOfWholeBatches) {
  EXPECT_EQ(tiny_options(3).batch_size, 6);
  EXPECT_EQ(tiny_options(4).batch_size, 4);
  EXPECT_FALSE(normalizes_by_batch(tiny_options(2)));
  EXPECT_TRUE(normalizes_by_batch(network_options("resnet18", Use::training)));
  EXPECT_FALSE(normalizes_by_batch(network_options("resnet18", Use::inference)));
}

TEST(VerifyRanks, AreAskedForByAFlag) {
  const Sandbox sandbox;
  const auto verified = [&](const Words& more) {
    Words words{"ridge",        "verify", "--device", "cpu",  "--ranks",       "2",
                "--image-size", "64",     "--dtypes", "fp32", "--curve-steps", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return output_of(sandbox.run(words));
  };
  EXPECT_THAT(verified({"--network", "squeezenet1_1", "--schedules", "v1,v4"}),
              HasSubstr("All 2 runs are right."));
  EXPECT_THAT(verified({"--network", "resnet18", "--sync-batch-norm", "--schedules", "none"}),
              HasSubstr("All 1 runs are right."));
  EXPECT_THAT(complaint_of(sandbox.run({"ridge", "verify", "--device", "cpu", "--ranks", "2",
                                        "--network", "resnet18"}),
                           2),
              HasSubstr("resnet18 normalizes by the statistics of a batch"));
}

}  // namespace
}  // namespace ridge
