#include "ridge/plan/lifetimes.h"

#include <gtest/gtest.h>

#include <array>

#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/op.h"
#include "ridge/ops/unary.h"
#include "ridge/plan/memory.h"

namespace ridge {
namespace {

TEST(Lifetimes, AValueDiesWithItsLastUse) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {16}});
  const Value a = scale(x, 2.0f);  // node 0
  const Value b = scale(a, 3.0f);  // node 1
  const Value c = add(a, b);       // node 2: the last to use a and b
  const Value d = scale(c, 1.0f);  // node 3: nobody uses d
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.born[0], std::vector{a.id});
  EXPECT_TRUE(life.dead[0].empty());
  EXPECT_TRUE(life.dead[1].empty());
  EXPECT_EQ(life.dead[2], (std::vector{a.id, b.id}));
  EXPECT_EQ(life.dead[3], (std::vector{c.id, d.id}));
  EXPECT_TRUE(life.permanent[x.id]);
  // x always; a and b and c together; nothing more.
  const auto peak = [&](const std::vector<std::size_t>& workspace) {
    return plan_memory(graph, life, workspace).peak_bytes;
  };
  EXPECT_EQ(peak({0, 0, 0, 0}), 4 * 64u);
  EXPECT_EQ(peak({0, 0, 100, 0}), 4 * 64u + 128u);
  const MemoryPlan plan = plan_memory(graph, life, std::vector<std::size_t>{64, 512, 128, 0});
  EXPECT_EQ(plan.at_most.workspace, 512u) << "of whichever node";
  EXPECT_EQ(plan.at_most.intermediates, 3 * 64u);
}

TEST(Lifetimes, AReshapeSharesAndProlongsItsOperand) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4, 4}});
  const Value a = scale(x, 2.0f);    // node 0
  const Value r = reshape(a, {16});  // node 1
  const Value b = scale(r, 3.0f);    // node 2
  graph.keep(b, "b");
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.storage[r.id], a.id);
  EXPECT_TRUE(life.born[1].empty());
  EXPECT_EQ(life.dead[2], std::vector{a.id});  // b is kept
  EXPECT_TRUE(life.permanent[b.id]);
}

TEST(Lifetimes, AnUpdateInPlaceKeepsTheStateItWrites) {
  Graph graph;
  const Value sum = graph.state("sum", {DType::f32, {8}}, Role::gradient, Init::zeros());
  const Value x = graph.input("x", {DType::f32, {8}});
  const Value updated = graph.apply1(Accumulate{}, {sum, x});
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.storage[updated.id], sum.id);
  EXPECT_TRUE(life.permanent[sum.id]);
  EXPECT_TRUE(life.dead[0].empty());
}

TEST(Lifetimes, ASliceLiesInItsOperand) {
  Graph graph;
  const Value x = graph.input("x", {DType::bf16, {7, 3}});
  const Value a = scale(x, 2.0f);         // node 0
  const Value s = slice(a, 2, 4);         // node 1
  const Value r = reshape(s, {2, 2, 3});  // node 2
  const Value t = slice(r, 1, 1);         // node 3
  const Value b = scale(t, 3.0f);         // node 4
  const Lifetimes life = lifetimes_of(graph);
  for (const Value& value : {a, s, r, t}) EXPECT_EQ(life.storage[value.id], a.id);
  EXPECT_EQ(life.offset[a.id], 0u);
  EXPECT_EQ(life.offset[s.id], 2 * 3 * 2u);
  EXPECT_EQ(life.offset[r.id], 2 * 3 * 2u);
  EXPECT_EQ(life.offset[t.id], (2 + 2) * 3 * 2u);
  EXPECT_EQ(life.bytes[s.id], 0u);
  EXPECT_EQ(life.dead[4], (std::vector{a.id, b.id}));
}

TEST(Lifetimes, InputsLieSideBySide) {
  Graph graph;
  const Value a = graph.input("a", {DType::i32, {5}});
  const Value w = graph.parameter("w", {4}, {});
  const Value b = graph.input("b", {DType::f32, {20}}), c = graph.input("c", {DType::f32, {3}});
  graph.keep(scale(b, 2.0f), "y");
  const Lifetimes life = lifetimes_of(graph);
  for (const Value& value : {a, b, c}) EXPECT_EQ(life.storage[value.id], a.id);
  EXPECT_EQ(life.storage[w.id], w.id);
  EXPECT_EQ(life.offset[b.id], 64u);
  EXPECT_EQ(life.offset[c.id], 64u + 128);
  EXPECT_EQ(life.bytes[a.id], 64u + 128 + 64);
  EXPECT_EQ(life.bytes[b.id] + life.bytes[c.id], 0u);
  EXPECT_TRUE(life.permanent[a.id]);
  const MemoryPlan plan = plan_memory(graph, life, std::vector<std::size_t>(1));
  EXPECT_EQ(plan.at_peak.inputs, 256u);
}

TEST(Lifetimes, PartsLieInTheirPackedValueAndCountOnce) {
  Graph graph;
  const Value a = graph.parameter("a", {3, 5}, {}), b = graph.parameter("b", {4, 5}, {});
  const Value whole = graph.pack(std::array{a, b}, "ab");
  const Value y = scale(b, 2.0f);
  graph.keep(y, "y");
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.storage[a.id], whole.id);
  EXPECT_EQ(life.storage[b.id], whole.id);
  EXPECT_EQ(life.offset[b.id], 3 * 5 * 4u);
  EXPECT_TRUE(life.permanent[whole.id]);
  const MemoryPlan plan = plan_memory(graph, life, std::vector<std::size_t>(1));
  EXPECT_EQ(plan.at_peak.parameters, 192u);  // 7 * 5 * 4 bytes, in multiples of 64
}

}  // namespace
}  // namespace ridge
