#include "ridge/plan/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/units.h"

namespace ridge {
namespace {

void raise(TensorBytes& most, const TensorBytes& now) {
  most.inputs = std::max(most.inputs, now.inputs);
  most.parameters = std::max(most.parameters, now.parameters);
  most.gradients = std::max(most.gradients, now.gradients);
  most.optimizer_state = std::max(most.optimizer_state, now.optimizer_state);
  most.intermediates = std::max(most.intermediates, now.intermediates);
  most.workspace = std::max(most.workspace, now.workspace);
  most.packed = std::max(most.packed, now.packed);
}

}  // namespace

std::size_t& TensorBytes::of(Role role) {
  switch (role) {
    case Role::input:
      return inputs;
    case Role::parameter:
    case Role::buffer:
      return parameters;
    case Role::gradient:
      return gradients;
    case Role::optimizer_state:
      return optimizer_state;
    case Role::activation:
      break;
  }
  return intermediates;
}

std::size_t TensorBytes::total() const {
  return inputs + parameters + gradients + optimizer_state + intermediates + workspace + packed;
}

std::vector<std::pair<std::string_view, std::size_t>> TensorBytes::parts() const {
  std::vector<std::pair<std::string_view, std::size_t>> all{{"parameters", parameters},
                                                            {"packed weights", packed},
                                                            {"gradients", gradients},
                                                            {"optimizer state", optimizer_state},
                                                            {"intermediates", intermediates},
                                                            {"workspace", workspace},
                                                            {"inputs", inputs}};
  std::erase_if(all, [](const auto& part) { return part.second == 0; });
  return all;
}

std::string to_string(const TensorBytes& bytes) {
  std::string list;
  for (const auto& [name, part] : bytes.parts())
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, format_bytes(part));
  return list.empty() ? "none" : list;
}

MemoryPlan plan_memory(const Graph& graph, const Lifetimes& lifetimes,
                       std::span<const std::size_t> workspace, std::size_t packed) {
  TensorBytes now{.packed = packed};
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent) now.of(graph.info(id).role) += lifetimes.bytes[id];
  MemoryPlan plan{.peak_bytes = now.total(), .at_peak = now, .at_most = now};
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    for (const ValueId id : lifetimes.born[n]) now.of(graph.info(id).role) += lifetimes.bytes[id];
    now.workspace = (workspace[n] + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
    raise(plan.at_most, now);
    plan.mean_bytes += static_cast<double>(now.total()) / static_cast<double>(graph.nodes().size());
    if (const std::size_t total = now.total(); total > plan.peak_bytes) {
      plan.peak_bytes = total;
      plan.peak_node = n;
      plan.at_peak = now;
    }
    now.workspace = 0;
    for (const ValueId id : lifetimes.dead[n]) now.of(graph.info(id).role) -= lifetimes.bytes[id];
  }
  return plan;
}

}  // namespace ridge
