#include "ridge/ops/op.h"

#include <algorithm>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"

namespace ridge {

Op::Op(const Op&) = default;
Op::Op(Op&&) noexcept = default;
Op& Op::operator=(const Op&) = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

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

namespace {

// What answer(operator) gives for the operator that `op` is.
template <class Answer>
auto ask(const Op& op, const Answer& answer) {
  return std::visit(answer, op.variant());
}

}  // namespace

WorkKind work_of(const Op& op) {
  return ask(op, []<class T>(const T&) { return work_of<T>(); });
}

bool only_renames(const Op& op) { return work_of(op) == WorkKind::renaming; }

bool is_product(const Op& op) { return work_of(op) == WorkKind::product || is_convolution(op); }

bool is_convolution(const Op& op) { return work_of(op) == WorkKind::convolution; }

Footprint footprint_of(const Op& op) {
  return ask(op, []<class T>(const T&) {
    if constexpr (HasFootprint<T>)
      return T::footprint;
    else
      return Footprint::some;
  });
}

bool is_elementwise(const Op& op) {
  return ask(op, []<class T>(const T&) { return Elementwise<T>; });
}

std::optional<PointwiseStep> as_step(const Op& op, Types in) {
  return ask(op, [&]<class T>(const T& o) -> std::optional<PointwiseStep> {
    if constexpr (Chainable<T>)
      return o.as_step(in);
    else
      return std::nullopt;
  });
}

Epilogue as_epilogue(const Op& op) {
  return ask(op, []<class T>(const T& o) {
    if constexpr (Absorbable<T>)
      return o.as_epilogue();
    else
      return Epilogue::none;
  });
}

bool is_light(const Op& op) {
  return ask(op, []<class T>(const T&) { return Light<T>; });
}

bool is_conversion(const Op& op) {
  return ask(op, []<class T>(const T& o) {
    if constexpr (Converting<T>)
      return o.is_conversion();
    else
      return false;
  });
}

std::int64_t sent_bytes(const Op& op, Types inputs) {
  return ask(op, [&]<class T>(const T& o) -> std::int64_t {
    if constexpr (Sending<T>)
      return o.sent_bytes(inputs);
    else
      return 0;
  });
}

std::int64_t sent_bytes(const Graph& graph, const Node& node) {
  return sent_bytes(*node.op, graph.types_of(node.inputs));
}

bool is_collective(const Graph& graph, const Node& node) {
  return work_of(*node.op) == WorkKind::elements && sent_bytes(graph, node) > 0;
}

std::vector<std::size_t> row_operands(const Op& op, Types inputs, Types outputs) {
  const Shape& y = outputs[0].shape;
  std::vector<std::size_t> operands;
  if (is_elementwise(op)) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].shape == y)
        operands.push_back(i);
      else if (inputs[i].shape != Shape{y[-1]})
        return {};
    return operands;
  }
  return ask(op, [&]<class T>(const T& o) -> std::vector<std::size_t> {
    if constexpr (ByRows<T>)
      if (o.by_rows(inputs)) return {0};
    return {};
  });
}

std::uint32_t* dimension_of(Op& op) {
  return std::visit(
      []<class T>(T& o) -> std::uint32_t* {
        if constexpr (AlongDimension<T>)
          return &o.dim;
        else
          return nullptr;
      },
      static_cast<OpVariant&>(op));
}

bool takes_dtype(const Op& op, DType dtype) {
  return ask(op, [dtype]<class T>(const T&) {
    return std::ranges::find(dtypes_of<T>(), dtype) != dtypes_of<T>().end();
  });
}

bool to_channels_last(Op& op) {
  return std::visit(
      []<class T>(T& o) {
        if constexpr (OnImages<T>)
          return std::exchange(o.layout, ImageLayout::nhwc) != ImageLayout::nhwc;
        else
          return false;
      },
      static_cast<OpVariant&>(op));
}

bool is_on_images(const Op& op) {
  return ask(op, []<class T>(const T&) { return OnImages<T>; });
}

std::int64_t id_range(const Op& op, Types inputs) {
  return ask(op, [&]<class T>(const T& o) -> std::int64_t {
    if constexpr (TakesIds<T>)
      return o.id_range(inputs);
    else
      return 1;
  });
}

std::string_view aten_name(const Op& op, Types inputs) {
  return ask(op, [&]<class T>(const T& o) -> std::string_view {
    if constexpr (InPyTorch<T>)
      return T::aten;
    else if constexpr (PartlyInPyTorch<T>)
      return o.aten_name(inputs);
    else
      return {};
  });
}

std::optional<StoredTransposed> stored_transposed(const Op& op) {
  return ask(op, []<class T>(const T& o) -> std::optional<StoredTransposed> {
    if constexpr (requires { o.trans_a&& o.trans_b; })
      return StoredTransposed{o.trans_a, o.trans_b};
    else
      return std::nullopt;
  });
}

std::shared_ptr<const Op> repetition_of(const std::shared_ptr<const Op>& op) {
  return std::visit(
      [&]<class T>(const T& o) -> std::shared_ptr<const Op> {
        if constexpr (requires { o.repetition(); })
          return std::make_shared<const Op>(o.repetition());
        else
          return op;
      },
      op->variant());
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
