// What data-parallel makes of a graph. That the ranks then compute what one does,
// tests/session/ranks_test.cpp holds.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/ops/op.h"
#include "ridge/session/session.h"
#include "tests/base/message_of.h"
#include "tests/passes/built_run.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using Built = BuiltRun;

RunOptions llama(std::int64_t ranks, const std::string& version = "v1",
                 std::int64_t accumulation = 1) {
  RunOptions o = small_llama({.batch_size = 12});
  o.version = version;
  o.ranks = ranks;
  o.gradient_accumulation_steps = accumulation;
  o.resolve();
  return o;
}

TEST(DataParallel, AddsNothingForOneRank) {
  for (const char* version : {"v1", "v2", "v3", "v4"}) {
    EXPECT_TRUE(Built(llama(1, version)).nodes_of<AllReduce>().empty());
    EXPECT_FALSE(llama(1, version).schedule({}).has("data-parallel"));
  }
}

// Each element of each gradient once, and the loss.
TEST(DataParallel, AveragesTheLossAndAllGradientsOnce) {
  for (const char* version : {"v1", "v2", "v3", "v4"})
    for (const std::int64_t accumulation : {1, 3}) {
      const Built one(llama(1, version, accumulation)), of_two(llama(2, version, accumulation));
      EXPECT_TRUE(llama(2, version).schedule({}).has("data-parallel"));
      std::int64_t elements = 0;
      std::set<ValueId> operands;
      for (const Node* node : of_two.nodes_of<AllReduce>()) {
        EXPECT_EQ(std::get<AllReduce>(node->op->variant()), (AllReduce{.ranks = 2, .mean = true}));
        for (const ValueId in : node->inputs) {
          EXPECT_EQ(of_two.graph.info(in).type.dtype, DType::f32);
          EXPECT_TRUE(operands.insert(in).second);
          elements += of_two.graph.info(in).type.numel();
        }
      }
      EXPECT_EQ(elements, one.built.parameters + 1) << version << ", " << accumulation;
    }
}

// A gradient is reduced as soon as it is there; a sum over several batches when it is complete.
TEST(DataParallel, ReducesGradientsInTheirPhase) {
  const auto phases = [](const Built& built) {
    std::multiset<std::string_view> names;
    for (const Node* node : built.nodes_of<AllReduce>()) names.insert(name_of(node->phase));
    return names;
  };
  const auto at_once = phases(Built(llama(2)));
  EXPECT_EQ(at_once.count("forward"), 1u);  // the loss
  EXPECT_GT(at_once.count("backward"), 5u);
  EXPECT_EQ(at_once.count("optimizer"), 0u);
  const auto summed = phases(Built(llama(2, "v1", 3)));
  EXPECT_EQ(summed.count("forward"), 1u);
  EXPECT_EQ(summed.count("backward"), 0u);
  EXPECT_EQ(summed.count("optimizer"), at_once.count("backward"));
}

// The small ones of a backward pass go together; one that is large goes alone.
// They count as gradients, as those of one rank do.
TEST(DataParallel, LeavesGradientsWhatTheyAre) {
  const auto gradients = [](std::int64_t ranks) {
    const Built built(llama(ranks, "v2"));
    return built.memory().at_most.gradients;
  };
  EXPECT_GT(gradients(1), 0u);
  EXPECT_EQ(gradients(2), gradients(1));
}

// Each rank does what one alone would, and what they have then is added once.
TEST(DataParallel, AddsPairwiseSumsBeforeTheUpdate) {
  RunOptions o = llama(2, "v1");
  o.micro_batches = 4;
  o.resolve();
  const Built built(o, 1);
  EXPECT_EQ(built.nodes_of<AllReduce>().size(), built.built.training.parameters.size());
  for (const Node* node : built.nodes_of<AllReduce>()) {
    EXPECT_EQ(node->phase, Phase::optimizer);
    EXPECT_FALSE(std::get<AllReduce>(node->op->variant()).mean);
  }
  EXPECT_EQ(built.nodes_of<PairwiseSum>().size(), built.built.training.parameters.size());
}

TEST(DataParallel, RefusesPairwiseSumsWithRunningStatistics) {
  RunOptions o = network_options("resnet18", Use::training);
  o.batch_size = 8, o.micro_batches = 4;
  o.resolve();
  Built alone(o);
  o.ranks = 2;
  EXPECT_EQ(message_of<UsageError>([&] { Built shared(o); }),
            "the running statistics of batch norms are not the same on any number of ranks: use "
            "--micro-batches 1 with --ranks 2");
}

