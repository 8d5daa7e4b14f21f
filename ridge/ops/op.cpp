#include "ridge/ops/op.h"

#include <utility>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"

namespace ridge {

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  macs += other.macs;
  causal_flops += other.causal_flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  return *this;
}

Cost operator*(const Cost& once, std::int64_t times) {
  return {.flops = once.flops * times,
          .macs = once.macs * times,
          .causal_flops = once.causal_flops * times,
          .bytes_read = once.bytes_read * times,
          .bytes_written = once.bytes_written * times};
}

std::vector<Value> Graph::apply(Op op, std::span<const Value> inputs) {
  return apply(std::make_shared<const Op>(std::move(op)), inputs);
}

Value Graph::apply1(Op op, std::initializer_list<Value> inputs) {
  return apply(std::move(op), std::span(inputs.begin(), inputs.size())).front();
}

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& o) { return o.name; }, op.variant());
}

std::vector<TensorType> infer(const Op& op, Types inputs) {
  return std::visit([&](const auto& o) { return o.infer(inputs); }, op.variant());
}

Cost cost(const Op& op, Types inputs, Types outputs) {
  return std::visit([&](const auto& o) { return o.cost(inputs, outputs); }, op.variant());
}

Cost cost(const Graph& graph, const Node& node) {
  return cost(*node.op, graph.types_of(node.inputs), graph.types_of(node.outputs));
}

std::optional<Alias> aliased_input(const Op& op, std::uint32_t output, Types inputs) {
  return std::visit(
      [&]<class T>(const T& o) -> std::optional<Alias> {
        if constexpr (Aliasing<T>)
          return o.aliased_input(output, inputs);
        else
          return std::nullopt;
      },
      op.variant());
}

std::vector<Value> grad(const Op& op, GradBuilder& builder) {
  return std::visit(
      [&]<class T>(const T& o) -> std::vector<Value> {
        if constexpr (Differentiable<T>)
          return o.grad(builder);
        else
          throw UsageError("operator {} has no gradient", T::name);
      },
      op.variant());
}

}  // namespace ridge
