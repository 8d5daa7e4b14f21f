#include "ridge/session/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/safetensors.h"
#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"

namespace ridge {
namespace {

// What a file of weights has to hold; constants of the network it may hold.
std::vector<Value> stored_values(Graph& graph) {
  std::vector<Value> values;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    if (info.role == Role::parameter || info.role == Role::buffer)
      values.push_back(graph.value(id));
  }
  return values;
}

bool is_constant(const ValueInfo& info) {
  return info.role == Role::buffer && info.init.kind == Init::Kind::values;
}

// Tensors of torchvision's that tell nothing of a network in use.
bool is_for_training_alone(std::string_view name) {
  constexpr std::string_view parts[] = {"aux1.", "aux2.", "AuxLogits.", "aux_classifier."};
  return name.ends_with("num_batches_tracked") ||
         std::ranges::any_of(parts, [&](std::string_view part) { return name.starts_with(part); });
}

// The first thing about a file that does not fit a graph; empty if it fits.
std::string misfit(const SafetensorsFile& file, Graph& graph) {
  for (const Value& value : stored_values(graph)) {
    const ValueInfo& info = graph.info(value.id);
    if (is_constant(info)) continue;
    const auto tensor = file.find(info.name);
    if (!tensor) return fmt::format("it has no tensor {}", info.name);
    if (!std::ranges::equal(tensor->shape, info.type.shape.dims()))
      return fmt::format("its {} is [{}] instead of {}", info.name, fmt::join(tensor->shape, ", "),
                         info.type.shape.to_string());
    if (!tensor->is_floating())
      return fmt::format("its {} is {} instead of F32, F16, BF16 or F64", info.name, tensor->dtype);
  }
  for (std::size_t i = 0; i < file.size(); ++i) {
    const std::string name = file.tensor(i).name;
    if (!is_for_training_alone(name) && !graph.find(name))
      return fmt::format("the network has no tensor {}", name);
  }
  return {};
}

std::vector<std::string_view> fitting_networks(const SafetensorsFile& file) {
  std::vector<std::string_view> names;
  for (const VisionNetwork& network : vision_networks()) {
    Graph graph;
    build_vision(graph, network.name, {});
    if (misfit(file, graph).empty()) names.push_back(network.name);
  }
  return names;
}

}  // namespace

void load_weights(Graph& graph, std::string_view network, const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  if (const std::string what = misfit(file, graph); !what.empty()) {
    const std::vector<std::string_view> others = fitting_networks(file);
    throw FormatError("{} does not fit {}: {}{}", path.string(), network, what,
                      others.empty() ? "" : fmt::format("; it fits {}", fmt::join(others, ", ")));
  }
  for (const Value& value : stored_values(graph))
    if (const ValueInfo& info = graph.info(value.id); !is_constant(info)) {
      std::vector<float> values = file.find(info.name)->floats();
      const auto unsound =
          std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
      if (unsound != values.end())
        throw FormatError("{}: element {} of {} is {}: a network with it computes nothing",
                          path.string(), unsound - values.begin(), info.name, *unsound);
      graph.set_init(value, Init::of(std::move(values)));
    }
}

void save_weights(const std::filesystem::path& path, Graph& graph, Executor& executor) {
  const std::vector<Value> values = stored_values(graph);
  std::vector<NamedType> tensors;
  for (const Value& value : values) tensors.push_back({graph.info(value.id).name, value.type()});
  std::vector<std::byte> host;
  write_safetensors(path, tensors, {{"format", "pt"}}, [&](std::size_t i) {
    host.resize(values[i].type().bytes());
    executor.read(values[i], std::span<std::byte>(host));
    return std::span<const std::byte>(host);
  });
}

void copy_weights(Graph& from, Executor& executor, Graph& to) {
  for (const Value& value : stored_values(to))
    if (const ValueInfo& info = to.info(value.id); !is_constant(info))
      to.set_init(value, Init::of(executor.read_floats(from.find(info.name))));
}

namespace {

// A channel's mean and variance are to be those of so many pixels, if that takes no more work than
// a few images of the usual size.
constexpr std::int64_t settling_pixels = 64, most_settling_pixels = std::int64_t{8} * 224 * 224;

// The buffer that a node moves on, as training's batch norm does its running mean; null if none.
const ValueInfo* moved_buffer(const Graph& graph, const Node& node) {
  if (only_renames(*node.op)) return nullptr;
  const std::vector<TensorType> types = graph.types_of(node.inputs);
  for (std::uint32_t o = 0; o < node.outputs.size(); ++o)
    if (const auto alias = aliased_input(*node.op, o, types))
      if (const ValueInfo& info = graph.info(node.inputs[alias->input]); info.role == Role::buffer)
        return &info;
  return nullptr;
}

// The fewest elements of a sample that go into one element of a statistic, and the end of the nodes
// that move statistics; 0 without any.
struct MovedStatistics {
  std::int64_t least_elements = 0;
  NodeId end = 0;
};

MovedStatistics moved_statistics(const Graph& graph, std::int64_t batch_size) {
  MovedStatistics found;
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const ValueInfo* const buffer = moved_buffer(graph, node);
    if (!buffer) continue;
    const std::int64_t elements =
        graph.info(node.inputs[0]).type.numel() / (batch_size * buffer->type.numel());
    found.least_elements = found.end == 0 ? elements : std::min(found.least_elements, elements);
    found.end = n + 1;
  }
  return found;
}

}  // namespace

void settle_statistics(Graph& graph, std::string_view network, const VisionOptions& options,
                       std::uint64_t seed, Device& device) {
  VisionOptions settling = options;
  settling.batch_size = 2;
  settling.compute = DType::f32;
  settling.training = true;
  settling.dropout = false;
  settling.statistics_momentum = 1.0f;
  Graph small;
  const std::int64_t size = build_vision(small, network, settling).input.shape()[2];
  const MovedStatistics statistics = moved_statistics(small, settling.batch_size);
  if (statistics.end == 0) return;
  const std::int64_t pixels = statistics.least_elements;
  const std::int64_t most = std::max<std::int64_t>(4, most_settling_pixels / (size * size));
  settling.batch_size = std::clamp<std::int64_t>((settling_pixels + pixels - 1) / pixels, 2, most);
  Graph forward;
  const Model model = build_vision(forward, network, settling);
  // Nothing after the last statistic is computed.
  forward.take_nodes(statistics.end);

  Executor executor(forward, device);
  executor.initialize(seed);
  std::vector<float> images(static_cast<std::size_t>(model.input.type().numel()));
  fill_normal(images, 1.0f, seed, stream_of("images"));
  executor.write(model.input, std::span<const float>(images));
  executor.run(Phase::forward);
  for (const Value& value : stored_values(forward)) {
    const std::string& name = forward.info(value.id).name;
    if (name.ends_with(".running_mean") || name.ends_with(".running_var"))
      graph.set_init(graph.find(name), Init::of(executor.read_floats(value)));
  }
}

}  // namespace ridge
