#include "ridge/ops/binary.h"

#include "ridge/ops/elementwise.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

std::vector<TensorType> infer_binary(std::string_view name, Types in) {
  check_count(name, in, 2);
  check_dtype(name, in, 0);
  check_same_dtype(name, in, 0, 1);
  try {
    return {{in[0].dtype, broadcast(in[0].shape, in[1].shape)}};
  } catch (const ShapeError& error) {
    throw ShapeError("{}: {}", name, error.what());
  }
}

template <class F>
void reference_binary(ReferenceCall& call, F function) {
  const auto &a = call.inputs[0], &b = call.inputs[1], &c = call.outputs[0];
  for (std::int64_t i = 0; i < c.shape.numel(); ++i)
    c[i] = function(a[broadcast_source(a.shape, c.shape, i)],
                    b[broadcast_source(b.shape, c.shape, i)]);
}

template <class T>
std::vector<Sample<T>> samples_binary() {
  std::vector<Sample<T>> samples;
  auto sample = [&](const Shape& a, const Shape& b) {
    samples.push_back({{}, {{{DType::f32, a}}, {{DType::f32, b}}}});
  };
  // Equal shapes.
  for (const Shape& shape : elementwise_shapes()) sample(shape, shape);
  // A row over all rows, a column over all columns, a scalar over all, from either side.
  for (const Shape& small : {Shape{33}, Shape{1, 33}, Shape{5, 1}, Shape{}, Shape{2, 1, 1}}) {
    sample({2, 5, 33}, small);
    sample(small, {2, 5, 33});
  }
  sample({130, 257}, {257});
  sample({257, 130}, {257, 1});
  // Both broadcast, in turns, up to the highest rank.
  sample({4, 1, 3}, {5, 1});
  sample({2, 1, 3, 1, 2, 1}, {1, 3, 1, 2, 1, 5});
  return samples;
}

}  // namespace

std::int64_t broadcast_source(const Shape& operand, const Shape& result, std::int64_t index) {
  std::int64_t offset = 0, stride = 1;
  for (int d = 1; d <= static_cast<int>(operand.rank()); ++d) {
    const std::int64_t i = index % result[-d];
    if (operand[-d] != 1) offset += i * stride;
    index /= result[-d];
    stride *= operand[-d];
  }
  return offset;
}

std::vector<TensorType> Add::infer(Types in) const { return infer_binary(name, in); }

Cost Add::cost(Types in, Types out) const {
  return streaming_cost(out[0].numel(), in, out);  // one add per element of the result
}

std::vector<Value> Add::grad(GradBuilder& b) const { return {b.grad(), b.grad()}; }

std::optional<PointwiseStep> Add::as_step(Types) const { return {{.code = StepCode::add}}; }

void Add::reference(ReferenceCall& call) const {
  reference_binary(call, [](double a, double b) { return a + b; });
}

std::vector<Sample<Add>> Add::samples() { return samples_binary<Add>(); }

std::vector<TensorType> Mul::infer(Types in) const { return infer_binary(name, in); }

Cost Mul::cost(Types in, Types out) const {
  return streaming_cost(out[0].numel(), in, out);  // one product per element of the result
}

std::vector<Value> Mul::grad(GradBuilder& b) const {
  Value da, db;
  if (b.needs(0)) da = mul(b.grad(), b.input(1));
  if (b.needs(1)) db = mul(b.grad(), b.input(0));
  return {da, db};
}

std::optional<PointwiseStep> Mul::as_step(Types) const { return {{.code = StepCode::mul}}; }

void Mul::reference(ReferenceCall& call) const {
  reference_binary(call, [](double a, double b) { return a * b; });
}

std::vector<Sample<Mul>> Mul::samples() { return samples_binary<Mul>(); }

std::string_view name_of(ArithmeticKind kind) {
  constexpr std::string_view names[] = {"sub", "div", "equal"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<TensorType> Arithmetic::infer(Types in) const {
  return infer_binary(name_of(kind), in);
}

Cost Arithmetic::cost(Types in, Types out) const {
  // Comparisons are not counted.
  return streaming_cost(kind == ArithmeticKind::equal ? 0 : out[0].numel(), in, out);
}

// PyTorch's comparison gives truth values, not numbers.
std::string_view Arithmetic::aten_name(Types) const {
  switch (kind) {
    case ArithmeticKind::sub:
      return "aten::sub";
    case ArithmeticKind::div:
      return "aten::div";
    case ArithmeticKind::equal:
      break;
  }
  return "";
}

void Arithmetic::reference(ReferenceCall& call) const {
  reference_binary(call, [kind = kind](double a, double b) {
    if (kind == ArithmeticKind::equal) return a == b ? 1.0 : 0.0;
    return kind == ArithmeticKind::sub ? a - b : a / b;
  });
}

std::vector<Sample<Arithmetic>> Arithmetic::samples() {
  std::vector<Sample<Arithmetic>> samples;
  for (const auto kind : {ArithmeticKind::sub, ArithmeticKind::div, ArithmeticKind::equal})
    for (auto& [op, inputs] : samples_binary<Arithmetic>()) {
      if (kind == ArithmeticKind::div) inputs[1].low = 0.5;  // away from the pole
      samples.push_back({{kind}, inputs});
    }
  // Where some elements are equal: one element of each side in turn.
  samples.push_back({{ArithmeticKind::equal},
                     {{{DType::f32, {64, 1}}, 1.0, 1.0}, {{DType::f32, {9}}, 1.0, 1.0}}});
  return samples;
}

Value add(Value a, Value b) { return a.graph->apply1(Add{}, {a, b}); }
Value mul(Value a, Value b) { return a.graph->apply1(Mul{}, {a, b}); }

static_assert(Operator<Add> && Differentiable<Add>);
static_assert(Operator<Arithmetic>);
static_assert(Operator<Mul> && Differentiable<Mul>);

}  // namespace ridge
