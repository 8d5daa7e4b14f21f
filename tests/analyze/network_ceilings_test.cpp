// The ceilings that operators of whole networks are compared with, in graphs built as by
// `ridge bench --network vit_b_32 --dtype bf16 --compile`: every product in 16 bits against the
// 16-bit ceiling.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::IsEmpty;

constexpr double f32_peak = 1e9, narrow_peak = 16e9;

Roof roof_on(DeviceKind kind) {
  return {.kind = kind,
          .peaks = {{ProductKind::f32, f32_peak},
                    {ProductKind::bf16, narrow_peak},
                    {ProductKind::f16, narrow_peak}},
          .levels = {{"memory", 0, 1e30}}};
}

// One pass in which what multiplies does so at four times the f32 ceiling, and all else is slow.
Recording fast_products(const Graph& graph) {
  Recording recording{.graph = &graph};
  std::int64_t now = 0;
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    const Cost work = cost(graph, graph.nodes()[n]);
    const double seconds =
        work.macs > 0 ? static_cast<double>(work.causal_flops) / (4 * f32_peak) : 1.0;
    const std::int64_t begin = now;
    now += static_cast<std::int64_t>(seconds * 1e9) + 1;
    recording.nodes.push_back({n, 1, begin, now});
  }
  recording.phases.push_back({Phase::forward, 1, 0, now});
  recording.steps.push_back({1, 0, now, 0.0});
  return recording;
}

struct Network {
  std::string_view name;
  std::string_view has;  // an operator whose ceiling is in question
};
void PrintTo(const Network& network, std::ostream* out) { *out << network.name; }

class NetworkCeilings : public ::testing::TestWithParam<Network> {
 protected:
  static void expect_no_exceeded_ceiling(std::string_view dtype, std::string_view mode) {
    SCOPED_TRACE(std::string(dtype) + ", " + std::string(mode));
    Graph graph;
    build_graph(graph, network_options(GetParam().name, Use::inference, mode, dtype, 224),
                {.kind = DeviceKind::gpu});
    const BottleneckReport report =
        analyze_bottlenecks(fast_products(graph), roof_on(DeviceKind::gpu));
    EXPECT_THAT(report.notes, IsEmpty());
    EXPECT_EQ(report.roof.flops(ProductKind::f32), f32_peak);
  }
};

TEST_P(NetworkCeilings, In16BitsAreThoseOf16Bits) {
  for (const std::string_view dtype : {"bf16", "fp16"})
    for (const std::string_view mode : {"none", "default", "max-autotune"})
      expect_no_exceeded_ceiling(dtype, mode);
}

// On a CPU too, where attention alone computes in f32 whatever the dtype.
TEST_P(NetworkCeilings, OnACpuAreThoseOf16BitsToo) {
  Graph graph;
  build_graph(graph, network_options(GetParam().name, Use::inference, "default", "bf16", 224));
  std::set<std::string_view> operators;
  for (const Node& node : graph.nodes()) {
    operators.insert(name_of(*node.op));
    const bool multiplies = cost(graph, node).macs > 0 && work_of(*node.op) != WorkKind::attention;
    const ProductKind expected = multiplies ? ProductKind::bf16 : ProductKind::f32;
    EXPECT_EQ(compute_precision(graph, node, roof_on(DeviceKind::cpu)), expected)
        << name_of(*node.op);
  }
  EXPECT_TRUE(operators.contains(GetParam().has)) << "or the test shows nothing";
}

INSTANTIATE_TEST_SUITE_P(All, NetworkCeilings,
                         ::testing::Values(Network{"vit_b_32", "linear"},
                                           Network{"swin_t", "window_attention"},
                                           Network{"vgg16", "linear"},
                                           Network{"efficientnet_b0", "squeeze_excitation"},
                                           Network{"resnet50", "conv2d"}),
                         [](const auto& network) { return std::string(network.param.name); });

}  // namespace
}  // namespace ridge
