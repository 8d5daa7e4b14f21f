#include "ridge/models/vision/vision.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/cross_entropy.h"
#include "ridge/ops/layout.h"

namespace ridge {
namespace {

using vision::Network;

std::vector<Network> all_networks() {
  std::vector<Network> all;
  for (const auto family_of_networks : vision::families) {
    const std::span<const Network> family = family_of_networks();
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

constexpr vision::Alias aliases[] = {
    {"resnext50", "resnext50_32x4d"},
    {"resnext101", "resnext101_32x8d"},
    {"shufflenet_v2", "shufflenet_v2_x1_0"},
    {"shufflenet_v2_x05", "shufflenet_v2_x0_5"},
    {"shufflenet_v2_x10", "shufflenet_v2_x1_0"},
    {"shufflenet_v2_x15", "shufflenet_v2_x1_5"},
    {"shufflenet_v2_x20", "shufflenet_v2_x2_0"},
    {"SqueezeNet", "squeezenet1_0"},
    {"SqueezeNet1.1", "squeezenet1_1"},
};

Network network_named(std::string_view name) {
  const auto* const alias = std::ranges::find(aliases, name, &vision::Alias::name);
  const std::string_view own = alias == std::end(aliases) ? name : alias->of;
  for (const Network& network : all_networks())
    if (network.name == own) return network;
  throw UsageError("there is no vision network '{}'", name);
}

VisionNetwork described(const Network& network) {
  VisionNetwork described{.name = network.name,
                          .aliases = {},
                          .input_size = network.input_size,
                          .classes = network.classes};
  for (const auto& [alias, of] : aliases)
    if (of == network.name) described.aliases.push_back(alias);
  return described;
}

}  // namespace

std::vector<VisionNetwork> vision_networks() {
  std::vector<VisionNetwork> networks;
  for (const Network& network : all_networks()) networks.push_back(described(network));
  return networks;
}

VisionNetwork vision_network(std::string_view name) { return described(network_named(name)); }

Model build_vision(Graph& graph, std::string_view name, const VisionOptions& options) {
  const Network network = network_named(name);
  const std::int64_t n = options.batch_size;
  const std::int64_t size = options.image_size == 0 ? network.input_size : options.image_size;
  if (n < 1) throw UsageError("the batch size is {}; it must be at least 1", n);
  if (size < network.least_size)
    throw UsageError("images of {} x {} are too small for {}, which takes them from {} x {} on",
                     size, size, network.name, network.least_size, network.least_size);
  if (options.classes < 0 || options.classes == 1)
    throw UsageError("there are {} classes; it must be at least 2", options.classes);
  const vision::Layers layers(graph, options);
  Model model;
  model.input = graph.input("images", {DType::f32, {n, 3, size, size}});
  const std::int64_t classes = options.classes == 0 ? network.classes : options.classes;
  model.logits = network.build(layers, layers.computed(model.input), classes);
  const bool segments = model.logits.shape().rank() == 4;
  model.targets = graph.input("targets", {DType::i32, segments ? Shape{n, size, size} : Shape{n}});
  graph.keep(model.logits, "logits");
  const Scope scope(graph, "loss", ScopeKind::head);
  const Value rows = segments ? permute(model.logits, {0, 2, 3, 1}) : model.logits;
  model.loss = cross_entropy(rows, model.targets);
  graph.keep(model.loss, "loss");
  model.step = graph.find("step");
  return model;
}

}  // namespace ridge