TEST(BucketGradients, SendsSmallOnesTogether) {
  const auto sizes = [](const std::string& version, std::size_t bucket_bytes,
                        std::size_t buckets = 1, std::size_t most_bucket_bytes = 0) {
    Target target;
    target.bucket_bytes = bucket_bytes;
    target.buckets = buckets, target.most_bucket_bytes = most_bucket_bytes;
    const RunOptions o = llama(2, version);
    Graph graph;
    build_graph(graph, workload_of(o), o.schedule(target), {});
    std::vector<std::size_t> bytes;
    std::int64_t tensors = 0;
    for (const Node& node : graph.nodes()) {
      if (!std::get_if<AllReduce>(&node.op->variant()) || node.phase == Phase::forward) continue;
      bytes.push_back(0);
      for (const ValueId in : node.inputs) bytes.back() += graph.info(in).type.bytes(), ++tensors;
    }
    EXPECT_GT(tensors, 5);
    return bytes;
  };
  const std::size_t none = 0, all = std::size_t{1} << 30, some = 16384;
  const std::vector<std::size_t> apart = sizes("v1", all);  // which has no such pass
  EXPECT_EQ(sizes("v2", all).size(), 1u);
  EXPECT_EQ(sizes("v4", all).size(), 1u);
  EXPECT_GT(sizes("v2", none).size(), 5u);
  const std::vector<std::size_t> mixed = sizes("v2", some);
  EXPECT_LT(mixed.size(), sizes("v2", none).size());
  EXPECT_GT(mixed.size(), 1u);
  // A part of all gradients, where that is more.
  EXPECT_EQ(sizes("v2", none, 1, all).size(), 1u);
  EXPECT_GE(sizes("v2", none, 4, all).size(), 4u);
  EXPECT_LT(sizes("v2", none, 4, all).size(), sizes("v2", none).size());
  // The last are the smallest, and none is longer than it may be.
  const std::vector<std::size_t> several = sizes("v2", none, 4, some);
  EXPECT_LT(several.back(), mixed.back() / 2);
  EXPECT_EQ(several.front(), mixed.front());
  EXPECT_GT(apart.size(), 5u);
}

// All else is what one rank does of its part.
TEST(DataParallel, LeavesTheRestAlone) {
  for (const char* version : {"v1", "v4"}) {
    RunOptions part = llama(1, version);
    part.batch_size = 4;
    const Built alone(part), of_three(llama(3, version));
    std::vector<std::string> names, of_three_names;
    for (const Node& node : alone.graph.nodes()) names.emplace_back(name_of(*node.op));
    for (const Node& node : of_three.graph.nodes())
      if (name_of(*node.op) != AllReduce::name) of_three_names.emplace_back(name_of(*node.op));
    EXPECT_EQ(names, of_three_names) << version;
  }
}

// Samples are dropped as they would be in the whole batch.
TEST(DataParallel, NumbersWhatIsDroppedByRank) {
  RunOptions o = default_options("alexnet");
  o.image_size = 64;
  o.batch_size = 6;
  o.ranks = 3;
  o.resolve();
  const auto firsts = [&](std::int64_t rank) {
    std::vector<std::int64_t> numbers;
    const Built built(o, rank);
    for (const Node* node : built.nodes_of<Dropout>()) {
      const auto& op = std::get<Dropout>(node->op->variant());
      const std::int64_t blocks = built.graph.info(node->inputs[0]).type.numel() / op.block;
      EXPECT_EQ(op.first % blocks, 0);
      numbers.push_back(op.first / blocks);
    }
    return numbers;
  };
  EXPECT_FALSE(firsts(0).empty());
  for (const std::int64_t rank : {0, 1, 2})
    for (const std::int64_t number : firsts(rank)) EXPECT_EQ(number, rank);
}

// Running statistics stay the same on all ranks.
TEST(DataParallel, AveragesRunningStatistics) {
  RunOptions o = default_options("resnet18");
  o.image_size = 64;
  o.batch_size = 4;
  o.ranks = 2;
  o.resolve();
  const Built built(o);
  std::size_t buffers = 0, moved = 0;
  for (ValueId v = 0; v < built.graph.value_count(); ++v)
    buffers += built.graph.info(v).role == Role::buffer && built.graph.info(v).persistent;
  for (const Node* node : built.nodes_of<AllReduce>())
    if (node->phase == Phase::optimizer) moved += node->inputs.size();
  EXPECT_GT(buffers, 0u);
  EXPECT_EQ(moved, buffers);
}

}  // namespace
}  // namespace ridge
