// That parameters are updated as soon as they can be, that gradients need less memory for it, and
// that a model trains to the same bits.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/passes/passes.h"
#include "ridge/plan/memory.h"
#include "ridge/session/gradient_reader.h"
#include "tests/passes/aligned_llama.h"

namespace ridge {
namespace {

using Change = std::function<void(RunOptions&)>;

const Change as_it_is = [](RunOptions&) {};

// Six layers of 98 KB of f32 each.
RunOptions deep_llama(const std::string& dtype, const Change& change = as_it_is) {
  RunOptions o = testing::aligned_llama("v4", dtype, 6);
  o.enable_pass = "early-updates";
  change(o);
  o.resolve();
  return o;
}

struct Built {
  Graph graph;
  Lifetimes life;

  explicit Built(const RunOptions& options, std::size_t least_bytes = 64 << 10) {
    build_graph(graph, options, {.least_update_bytes = least_bytes});
    life = lifetimes_of(graph);
  }

  std::vector<NodeId> updates() const {
    std::vector<NodeId> found;
    for (NodeId n = 0; n < graph.nodes().size(); ++n)
      if (std::holds_alternative<AdamWAll>(graph.nodes()[n].op->variant()) ||
          std::holds_alternative<SgdAll>(graph.nodes()[n].op->variant()))
        found.push_back(n);
    return found;
  }
  // The storages that an update writes.
  std::vector<ValueId> updated_by(NodeId n) const {
    std::vector<ValueId> storages;
    for (const ValueId out : graph.nodes()[n].outputs) storages.push_back(life.storage[out]);
    return storages;
  }
  bool touches(NodeId n, ValueId storage) const {
    const Node& node = graph.nodes()[n];
    const auto is_it = [&](ValueId v) { return life.storage[v] == storage; };
    return std::ranges::any_of(node.inputs, is_it) || std::ranges::any_of(node.outputs, is_it);
  }
  NodeId end_of_backward() const {
    NodeId end = 0;
    for (NodeId n = 0; n < graph.nodes().size(); ++n)
      if (graph.nodes()[n].phase == Phase::backward) end = n + 1;
    return end;
  }
  std::size_t peak() const {
    return plan_memory(graph, life, std::vector<std::size_t>(graph.nodes().size(), 0)).peak_bytes;
  }
};

const std::map<std::string, Change> variants{
    {"as it is", as_it_is},
    {"tied", [](RunOptions& o) { o.tie_embeddings = true; }},
    {"recomputed", [](RunOptions& o) { o.recompute = "block"; }},
    {"without split weights", [](RunOptions& o) { o.disable_pass = "split-weights"; }},
    {"without rounded weights", [](RunOptions& o) { o.disable_pass = "rounded-weights"; }},
    {"by SGD", [](RunOptions& o) { o.optimizer = "sgd", o.momentum = 0.9; }},
};

TEST(EarlyUpdates, ComeOnceAndBehindAllThatReadsAParameter) {
  for (const std::string dtype : {"fp32", "bf16"})
    for (const auto& [name, change] : variants) {
      SCOPED_TRACE(dtype + ", " + name);
      const Built built(deep_llama(dtype, change));
      const std::vector<NodeId> updates = built.updates();
      ASSERT_GE(updates.size(), 4u);
      EXPECT_LT(updates[updates.size() - 2], built.end_of_backward()) << "all but the last";
      std::set<ValueId> seen;
      for (const NodeId n : updates) {
        EXPECT_EQ(built.graph.nodes()[n].phase, Phase::optimizer);
        for (const ValueId storage : built.updated_by(n)) {
          EXPECT_TRUE(seen.insert(storage).second) << "updated twice";
          for (NodeId later = n + 1; later < built.graph.nodes().size(); ++later)
            EXPECT_FALSE(built.touches(later, storage)) << "read behind its update";
        }
      }
      RunOptions without = deep_llama(dtype, change);
      without.enable_pass.clear();
      const Built other(without);
      ASSERT_EQ(other.updates().size(), 1u);
      EXPECT_EQ(seen.size(), other.updated_by(other.updates()[0]).size());
    }
}

// A gradient is gone when its parameter was updated, also where others read it in parts.
TEST(EarlyUpdates, FreeGradients) {
  for (const std::string dtype : {"fp32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const RunOptions options = deep_llama(dtype);
    const Built early(options), late(options, std::size_t{1} << 30);
    ASSERT_EQ(late.updates().size(), 1u);
    std::size_t gradients = 0;
    for (const ValueId in : late.graph.nodes()[late.updates()[0]].inputs)
      if (!late.graph.info(in).persistent && late.life.storage[in] == in)
        gradients += late.life.bytes[in];
    EXPECT_LT(early.peak() + gradients / 3, late.peak());
    for (const NodeId n : early.updates())
      for (const ValueId in : early.graph.nodes()[n].inputs)
        if (const ValueId storage = early.life.storage[in]; !early.life.permanent[storage]) {
          EXPECT_TRUE(std::ranges::find(early.life.dead[n], storage) != early.life.dead[n].end());
        }
  }
}

// Each kernel updates by so many bytes of gradients, the last one too.
TEST(EarlyUpdates, AreOfEnoughBytes) {
  for (const std::size_t least : {16u << 10, 64u << 10, 200u << 10}) {
    const Built built(deep_llama("fp32"), least);
    const std::vector<NodeId> updates = built.updates();
    EXPECT_GT(updates.size(), 1u);
    for (const NodeId n : updates) {
      std::size_t bytes = 0;
      const Node& node = built.graph.nodes()[n];
      for (std::size_t i = 2; i < node.inputs.size(); i += AdamWAll::operands_each)
        bytes += built.graph.info(node.inputs[i]).type.bytes();
      EXPECT_GE(bytes, least) << n;
    }
  }
}

// With many tokens the peak is where the logits are, before there are gradients.
TEST(EarlyUpdates, AreOneWhereThePeakWouldStay) {
  std::size_t together = 0, apart = 0;
  for (const std::string dtype : {"fp32", "bf16"})
    for (std::int64_t batch = 1; batch <= 256; batch *= 2) {
      SCOPED_TRACE(fmt::format("{}, {}", dtype, batch));
      RunOptions options = deep_llama(dtype);
      options.batch_size = batch;
      options.resolve();
      const Built early(options), late(options, std::size_t{1} << 30);
      if (early.updates().size() > 1) {
        ++apart;
        EXPECT_LE(static_cast<double>(early.peak()), 0.99 * static_cast<double>(late.peak()));
      } else {
        ++together;
        EXPECT_EQ(early.peak(), late.peak());
      }
    }
  EXPECT_GT(together, 4u);
  EXPECT_GT(apart, 4u);
}

TEST(EarlyUpdates, WaitForAllGradientsWhereTheyMust) {
  const std::map<std::string, Change> waiting{
      {"clipped", [](RunOptions& o) { o.max_grad_norm = 1; }},
      {"scaled", [](RunOptions& o) { o.dtype = "fp16"; }},
      {"accumulated", [](RunOptions& o) { o.gradient_accumulation_steps = 2; }},
      {"of ranks", [](RunOptions& o) { o.ranks = 2; }},
      {"of micro-batches", [](RunOptions& o) { o.deterministic = true, o.micro_batches = 2; }},
  };
  for (const auto& [name, change] : waiting) {
    const Built built(deep_llama("bf16", change), 1);
    ASSERT_EQ(built.updates().size(), 1u) << name;
    EXPECT_GE(built.updates()[0], built.end_of_backward()) << name;
  }
}

// What a few steps give.
struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients, weights;  // of the first step, and after the last

  explicit Trained(const RunOptions& options) {
    CpuDevice device(2);
    Session session(options, device);
    gradients.resize(session.training().parameters.size());
    {
      const GradientReader reader(session, [&](std::size_t parameter, Value gradient, float) {
        gradients[parameter] = session.executor().read_floats(gradient);
      });
      losses.push_back(session.step().loss);
    }
    for (const double loss : losses_of(session, 6)) losses.push_back(loss);
    for (const Value& p : session.training().parameters)
      weights.push_back(session.executor().read_floats(p));
  }
};

// The model has several megabytes of gradients, because a kernel updates by one at least.
TEST(EarlyUpdates, TrainTheSameModel) {
  for (const std::string dtype : {"fp32", "bf16"})
    for (const auto& [name, change] : variants)
      for (const char* version : {"v3", "v4"}) {
        SCOPED_TRACE(dtype + ", " + name + ", " + version);
        RunOptions options = deep_llama(dtype, change);
        options.hidden_dim = 256;
        options.intermediate_dim = 512;
        options.version = version;
        options.deterministic = true;
        ASSERT_GT(Built(options, std::size_t{1} << 20).updates().size(), 2u);
        const Trained early(options);
        options.enable_pass.clear();
        const Trained late(options);
        EXPECT_EQ(early.losses, late.losses);
        EXPECT_EQ(early.gradients, late.gradients);
        EXPECT_EQ(early.weights, late.weights);
        for (const std::vector<float>& gradient : early.gradients)
          EXPECT_TRUE(std::ranges::any_of(gradient, [](float g) { return g != 0; }));
      }
}

}  // namespace
}  // namespace ridge
