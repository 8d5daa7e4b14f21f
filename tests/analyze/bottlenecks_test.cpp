#include "ridge/analyze/bottlenecks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/ops/attention.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/rms_norm.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/softmax.h"
#include "tests/analyze/small_training.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Roof simple_roof() {
  return {.threads = 1,
          .peaks = {{ProductKind::f32, 100e9}, {ProductKind::bf16, 200e9}},
          .levels = {{"cache", 600'000, 100e9}, {"memory", 0, 10e9}}};
}

// A product of 2 * 256^3 FLOPs on 786,432 bytes and a SiLU on 524,288, run in two steps.
struct HandMade {
  Graph graph;
  Recording recording;

  HandMade(std::int64_t product_ns, std::int64_t silu_ns) {
    const Value a = graph.input("a", {DType::f32, {256, 256}});
    Value y;
    {
      const Scope scope(graph, "attention", ScopeKind::attention);
      y = matmul(a, a);
    }
    const Scope scope(graph, "feed_forward", ScopeKind::feed_forward);
    graph.keep(silu(y), "y");
    recording.graph = &graph;
    std::int64_t now = 0;
    for (std::int32_t step = 1; step <= 2; ++step) {
      const std::int64_t begin = now;
      for (const auto& [node, ns] : {std::pair{0, product_ns}, std::pair{1, silu_ns}}) {
        recording.nodes.push_back({static_cast<NodeId>(node), step, now, now + ns});
        now += ns + 1000;
      }
      recording.phases.push_back({Phase::forward, step, begin, now});
      now += 3000;
      recording.steps.push_back({step, begin, now, 0.0});
    }
  }
};

TEST(Bottlenecks, FloorIsTheLargerOfFlopsAndBytes) {
  const HandMade run(671'089, 10'486);
  const BottleneckReport report = analyze_bottlenecks(run.recording, simple_roof());
  ASSERT_EQ(report.nodes.size(), 2u);
  const Timed &product = report.nodes[0].timed, &silu = report.nodes[1].timed;
  EXPECT_EQ(report.nodes[0].name, "attention: matmul");
  EXPECT_NEAR(product.seconds, 671.089e-6, 1e-12);
  EXPECT_NEAR(product.compute_floor, 2.0 * 256 * 256 * 256 / 100e9, 1e-12);
  EXPECT_NEAR(product.memory_floor, 786'432 / 10e9, 1e-12) << "too large for the cache";
  EXPECT_NEAR(product.ratio(), 2, 1e-4);
  EXPECT_EQ(product.bound(), Bound::compute);
  EXPECT_EQ(report.nodes[1].level, "cache");
  EXPECT_NEAR(silu.floor, 524'288 / 100e9, 1e-12);
  EXPECT_NEAR(silu.ratio(), 2, 1e-3);
  EXPECT_EQ(silu.bound(), Bound::memory);
  EXPECT_NEAR(report.all.above_floor(), report.all.seconds / 2, 1e-8);
  EXPECT_THAT(report.notes, IsEmpty());
}

TEST(Bottlenecks, TimesOfNodesAndGapsMakeTheStep) {
  const HandMade run(671'089, 10'486);
  const BottleneckReport report = analyze_bottlenecks(run.recording, simple_roof());
  EXPECT_EQ(report.steps, 2);
  EXPECT_NEAR(report.between_nodes, 2e-6, 1e-12);
  EXPECT_NEAR(report.outside_phases, 3e-6, 1e-12);
  EXPECT_NEAR(report.all.seconds + report.between_nodes + report.outside_phases,
              report.step_seconds, 1e-12);
  EXPECT_NEAR(report.mfu(), report.all.compute_floor / report.step_seconds, 1e-12);
  ASSERT_EQ(report.parts.size(), 2u);
  EXPECT_EQ(report.parts[0].name, "attention");
  EXPECT_EQ(report.parts[1].name, "feed-forward");
}

TEST(Bottlenecks, AShortCallIsOverhead) {
  const HandMade run(671'089, 4'999);
  const Roof roof = simple_roof();
  EXPECT_EQ(analyze_bottlenecks(run.recording, roof).nodes[1].timed.bound(), Bound::overhead);
  const HandMade longer(671'089, 5'001);
  EXPECT_EQ(analyze_bottlenecks(longer.recording, roof).nodes[1].timed.bound(), Bound::memory);
}

TEST(Bottlenecks, WhatIsFasterThanItsCeilingRaisesIt) {
  // 111.8 GFLOP/s and 104.9 GB/s.
  const HandMade run(300'000, 5'000);
  const BottleneckReport report = analyze_bottlenecks(run.recording, simple_roof());
  EXPECT_NEAR(report.roof.flops(ProductKind::f32), 2.0 * 256 * 256 * 256 / 300e-6, 1);
  EXPECT_NEAR(report.roof.levels[0].bytes_per_second, 524'288 / 5e-6, 1);
  EXPECT_NEAR(report.all.floor, report.all.seconds, 1e-12) << "both are at their ceilings";
  EXPECT_LE(report.mfu(), 1);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("104.9 GB/s"), HasSubstr("111.8 GFLOP/s")));
  Roof with_vendor = simple_roof();
  with_vendor.vendor.flops_per_second = 50e9;
  const BottleneckReport vendor = analyze_bottlenecks(run.recording, with_vendor);
  EXPECT_EQ(vendor.vendor_mfu(), 1);
  EXPECT_THAT(vendor.notes, ::testing::Contains(HasSubstr("--peak-tflops")));
}

TEST(Bottlenecks, NeedAStep) {
  HandMade run(1000, 1000);
  run.recording.steps.clear();
  EXPECT_THROW(analyze_bottlenecks(run.recording, simple_roof()), UsageError);
}

TEST(Bottlenecks, PartsFollowScopesThenWorkAndPhases) {
  Graph graph;
  const Value a = graph.input("a", {DType::f32, {4, 4}});
  const Value weight = graph.input("weight", {DType::f32, {4}});
  const auto part_of_last = [&] { return part_of(graph, graph.nodes().back()); };
  const auto part = [&](ScopeKind kind, Phase phase = Phase::forward) {
    const Scope block(graph, "layers.0", ScopeKind::block);
    const Scope marked(graph, fmt::format("kind {}", static_cast<int>(kind)), kind);
    const Scope inside(graph, "inside");
    const PhaseScope in_phase(graph, phase);
    silu(a);
    return part_of_last();
  };
  EXPECT_EQ(part(ScopeKind::attention), "attention");
  EXPECT_EQ(part(ScopeKind::feed_forward, Phase::backward), "feed-forward");
  EXPECT_EQ(part(ScopeKind::embedding), "embedding");
  EXPECT_EQ(part(ScopeKind::head), "head");
  EXPECT_EQ(part(ScopeKind::head, Phase::optimizer), "optimizer");
  EXPECT_EQ(part(ScopeKind::plain), "elementwise");
  // What a scope is called says nothing.
  const Scope scope(graph, "attention");
  matmul(a, a);
  EXPECT_EQ(part_of_last(), "linear layers");
  rms_norm(a, weight);
  EXPECT_EQ(part_of_last(), "norm");
  permute(a, {1, 0});
  EXPECT_EQ(part_of_last(), "data movement");
  softmax(a);
  EXPECT_EQ(part_of_last(), "other");
}

TEST(Findings, OfATrainingRunNameItsRewritesWithTheirEvidence) {
  SmallTraining training;
  CpuDevice device(1);
  const Recording& recording = training.record(3);
  const BottleneckReport report = analyze_bottlenecks(
      recording, simple_roof(), alternatives_of(SmallTraining::options(), device, training.graph));
  double parts = 0;
  for (const NamedTime& part : report.parts) parts += part.timed.seconds;
  EXPECT_NEAR(parts + report.between_nodes + report.outside_phases, report.step_seconds, 1e-9);
  for (const NodeBottleneck& node : report.nodes)
    EXPECT_GE(node.timed.seconds, node.timed.floor * (1 - 1e-9)) << node.name;
  const auto flash = std::ranges::find(report.findings, "flash-attention", &Finding::name);
  ASSERT_NE(flash, report.findings.end());
  EXPECT_THAT(flash->text, HasSubstr("(--enable-pass flash-attention)"));
  EXPECT_THAT(flash->text, HasSubstr(" MB less; "));
  EXPECT_GT(flash->bytes_saved, 0);
  EXPECT_GT(flash->share, 0);
  EXPECT_LE(flash->seconds_saved, flash->seconds + report.between_nodes);
  EXPECT_TRUE(std::ranges::is_sorted(report.findings, std::greater{}, &Finding::seconds_saved));
  EXPECT_LE(report.mfu(), 1);
}

// Other tables count all of it: the rate would be half of theirs without a word.
TEST(Findings, SayThatTheyCountCausalAttention) {
  for (const bool causal : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", {DType::f32, {1, 256, 128}});
    graph.keep(
        attention(x, x, x, {.n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .causal = causal}), "y");
    const Recording recording{.graph = &graph,
                              .nodes = {{NodeId{0}, 1, 0, 10'000'000}},
                              .phases = {{Phase::forward, 1, 0, 10'000'000}},
                              .steps = {{1, 0, 10'000'000, 0.0}}};
    const BottleneckReport report = analyze_bottlenecks(recording, simple_roof());
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(
        report.findings[0].text.find(", counting causal attention, where") != std::string::npos,
        causal)
        << report.findings[0].text;
  }
}

TEST(Findings, MemoryIsReadOffTheGraph) {
  SmallTraining training;
  const BottleneckReport report = analyze_bottlenecks(training.record(1), simple_roof());
  const MemoryUse& memory = report.memory;
  EXPECT_EQ(memory.parameters, 4 * tiny_llama.parameter_count());
  EXPECT_EQ(memory.gradients, memory.parameters);
  EXPECT_EQ(memory.optimizer_state, 2 * memory.parameters);
  EXPECT_EQ(memory.saved_by_bf16, memory.activations / 2);
  EXPECT_GT(memory.saved_by_checkpointing, 2 * 4 * 8 * 12 * 12) << "scores among others";
  EXPECT_LT(memory.saved_by_checkpointing, memory.activations);
  EXPECT_GT(memory.peak_bytes, static_cast<std::uint64_t>(memory.activations));
}

// Two weights side by side in one, as a product of both reads them, and a third: 96 floats.
TEST(Findings, CountPackedWeightsOnce) {
  Graph graph;
  const Value a = graph.parameter("a", {32}, Init::zeros());
  const Value b = graph.parameter("b", {32}, Init::zeros());
  const Value parts[] = {a, b};
  graph.keep(silu(graph.pack(parts, "ab")), "y");
  graph.keep(silu(graph.parameter("c", {32}, Init::zeros())), "z");
  EXPECT_EQ(memory_use(Recording{.graph = &graph}, {}).parameters, 96 * 4);
}

TEST(Findings, WeightsTakeTheSameMemoryInEveryVersion) {
  for (const char* version : {"v1", "v2", "v3", "v4"}) {
    RunOptions options = SmallTraining::options();
    options.version = version;
    options.resolve();
    Graph graph;
    build_graph(graph, options);
    const MemoryUse memory = memory_use(Recording{.graph = &graph}, {});
    EXPECT_EQ(memory.parameters, 4 * tiny_llama.parameter_count()) << version;
    EXPECT_EQ(memory.gradients, memory.parameters) << version;
    EXPECT_EQ(memory.optimizer_state, 2 * memory.parameters) << version;
  }
}

TEST(BottleneckOutput, SaysHowMuchIsReadAndWritten) {
  BottleneckReport report;
  report.step_seconds = 0.5;
  report.all.cost.bytes_read = 600'000'000;
  report.all.cost.bytes_written = 400'000'000;
  report.roof.levels = {{"L1", 1000, 1e12}, {"memory", 0, 4e9}};
  EXPECT_THAT(bottleneck_text(report),
              HasSubstr("\n    1000.0 MB a step, 2.0 GB/s, 50.0 % of the 4.0 GB/s of memory\n"));
  report.roof.levels.clear();
  EXPECT_THAT(bottleneck_text(report), HasSubstr("\n    1000.0 MB a step, 2.0 GB/s\n"));
}

TEST(BottleneckOutput, AnswersTheQuestionsAndIsValidJson) {
  SmallTraining training;
  const BottleneckReport report = analyze_bottlenecks(training.record(2), simple_roof());
  const std::string text = bottleneck_text(report);
  for (const char* expected :
       {"MFU", "Findings", "attention", "What holds the step back?", "FLOP/byte", "peak"})
    EXPECT_THAT(text, HasSubstr(expected));
  const auto json = nlohmann::json::parse(bottleneck_json(report));
  EXPECT_EQ(json.at("nodes").size(), report.nodes.size());
  EXPECT_EQ(json.at("findings").size(), report.findings.size());
  EXPECT_TRUE(json.at("vendor_mfu").is_null());
  std::int64_t flops = 0;
  for (const auto& node : json.at("nodes")) flops += node.at("flops").get<std::int64_t>();
  EXPECT_EQ(flops, json.at("all").at("flops").get<std::int64_t>());
}

}  // namespace
}  // namespace ridge
