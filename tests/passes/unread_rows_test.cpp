// Rows that nobody reads are not computed, where what computes them goes row by row; what is read
// stays the same, and so do the gradients.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/models/vision/vision.h"
#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"
#include "ridge/passes/passes.h"
#include "ridge/run/executor.h"
#include "tests/models/vision_rule.h"

namespace ridge {
namespace {

constexpr std::int64_t groups = 3, length = 5, width = 8;

// Tokens [3, 5, 8] and layers on them.
struct Tokens {
  Graph graph;
  Value x = graph.parameter("x", {groups, length, width}, Init::normal(1.0f));

  Value parameter(const char* name, const Shape& shape) {
    return graph.parameter(name, shape, Init::normal(0.5f));
  }
  Value feed_forward(Value from) {
    const Value y =
        layer_norm(from, parameter("norm.weight", {width}), parameter("norm.bias", {width}));
    const Value inner = activation(
        add(project(y, parameter("up", {2 * width, width})), parameter("up.bias", {2 * width})),
        ActivationKind::gelu);
    return add(from, project(inner, parameter("down", {width, 2 * width})));
  }
  std::vector<float> run(const char* name = "y", Phase last = Phase::forward) {
    CpuDevice device(1);
    Executor executor(graph, device);
    executor.initialize(1);
    executor.run(Phase::forward);
    if (last == Phase::backward) executor.run(last);
    return executor.read_floats(graph.find(name));
  }
  std::vector<std::int64_t> rows_of_products() const {
    std::vector<std::int64_t> rows;
    for (const Node& node : graph.nodes())
      if (std::holds_alternative<MatMul>(node.op->variant()))
        rows.push_back(graph.info(node.outputs[0]).type.shape[0]);
    return rows;
  }
};

void expect_close(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

TEST(UnreadRows, AreNotComputed) {
  for (const auto& [begin, extent] : {std::pair{0, 1}, {4, 1}, {1, 3}}) {
    Tokens t;
    const Value y = window(t.feed_forward(scale(t.x, 0.5f)), 1, begin, extent);
    t.graph.keep(y, "y");
    const std::vector<float> before = t.run();
    EXPECT_EQ(unread_rows(t.graph), 1u);
    EXPECT_EQ(t.rows_of_products(), (std::vector<std::int64_t>{groups * extent, groups * extent}));
    EXPECT_EQ(t.graph.find("y").shape(), (Shape{groups, extent, width}));
    expect_close(t.run(), before);
    EXPECT_EQ(unread_rows(t.graph), 0u);
  }
}

TEST(UnreadRows, HaveNoGradient) {
  const auto gradient = [](bool narrowed) {
    Tokens t;
    const Value y = window(t.feed_forward(t.x), 1, 1, 2);
    const Value loss = sum_to(mul(y, y), {});
    t.graph.keep(loss, "loss");
    if (narrowed) {
      EXPECT_EQ(unread_rows(t.graph), 1u);
    }
    const std::vector<Value> grads = gradients(loss, std::array{t.x});
    t.graph.keep(grads[0], "x.grad");
    return t.run("x.grad", Phase::backward);
  };
  const std::vector<float> want = gradient(false);
  EXPECT_GT(*std::ranges::max_element(want), 0.0f);
  expect_close(gradient(true), want);
}

// What else is read of what lies between, or computed across rows, is computed whole.
TEST(UnreadRows, AreComputedForOthers) {
  {  // the sum, after the run
    Tokens t;
    const Value y = t.feed_forward(t.x);
    t.graph.keep(y, "all");
    t.graph.keep(window(y, 1, 0, 1), "y");
    EXPECT_EQ(unread_rows(t.graph), 0u);
  }
  {  // by two windows
    Tokens t;
    const Value y = t.feed_forward(t.x);
    t.graph.keep(add(window(y, 1, 0, 1), window(y, 1, 1, 1)), "y");
    EXPECT_EQ(unread_rows(t.graph), 0u);
  }
  {  // all rows, and zeros beyond
    Tokens t;
    const Value y = t.feed_forward(t.x);
    t.graph.keep(window(y, 1, 0, length), "y");
    t.graph.keep(window(y, 1, -1, 3), "z");
    EXPECT_EQ(unread_rows(t.graph), 0u);
  }
  {  // columns, of which products need all
    Tokens t;
    t.graph.keep(window(t.feed_forward(t.x), 2, 0, 4), "y");
    EXPECT_EQ(unread_rows(t.graph), 0u);
  }
  {  // where nothing is multiplied
    Tokens t;
    t.graph.keep(window(scale(t.x, 2.0f), 1, 0, 1), "y");
    EXPECT_EQ(unread_rows(t.graph), 0u);
  }
  {  // what every row is multiplied with
    Tokens t;
    const Value weight = scale(t.parameter("weight", {width, width}), 2.0f);
    const Value y = project(t.x, weight);
    t.graph.keep(add(window(y, 1, 0, 1), window(reshape(weight, {1, width, width}), 1, 0, 1)), "y");
    EXPECT_EQ(unread_rows(t.graph), 1u);
    EXPECT_EQ(t.rows_of_products(), (std::vector<std::int64_t>{groups}));
    EXPECT_EQ(t.graph.find("y").shape(), (Shape{groups, 1, width}));
  }
}

// Of a ViT's last block, all but queries, keys, values and attention.
TEST(UnreadRows, AreAllButTheClassTokenInTheEndOfViT) {
  constexpr std::int64_t images = 2, tokens = 197;
  Graph graph;
  build_vision(graph, "vit_b_16", {.batch_size = images});
  EXPECT_EQ(unread_rows(graph), 1u);
  std::int64_t whole = 0, narrow = 0;
  for (const Node& node : graph.nodes())
    if (std::holds_alternative<MatMul>(node.op->variant())) {
      const std::int64_t rows = graph.info(node.outputs[0]).type.shape[0];
      whole += rows == images * tokens;
      narrow += rows == images &&
                graph.scope_name(node.scope).find("encoder_layer_11") != std::string::npos;
    }
  EXPECT_EQ(whole, 12 * 4 - 3);
  EXPECT_EQ(narrow, 3);
}

}  // namespace
}  // namespace ridge
