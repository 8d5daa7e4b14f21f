#include "ridge/ops/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

TensorType per_row(const TensorType& logits, DType dtype) {
  const auto dims = logits.shape.dims();
  return {dtype, Shape(dims.first(dims.size() - 1))};
}

void check_classes(std::string_view op, std::int64_t classes) {
  if (classes < 1) throw ShapeError("{} of {} classes", op, classes);
}

// Shapes of logits, and how many of their columns are classes.
constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
std::vector<std::pair<Shape, std::int64_t>> sample_shapes() {
  return {{{1}, all},        {{1, 1}, all},     {{5, 7}, all},    {{2, 3, 33}, all},
          {{100, 257}, all}, {{3, 8}, 1},       {{2, 3, 40}, 33}, {{100, 264}, 257},
          {{3, 1032}, 1031}, {{2, 4104}, 4097}, {{5, 7}, 4}};
}

}  // namespace

std::vector<TensorType> CrossEntropy::infer(Types in) const {
  check_count(name, in, 2);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0);
  check_type(name, in, 1, per_row(in[0], DType::i32));
  check_classes(name, classes);
  return {{DType::f32, {}}, per_row(in[0], DType::f32)};
}

Cost CrossEntropy::cost(Types in, Types out) const {
  // Per element: less the maximum, exp, sum. Per row: log, plus the maximum, less the target's
  // logit, sum. Once: the division by the rows. Comparisons for the maximum are not counted.
  const std::int64_t rows = in[1].numel();
  return streaming_cost((3 * id_range(in) + 4) * rows + 1, in, out);
}

std::vector<Value> CrossEntropy::grad(GradBuilder& b) const {
  if (b.grad(1)) throw UsageError("cross_entropy: only the loss has a gradient, not lse");
  return {b.graph().apply1(CrossEntropyGrad{.classes = classes},
                           {b.grad(), b.input(0), b.input(1), b.output(1)})};
}

void CrossEntropy::reference(ReferenceCall& call) const {
  const auto &logits = call.inputs[0], &targets = call.inputs[1];
  const auto &loss = call.outputs[0], &lse = call.outputs[1];
  const std::int64_t rows = logits.shape.rows(), columns = logits.shape[-1];
  const std::int64_t counted = std::min(classes, columns);
  loss[0] = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    double max = logits[r * columns], sum = 0;
    for (std::int64_t c = 0; c < counted; ++c) max = std::max(max, logits[r * columns + c]);
    for (std::int64_t c = 0; c < counted; ++c) sum += std::exp(logits[r * columns + c] - max);
    lse[r] = max + std::log(sum);
    const auto target = static_cast<std::int64_t>(targets[r]);
    loss[0] += (lse[r] - logits[r * columns + target]) / static_cast<double>(rows);
  }
}

std::vector<Sample<CrossEntropy>> CrossEntropy::samples() {
  std::vector<Sample<CrossEntropy>> samples;
  for (const auto& [shape, classes] : sample_shapes()) {
    const CrossEntropy op{classes};
    const TensorType logits{DType::f32, shape};
    const auto ids = static_cast<double>(op.id_range(std::array{logits}));
    samples.push_back({op, {{logits, -4.0, 4.0}, {per_row(logits, DType::i32), 0.0, ids}}});
  }
  return samples;
}

std::vector<TensorType> CrossEntropyGrad::infer(Types in) const {
  constexpr Operands at = operands();
  check_count(name, in, at.count);
  check_min_rank(name, in, at.logits, 1);
  check_dtype(name, in, at.logits);
  check_type(name, in, at.dloss, {DType::f32, {}});
  check_type(name, in, at.targets, per_row(in[at.logits], DType::i32));
  check_type(name, in, at.lse, per_row(in[at.logits], DType::f32));
  check_classes(name, classes);
  return {in[at.logits]};
}

Cost CrossEntropyGrad::cost(Types in, Types out) const {
  // Per element: less lse, exp, times the scale. Per row: less the scale, at the target. Once: the
  // scale.
  const std::int64_t rows = in[operands().targets].numel();
  return streaming_cost((3 * id_range(in) + 1) * rows + 1, in, out);
}

std::optional<Alias> CrossEntropyGrad::aliased_input(std::uint32_t, Types) const {
  return in_place ? std::optional(Alias{operands().logits}) : std::nullopt;
}

void CrossEntropyGrad::reference(ReferenceCall& call) const {
  constexpr Operands at = operands();
  const auto &dloss = call.inputs[at.dloss], &logits = call.inputs[at.logits];
  const auto &targets = call.inputs[at.targets], &lse = call.inputs[at.lse];
  const auto& dlogits = call.outputs[0];
  const std::int64_t rows = logits.shape.rows(), columns = logits.shape[-1];
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const double hit = c == static_cast<std::int64_t>(targets[r]) ? 1.0 : 0.0;
      const double part = std::exp(logits[r * columns + c] - lse[r]) - hit;
      dlogits[r * columns + c] = c < classes ? dloss[0] / static_cast<double>(rows) * part : 0;
    }
}

std::vector<Sample<CrossEntropyGrad>> CrossEntropyGrad::samples() {
  std::vector<Sample<CrossEntropyGrad>> samples;
  for (const auto& [shape, classes] : sample_shapes()) {
    const TensorType logits{DType::f32, shape};
    const auto ids = static_cast<double>(std::min(classes, shape[-1]));
    for (const bool in_place : {false, true})
      samples.push_back({{in_place, classes},
                         {{{DType::f32, {}}, 0.5, 2.0},
                          {logits, -4.0, 4.0},
                          {per_row(logits, DType::i32), 0.0, ids},
                          {per_row(logits, DType::f32), 4.0, 7.0}}});
  }
  return samples;
}

Value cross_entropy(Value logits, Value targets) {
  return logits.graph->apply(CrossEntropy{}, std::array{logits, targets})[0];
}

static_assert(Operator<CrossEntropy> && Differentiable<CrossEntropy>);
static_assert(Operator<CrossEntropyGrad> && Aliasing<CrossEntropyGrad>);

}  // namespace ridge
