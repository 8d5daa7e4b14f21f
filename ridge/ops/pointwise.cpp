#include "ridge/ops/pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

using Code = Pointwise::Code;
using Step = Pointwise::Step;

bool is_gradient(Code code) {
  return code == Code::silu_grad || code == Code::relu_grad || code == Code::activation_grad;
}

// The function of one element that a step is, or is the gradient of; null for arithmetic.
const ElementFunction* function_of(const Step& step) {
  switch (step.code) {
    case Code::add:
    case Code::mul:
    case Code::scale:
      return nullptr;
    case Code::silu:
    case Code::silu_grad:
      return &silu_function;
    case Code::relu:
    case Code::relu_grad:
      return &relu_function;
    case Code::activation:
    case Code::activation_grad:
      return &element_function(step.kind);
  }
  return nullptr;
}

// As the operators' own costs count them.
std::int64_t flops_of(const Step& step) {
  const ElementFunction* f = function_of(step);
  if (!f) return 1;
  return is_gradient(step.code) ? f->gradient_flops : f->flops;
}

double evaluate(const Step& step, double a, double b) {
  if (const ElementFunction* f = function_of(step))
    return is_gradient(step.code) ? a * f->derivative(b) : f->value(a);
  if (step.code == Code::scale) return step.factor * a;
  return step.code == Code::add ? a + b : a * b;
}

}  // namespace

int operand_count(Code code) {
  return code == Code::add || code == Code::mul || is_gradient(code) ? 2 : 1;
}

std::string name_of(const Step& step) {
  if (const ElementFunction* f = function_of(step))
    return std::string(f->name) + (is_gradient(step.code) ? "_grad" : "");
  return step.code == Code::add ? "add" : step.code == Code::mul ? "mul" : "scale";
}

BroadcastLoops::BroadcastLoops(const Shape& shape, Types in) : moves(in.size()) {
  std::vector<bool> outer;  // of the operands: whether each moves along the loop before
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const int back = static_cast<int>(d) - static_cast<int>(shape.rank());
    const std::int64_t extent = shape[back];
    if (extent == 1) continue;
    std::vector<bool> here;
    for (const TensorType& type : in)
      here.push_back(static_cast<int>(type.shape.rank()) >= -back && type.shape[back] == extent);
    if (!extents.empty() && here == outer) {
      extents.back() *= extent;
    } else {
      extents.push_back(extent);
      for (std::size_t i = 0; i < in.size(); ++i) moves[i].push_back(here[i]);
    }
    outer = here;
  }
}

bool BroadcastLoops::is_whole(std::size_t operand) const {
  return std::ranges::all_of(moves[operand], [](bool m) { return m; });
}

std::vector<TensorType> Pointwise::infer(Types in) const {
  if (in.empty() || results.empty())
    throw ShapeError("pointwise needs operands and results, not {} and {}", in.size(),
                     results.size());
  Shape shape;
  for (std::size_t i = 0; i < in.size(); ++i) {
    check_dtype(name, in, i);
    try {
      shape = broadcast(shape, in[i].shape);
    } catch (const ShapeError& error) {
      throw ShapeError("{}: {} of operands {}", name, error.what(), list_of(in));
    }
  }
  auto check_register = [&](std::size_t value, std::size_t known, std::string_view user) {
    if (value >= known)
      throw ShapeError("pointwise: a {} uses register {} where there are {}", user, value, known);
  };
  const std::size_t registers = in.size() + steps.size();
  if (registers > std::numeric_limits<std::uint16_t>::max())
    throw ShapeError("pointwise: {} operands and steps are too many", registers);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    check_register(steps[s].a, in.size() + s, "step");
    if (operand_count(steps[s].code) == 2) check_register(steps[s].b, in.size() + s, "step");
  }
  std::vector<TensorType> out;
  for (const Result& result : results) {
    check_register(result.value, registers, "result");
    if (!is_floating(result.dtype))
      throw ShapeError("pointwise has no result in {}", name_of(result.dtype));
    out.push_back({result.dtype, shape});
  }
  return out;
}

Cost Pointwise::cost(Types in, Types out) const {
  std::int64_t flops = 0;
  for (const Step& step : steps) flops += flops_of(step);
  return streaming_cost(flops * out[0].numel(), in, out);
}

void Pointwise::reference(ReferenceCall& call) const {
  std::vector<double> registers(call.inputs.size() + steps.size());
  const Shape& shape = call.outputs[0].shape;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    std::size_t next = 0;
    for (const ReferenceTensor& x : call.inputs)
      registers[next++] = x[broadcast_source(x.shape, shape, i)];
    for (const Step& step : steps)
      registers[next++] = evaluate(step, registers[step.a], registers[step.b]);
    for (std::size_t r = 0; r < results.size(); ++r)
      call.outputs[r][i] = registers[results[r].value];
  }
}

