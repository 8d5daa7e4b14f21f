// The parts of a step that a profile is divided into say something of every family of networks:
// what no part claims is little of its FLOPs and of its bytes.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/session/language.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

constexpr double most_other = 0.03;

struct Shares {
  double flops = 0, bytes = 0;
};

// By part, of the network's step or pass.
std::map<std::string_view, Shares> shares_of(const Graph& graph) {
  std::map<std::string_view, Shares> parts;
  Shares all;
  for (const Node& node : graph.nodes()) {
    const Cost work = cost(graph, node);
    for (Shares* sum : {&parts[part_of(graph, node)], &all}) {
      sum->flops += static_cast<double>(work.flops);
      sum->bytes += static_cast<double>(work.bytes());
    }
  }
  for (auto& [part, shares] : parts) shares = {shares.flops / all.flops, shares.bytes / all.bytes};
  return parts;
}

struct Family {
  std::string_view network;
  std::array<std::string_view, 2> largest;  // parts, each a fiftieth of the FLOPs or bytes or more
  std::int64_t image_size = 64;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.network; }

class Parts : public ::testing::TestWithParam<Family> {
 protected:
  static std::map<std::string_view, Shares> shares(Use use, std::string_view row,
                                                   DeviceKind kind = DeviceKind::cpu) {
    const Family& family = GetParam();
    RunOptions options;
    if (family.network == language_network) {
      options = small_llama();
      options.mode = name_of(use);
      options.version = row;
      options.resolve();
    } else {
      options = network_options(family.network, use, row, "fp32", family.image_size);
    }
    Graph graph;
    build_graph(graph, options, {.kind = kind});
    return shares_of(graph);
  }
};

TEST_P(Parts, LeaveLittleOver) {
  for (const Use use : {Use::inference, Use::training})
    for (const std::string_view row : {"none", "v2", "max-autotune"})
      for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu}) {
        SCOPED_TRACE(std::string(name_of(use)) + ", " + std::string(row));
        const auto parts = shares(use, row, kind);
        const auto other = parts.find("other");
        if (other == parts.end()) continue;
        EXPECT_LT(other->second.flops, most_other);
        EXPECT_LT(other->second.bytes, most_other);
      }
}

TEST_P(Parts, NameWhatTheFamilyIsMadeOf) {
  for (const Use use : {Use::inference, Use::training}) {
    auto parts = shares(use, "none");
    for (const std::string_view part : GetParam().largest)
      EXPECT_GT(std::max(parts[part].flops, parts[part].bytes), 0.02)
          << part << " in " << name_of(use);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Parts,
    ::testing::Values(Family{language_network, {"attention", "feed-forward"}},
                      Family{"alexnet", {"convolutions", "head"}},
                      Family{"vgg16", {"convolutions", "head"}},
                      Family{"resnet18", {"convolutions", "norm"}},
                      Family{"resnext50_32x4d", {"convolutions", "norm"}},
                      Family{"densenet121", {"convolutions", "data movement"}},
                      Family{"squeezenet1_1", {"convolutions", "elementwise"}},
                      Family{"inception_v3", {"convolutions", "norm"}, 96},
                      Family{"xception", {"convolutions", "norm"}},
                      Family{"mnasnet1_0", {"convolutions", "norm"}},
                      Family{"mobilenet_v3_small", {"convolutions", "norm"}},
                      Family{"shufflenet_v2_x1_0", {"convolutions", "data movement"}},
                      Family{"efficientnet_b0", {"convolutions", "norm"}},
                      Family{"efficientnet_v2_s", {"convolutions", "norm"}},
                      Family{"regnet_y_400mf", {"convolutions", "norm"}},
                      Family{"convnext_tiny", {"convolutions", "feed-forward"}},
                      Family{"vit_b_32", {"attention", "feed-forward"}},
                      Family{"swin_t", {"attention", "feed-forward"}},
                      Family{"swin_v2_t", {"attention", "feed-forward"}},
                      Family{"maxvit_t", {"attention", "feed-forward"}, 224},
                      Family{"fcn_resnet50", {"convolutions", "head"}},
                      Family{"deeplabv3_mobilenet_v3_large", {"convolutions", "head"}}),
    [](const auto& family) { return std::string(family.param.network); });

}  // namespace
}  // namespace ridge
