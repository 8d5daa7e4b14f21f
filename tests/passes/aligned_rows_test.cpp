// That rows of logits and gates are filled up to whole 16 bytes, where that is worth it, and that
// nothing else changes.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"
#include "ridge/run/observer.h"
#include "ridge/session/session.h"
#include "tests/passes/aligned_llama.h"

namespace ridge {
namespace {

using testing::nodes_of;

constexpr std::int64_t classes = 61, inner = 90, tokens = 32;

// A LLaMA whose rows of logits and gates begin at no multiples of 16 bytes. Not resolved.
RunOptions odd_llama(const std::string& dtype = "bf16", const std::string& version = "v4") {
  RunOptions o = testing::aligned_llama(version, dtype, 2);
  o.vocab_size = classes;
  o.intermediate_dim = inner;
  return o;
}

// Lists the operands and results of products whose rows begin at no multiple of 16 bytes.
std::vector<std::string> odd_products(const Graph& graph) {
  std::vector<std::string> found;
  for (const Node* node : nodes_of<MatMul>(graph))
    for (const ValueId v : {node->inputs[0], node->inputs[1], node->outputs[0]}) {
      const TensorType& type = graph.info(v).type;
      const auto row = type.shape[-1] * static_cast<std::int64_t>(size_of(type.dtype));
      if (type.shape.rank() == 2 && row % 16 != 0) found.push_back(type.to_string());
    }
  return found;
}

// The graph of a step on a GPU.
struct Built {
  Graph graph;

  explicit Built(RunOptions options, std::int64_t least_rows = 1) {
    options.resolve();
    build_graph(
        graph, options,
        {.kind = DeviceKind::gpu, .multiplies_float8 = true, .least_aligned_rows = least_rows});
  }
};

std::size_t windows_of(const RunOptions& options, std::int64_t least_rows = 1) {
  return nodes_of<Window>(Built(options, least_rows).graph).size();
}

TEST(AlignedRows, LeavesNoProductOfOddRows) {
  for (const char* dtype : {"bf16", "fp16"})
    for (const bool tied : {false, true})
      for (const std::int64_t accumulation : {1, 2}) {
        RunOptions o = odd_llama(dtype);
        o.tie_embeddings = tied;
        o.gradient_accumulation_steps = accumulation;
        EXPECT_EQ(odd_products(Built(o).graph), std::vector<std::string>()) << dtype;
        o.disable_pass = "aligned-rows";
        EXPECT_NE(odd_products(Built(o).graph), std::vector<std::string>()) << dtype;
      }
}

// A step has one window for the weight of the logits, whose gradient is read where it lies, and
// four for each of the two layers: of both weights and of both gradients, which products write in
// f32.
TEST(AlignedRows, CopiesWeightsAloneAndNoGradientOfLogits) {
  const Built run(odd_llama());
  const Graph& graph = run.graph;
  for (const Node* node : nodes_of<Window>(graph))
    for (const ValueId v : node->outputs)
      EXPECT_LE(graph.info(v).type.numel(), 2 * 96 * 64) << graph.info(v).type.to_string();
  EXPECT_EQ(nodes_of<Window>(graph).size(), 1u + 2 * 4);
  for (const Node* node : nodes_of<Cast>(graph))
    EXPECT_NE(node->phase, Phase::backward) << "of a product that is not f32";
}

TEST(AlignedRows, CountsNoFilledUpColumnAsAClass) {
  const Built run(odd_llama());
  const Graph& graph = run.graph;
  for (const Node* node : nodes_of<CrossEntropy>(graph)) {
    EXPECT_EQ(std::get<CrossEntropy>(node->op->variant()).classes, classes);
    EXPECT_EQ(graph.info(node->inputs[0]).type.shape[-1], 64);
  }
  ASSERT_EQ(nodes_of<CrossEntropyGrad>(graph).size(), 1u);
  EXPECT_EQ(std::get<CrossEntropyGrad>(nodes_of<CrossEntropyGrad>(graph)[0]->op->variant()).classes,
            classes);
}

TEST(AlignedRows, LeavesWhatGainsNothing) {
  EXPECT_EQ(windows_of(odd_llama("fp32")), 0u) << "no matrix units";
  EXPECT_NE(windows_of(odd_llama("tf32")), 0u);
  EXPECT_EQ(windows_of(odd_llama(), tokens + 1), 0u) << "too few rows";
  EXPECT_NE(windows_of(odd_llama(), tokens), 0u);
  EXPECT_EQ(windows_of(testing::aligned_llama("v4", "bf16", 2)), 0u);
}

// The losses of some steps, and the first step's logits.
struct Trained final : Observer {
  std::vector<double> losses;
  std::vector<float> logits;

  explicit Trained(const std::string& enable) {
    RunOptions o = odd_llama("bf16", "v3");
    o.enable_pass = enable;
    o.resolve();
    CpuDevice device(2);
    Session session(o, device);
    session_ = &session;
    session.executor().observe(*this);
    losses = losses_of(session, 12);
    session.executor().forget(*this);
  }
  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override {
    if (phase == Phase::forward && logits.empty()) logits = session_->logits();
  }

 private:
  Session* session_ = nullptr;
};

// Where sums are of another order, bf16 rounds otherwise.
TEST(AlignedRows, TrainTheSameModel) {
  const Trained with("aligned-rows"), without("");
  ASSERT_EQ(with.losses.size(), without.losses.size());
  for (std::size_t i = 0; i < with.losses.size(); ++i)
    EXPECT_NEAR(with.losses[i], without.losses[i], 0.002 * without.losses[i]) << "step " << i;
  ASSERT_EQ(with.logits.size(), static_cast<std::size_t>(tokens * classes));
  ASSERT_EQ(without.logits.size(), with.logits.size());
  for (std::size_t i = 0; i < with.logits.size(); ++i)
    ASSERT_NEAR(with.logits[i], without.logits[i], 0.01) << i;
}

}  // namespace
}  // namespace ridge
