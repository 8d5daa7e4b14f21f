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

// As the operators' own costs count them.
std::int64_t flops_of(Code code) {
  switch (code) {
    case Code::add:
    case Code::mul:
    case Code::scale:
      return 1;
    case Code::silu:
      return 4;
    case Code::silu_grad:
      return 8;
    case Code::relu:
    case Code::relu_grad:
      return 0;
  }
  return 0;
}

double evaluate(const Step& step, double a, double b) {
  auto logistic = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  switch (step.code) {
    case Code::add:
      return a + b;
    case Code::mul:
      return a * b;
    case Code::scale:
      return step.factor * a;
    case Code::silu:
      return a * logistic(a);
    case Code::silu_grad:
      return a * logistic(b) * (1.0 + b * (1.0 - logistic(b)));
    case Code::relu:
      return std::max(a, 0.0);
    case Code::relu_grad:
      return b > 0 ? a : 0.0;
  }
  return 0;
}

}  // namespace

int operand_count(Code code) {
  return code == Code::scale || code == Code::silu || code == Code::relu ? 1 : 2;
}

std::vector<TensorType> Pointwise::infer(Types in) const {
  if (in.empty() || results.empty())
    throw ShapeError("pointwise needs operands and results, not {} and {}", in.size(),
                     results.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    check_dtype(name, in, i, dtypes);
    check_type(name, in, i, {in[i].dtype, in[0].shape});
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
    out.push_back({result.dtype, in[0].shape});
  }
  return out;
}

Cost Pointwise::cost(Types in, Types out) const {
  std::int64_t flops = 0;
  for (const Step& step : steps) flops += flops_of(step.code);
  return streaming_cost(flops * out[0].numel(), in, out);
}

void Pointwise::reference(ReferenceCall& call) const {
  std::vector<double> registers(call.inputs.size() + steps.size());
  for (std::int64_t i = 0; i < call.inputs[0].shape.numel(); ++i) {
    std::size_t next = 0;
    for (const ReferenceTensor& x : call.inputs) registers[next++] = x[i];
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
