#include "ridge/ops/squeeze_excitation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

constexpr Epilogue inners[] = {Epilogue::relu, Epilogue::silu};
constexpr ActivationKind gates[] = {ActivationKind::sigmoid, ActivationKind::hard_sigmoid};

}  // namespace

std::vector<TensorType> SqueezeExcitation::infer(Types in) const {
  constexpr Operands at = operands();
  check_count(name, in, at.count);
  check_rank(name, in, at.x, 2);
  check_rank(name, in, at.w1, 2);
  check_dtype(name, in, at.x);
  const DType dtype = in[at.x].dtype;
  const std::int64_t channels = in[at.x].shape[1], squeezed = in[at.w1].shape[0];
  check_type(name, in, at.w1, {dtype, {squeezed, channels}});
  check_type(name, in, at.b1, {dtype, {squeezed}});
  check_type(name, in, at.w2, {dtype, {squeezed, channels}});
  check_type(name, in, at.b2, {dtype, {channels}});
  if (channels > most_channels)
    throw ShapeError("{} takes up to {} channels, not {}", name, most_channels, channels);
  if (std::ranges::find(inners, inner) == std::end(inners) ||
      std::ranges::find(gates, gate) == std::end(gates))
    throw ShapeError("{} has relu or silu inside, and is a sigmoid or hard_sigmoid", name);
  return {in[0]};
}

Cost SqueezeExcitation::cost(Types in, Types out) const {
  // As the convolutions and activations count that it stands for.
  const TensorType &x = in[operands().x], &w1 = in[operands().w1];
  const std::int64_t macs = 2 * x.numel() * w1.shape[0];
  const std::int64_t inside = x.shape[0] * w1.shape[0], outside = out[0].numel();
  Cost cost = streaming_cost(2 * macs + inside * (1 + element_function(inner).flops) +
                                 outside * (1 + element_function(gate).flops),
                             in, out);
  cost.macs = macs;
  return cost;
}

void SqueezeExcitation::reference(ReferenceCall& call) const {
  constexpr Operands at = operands();
  const auto &x = call.inputs[at.x], &w1 = call.inputs[at.w1], &b1 = call.inputs[at.b1];
  const auto &w2 = call.inputs[at.w2], &b2 = call.inputs[at.b2], &y = call.outputs[0];
  const std::int64_t channels = x.shape[1], squeezed = w1.shape[0];
  std::vector<double> sums(static_cast<std::size_t>(channels));
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    std::copy_n(b2.data.begin(), channels, sums.begin());
    for (std::int64_t s = 0; s < squeezed; ++s) {
      double sum = b1[s];
      for (std::int64_t c = 0; c < channels; ++c) sum += w1[s * channels + c] * x[n * channels + c];
      const double inside = element_function(inner).value(sum);
      for (std::int64_t c = 0; c < channels; ++c)
        sums[static_cast<std::size_t>(c)] += w2[s * channels + c] * inside;
    }
    for (std::int64_t c = 0; c < channels; ++c)
      y[n * channels + c] = element_function(gate).value(sums[static_cast<std::size_t>(c)]);
  }
}

std::vector<Sample<SqueezeExcitation>> SqueezeExcitation::samples() {
  std::vector<Sample<SqueezeExcitation>> samples;
  struct Sizes {
    std::int64_t n, channels, squeezed;
  };
  std::size_t i = 0;
  for (const auto& [n, c, s] : {Sizes{1, 1, 1},
                                {2, 32, 8},
                                {3, 17, 5},
                                {1, 96, 4},
                                {5, 480, 20},
                                {2, 1152, 48},
                                {9, 40, 33}}) {
    const auto of = [](const Shape& shape) { return SampleInput{{DType::f32, shape}}; };
    samples.push_back({{.inner = inners[i % 2], .gate = gates[i / 2 % 2]},
                       {of({n, c}), of({s, c}), of({s}), of({s, c}), of({c})}});
    ++i;
  }
  return samples;
}

static_assert(Operator<SqueezeExcitation>);

}  // namespace ridge
