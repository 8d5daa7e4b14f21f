#include "ridge/ops/reduce_all.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

constexpr Reduction kinds[] = {Reduction::mean,   Reduction::prod,   Reduction::norm,
                               Reduction::max,    Reduction::std,    Reduction::var,
                               Reduction::argmax, Reduction::argmin, Reduction::absmax};

bool gives_place(Reduction kind) { return kind == Reduction::argmax || kind == Reduction::argmin; }

double mean_of(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

double variance_of(std::span<const double> x) {
  const double mean = mean_of(x);
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(x.size() - 1);
}

double value_of(Reduction kind, std::span<const double> x) {
  double product = 1, squares = 0;
  switch (kind) {
    case Reduction::mean:
      return mean_of(x);
    case Reduction::prod:
      for (const double value : x) product *= value;
      return product;
    case Reduction::norm:
      for (const double value : x) squares += value * value;
      return std::sqrt(squares);
    case Reduction::max:
      return *std::ranges::max_element(x);
    case Reduction::std:
      return std::sqrt(variance_of(x));
    case Reduction::var:
      return variance_of(x);
    case Reduction::argmax:
      return static_cast<double>(std::ranges::max_element(x) - x.begin());
    case Reduction::argmin:
      return static_cast<double>(std::ranges::min_element(x) - x.begin());
    case Reduction::absmax:
      return std::abs(*std::ranges::max_element(x, {}, [](double v) { return std::abs(v); }));
  }
  return 0;
}

}  // namespace

std::string_view name_of(Reduction kind) {
  constexpr std::string_view names[] = {"mean", "prod",   "norm",   "max",   "std",
                                        "var",  "argmax", "argmin", "absmax"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<TensorType> ReduceAll::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  if (in[0].numel() == 0)
    throw ShapeError("{} of no elements: {}", name_of(kind), in[0].to_string());
  if (!gives_place(kind)) return {{in[0].dtype, {}}};
  if (in[0].numel() > std::numeric_limits<std::int32_t>::max())
    throw ShapeError("{} counts to 2^31 - 1: {}", name_of(kind), in[0].to_string());
  return {{DType::i32, {}}};
}

Cost ReduceAll::cost(Types in, Types out) const {
  const std::int64_t n = in[0].numel();
  switch (kind) {
    case Reduction::mean:
      return streaming_cost(n, in, out);  // n - 1 adds and a division
    case Reduction::prod:
      return streaming_cost(n - 1, in, out);
    case Reduction::norm:
      return streaming_cost(2 * n, in, out);  // squares, n - 1 adds, a root
    case Reduction::std:
      return streaming_cost(4 * n + 1, in, out);
    case Reduction::var:
      return streaming_cost(4 * n, in, out);  // the mean, and a difference, a square and an add
    default:
      return streaming_cost(0, in, out);  // comparisons are not counted
  }
}

std::string_view ReduceAll::aten_name(Types) const {
  switch (kind) {
    case Reduction::mean:
      return "aten::mean";
    case Reduction::prod:
      return "aten::prod";
    case Reduction::norm:
      return "aten::linalg_vector_norm";
    case Reduction::max:
      return "aten::max";
    case Reduction::std:
      return "aten::std";
    case Reduction::var:
      return "aten::var";
    case Reduction::argmax:
      return "aten::argmax";
    case Reduction::argmin:
      return "aten::argmin";
    case Reduction::absmax:
      break;
  }
  return "";
}

void ReduceAll::reference(ReferenceCall& call) const {
  call.outputs[0][0] = value_of(kind, call.inputs[0].data);
}

std::vector<Sample<ReduceAll>> ReduceAll::samples() {
  std::vector<Sample<ReduceAll>> samples;
  for (const Reduction kind : kinds) {
    for (const Shape& shape : {Shape{2}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
      // Products of many numbers stay in range where these are about 1.
      samples.push_back({{kind},
                         {{{DType::f32, shape},
                           kind == Reduction::prod ? 0.995 : -1.0,
                           kind == Reduction::prod ? 1.005 : 1.0}}});
    samples.push_back({{kind}, {{{DType::f32, {}}, 0.5, 1.0}}});
  }
  // A mean far from 0 must not drown the deviations from it.
  for (const Reduction kind : {Reduction::std, Reduction::var})
    samples.push_back({{kind}, {{{DType::f32, {70001}}, 99.0, 101.0}}});
  std::erase_if(samples, [](const Sample<ReduceAll>& s) {
    return (s.op.kind == Reduction::var || s.op.kind == Reduction::std) &&
           s.inputs[0].type.numel() == 1;
  });
  return samples;
}

static_assert(Operator<ReduceAll>);

}  // namespace ridge
