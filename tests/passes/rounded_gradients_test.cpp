// Which gradients ranks send in 16 bits. That the ranks then compute what one does,
// tests/session/ranks_test.cpp and verify hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ridge/ops/op.h"
#include "ridge/session/session.h"
#include "tests/passes/built_run.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

struct Sent {
  std::int64_t in_f32 = 0, in_16_bits = 0;  // elements
  bool operator==(const Sent&) const = default;
};

RunOptions on_two(const std::string& version, const std::string& dtype) {
  RunOptions o = small_llama({.batch_size = 12});
  o.version = version;
  o.dtype = dtype;
  o.ranks = 2;
  o.enable_pass = "rounded-gradients";  // which comes by itself on a GPU alone
  return o;
}

template <class Collective>
Sent sent_by(const BuiltRun& run) {
  Sent sent;
  for (const Node* node : run.nodes_of<Collective>())
    for (const ValueId in : node->inputs) {
      const TensorType& type = run.graph.info(in).type;
      (type.dtype == DType::f32 ? sent.in_f32 : sent.in_16_bits) += type.numel();
    }
  return sent;
}

Sent all_reduced(RunOptions o) {
  o.resolve();
  const BuiltRun run(o);
  return sent_by<AllReduce>(run);
}

// The weights of linear layers; the rest, and the loss, are sums in f32.
TEST(RoundedGradients, SendsThoseOfProductsInHalfTheBytes) {
  for (const char* version : {"v2", "v3", "v4"}) {
    RunOptions o = on_two(version, "bf16");
    o.resolve();
    const BuiltRun run(o);
    std::int64_t products = 0, others = 1;
    for (const Value parameter : run.built.training.parameters)
      (parameter.shape().rank() == 2 && !run.graph.info(parameter.id).name.starts_with("embed")
           ? products
           : others) += parameter.type().numel();
    EXPECT_EQ(sent_by<AllReduce>(run), (Sent{.in_f32 = others, .in_16_bits = products})) << version;
  }
}

TEST(RoundedGradients, LeavesOtherPrecisionsAndSumsInF32) {
  for (const char* dtype : {"fp32", "fp16"})
    EXPECT_EQ(all_reduced(on_two("v4", dtype)).in_16_bits, 0);
  RunOptions summed = on_two("v4", "bf16");
  summed.gradient_accumulation_steps = 3;
  EXPECT_EQ(all_reduced(summed).in_16_bits, 0);
}

// The optimizer reads them as they come: nothing converts them.
TEST(RoundedGradients, AreReadByTheOptimizerAsTheyCome) {
  RunOptions o = on_two("v4", "bf16");
  o.max_grad_norm = 1.0;
  o.resolve();
  const BuiltRun run(o);
  std::int64_t rounded = 0;
  for (const auto& nodes : {run.nodes_of<AdamWAll>(), run.nodes_of<GlobalNorm>()}) {
    ASSERT_EQ(nodes.size(), 1u);
    for (const ValueId in : nodes[0]->inputs)
      rounded +=
          run.graph.info(in).type.dtype == DType::bf16 && run.graph.info(in).role == Role::gradient;
  }
  EXPECT_GE(rounded, 2 * 5);
  for (const Node* node : run.nodes_of<Cast>())
    EXPECT_NE(run.graph.info(node->inputs[0]).role, Role::gradient);
}

// A part of each is sent and kept, in 16 bits too.
TEST(RoundedGradients, AreShared) {
  RunOptions o = on_two("v4", "bf16");
  const Sent whole = all_reduced(o);
  o.zero = 2;
  o.resolve();
  const BuiltRun run(o);
  EXPECT_EQ(sent_by<ReduceScatter>(run).in_16_bits, whole.in_16_bits);
}

// Messages of one dtype go together.
TEST(RoundedGradients, DoNotShareABucketWithOthers) {
  RunOptions o = on_two("v4", "bf16");
  o.resolve();
  const BuiltRun run(o);
  for (const Node* node : run.nodes_of<AllReduce>())
    for (const ValueId in : node->inputs)
      EXPECT_EQ(run.graph.info(in).type.dtype, run.graph.info(node->inputs[0]).type.dtype);
}

}  // namespace
}  // namespace ridge