std::vector<Sample<Pointwise>> Pointwise::samples() {
  std::vector<Sample<Pointwise>> samples;
  auto add = [&](const Shape& shape, std::size_t operands, const Pointwise& op) {
    const SampleInput input{{DType::f32, shape}, -4.0, 4.0};
    samples.push_back({op, std::vector<SampleInput>(operands, input)});
  };
  // Every operator once, one after another, with operands used early, late and twice.
  const Pointwise chain{.steps = {{Code::silu, 0},
                                  {Code::mul, 3, 1},
                                  {Code::relu, 1},
                                  {Code::scale, 5, 0, -0.25f},
                                  {Code::add, 4, 6},
                                  {Code::silu_grad, 7, 2},
                                  {Code::relu_grad, 8, 0},
                                  {Code::mul, 9, 9},
                                  {Code::add, 10, 4},
                                  {Code::scale, 11, 0, 0.5f},
                                  {Code::add, 12, 11}},
                        .results = {{13}}};
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    add(shape, 3, chain);
  for (const DType narrow : {DType::bf16, DType::f16}) {
    // Results of one value in two dtypes, of an operand, and of a value that later steps use.
    add({3, 700}, 2,
        {.steps = {{Code::add, 0, 1}, {Code::scale, 2, 0, 3.0f}},
         .results = {{3}, {3, narrow}, {2, narrow}, {2}, {2}, {0}, {1, narrow}}});
    // A narrow result that a later step needs unrounded.
    add({9, 31}, 2,
        {.steps = {{Code::mul, 0, 1}, {Code::scale, 2, 0, 3.0f}}, .results = {{2, narrow}, {3}}});
    add({17}, 1, {.steps = {}, .results = {{0, narrow}}});
  }
  // Operands that broadcast: a row, a column, a scalar, a factor of each image's channels, a value
  // of each plane; along extents that are no multiple of a vector, too.
  const auto broadcasts = [&](std::vector<Shape> shapes, const Pointwise& op) {
    std::vector<SampleInput> inputs;
    for (const Shape& shape : shapes) inputs.push_back({{DType::f32, shape}, -4.0, 4.0});
    samples.push_back({op, inputs});
  };
  const Pointwise biased{
      .steps = {{Code::add, 0, 1},
                {.code = Code::activation, .a = 2, .kind = ActivationKind::gelu}},
      .results = {{3}}};
  for (const auto& [x, b] : {std::pair{Shape{129, 96}, Shape{96}},
                             {{2, 5, 33}, {33}},
                             {{130, 1}, {1, 70}},
                             {{7, 12, 40}, {7, 1, 40}},
                             {{3, 5, 7, 11}, {3, 5, 1, 1}},
                             {{40}, {9, 16, 40}},
                             {{6, 8}, {}}})
    broadcasts({x, b}, biased);
  broadcasts({{3, 24, 16}, {16}, {3, 1, 16}, {24, 1}, {3, 24, 16}},
             {.steps = {{Code::add, 0, 1}, {Code::mul, 5, 2}, {Code::mul, 6, 3}, {Code::add, 7, 4}},
              .results = {{8}, {1}, {5, DType::bf16}}});
  // The other activations and their gradients.
  for (const ActivationKind kind :
       {ActivationKind::relu6, ActivationKind::sigmoid, ActivationKind::hard_sigmoid,
        ActivationKind::hard_swish, ActivationKind::gelu, ActivationKind::tanh, ActivationKind::exp,
        ActivationKind::exp_capped})
    add({5, 67}, 2,
        {.steps = {{.code = Code::activation, .a = 0, .kind = kind},
                   {.code = Code::activation_grad, .a = 2, .b = 1, .kind = kind},
                   {Code::scale, 3, 0, 0.5f}},
         .results = {{4}, {2}}});
  // More values alive at once than steps that could share their place.
  Pointwise wide{.steps = {}, .results = {}};
  for (std::uint16_t i = 0; i < 20; ++i)
    wide.steps.push_back({Code::scale, 0, 0, 1.0f + static_cast<float>(i)});
  for (std::uint16_t i = 0; i < 19; ++i)
    wide.steps.push_back({Code::add, static_cast<std::uint16_t>(i == 0 ? 1 : 20 + i),
                          static_cast<std::uint16_t>(i + 2)});
  wide.results = {{39, DType::bf16}, {39}};
  add({5, 1031}, 1, wide);
  return samples;
}

static_assert(Operator<Pointwise>);

}  // namespace ridge
