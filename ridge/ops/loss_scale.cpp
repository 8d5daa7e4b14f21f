#include "ridge/ops/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> UpdateLossScale::infer(Types in) const {
  constexpr Operands at = operands();
  check_count(name, in, at.count);
  check_type(name, in, at.scale, {DType::f32, {}});
  check_type(name, in, at.counters, {DType::f32, {2}});
  check_type(name, in, at.schedule, {DType::f32, {3}});
  check_type(name, in, at.norm, {DType::f32, {}});
  return {in[at.scale], in[at.counters], AdamW{.scaled = true}.schedule_type(), {DType::f32, {3}}};
}

// A few scalars, once.
Cost UpdateLossScale::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

std::optional<Alias> UpdateLossScale::aliased_input(std::uint32_t output, Types) const {
  if (output > 1) return std::nullopt;
  return Alias{.input = output};
}

void UpdateLossScale::reference(ReferenceCall& call) const {
  constexpr Operands at = operands();
  const double scale = call.inputs[at.scale][0], norm = call.inputs[at.norm][0];
  const double rate = call.inputs[at.schedule][0];
  const auto& counters = call.inputs[at.counters];
  const bool good = std::isfinite(norm);
  const bool grows = good && counters[0] + 1 >= static_cast<double>(rule.growth_interval);
  const double t = counters[1] + (good ? 1 : 0);
  const double grown = scale * static_cast<double>(rule.growth);
  const double largest = std::numeric_limits<float>::max(),
               least = std::numeric_limits<float>::min();
  double next = scale;
  if (grows && grown <= largest) next = grown;
  if (!good) next = std::max(least, scale * static_cast<double>(rule.backoff));
  call.outputs[0][0] = next;
  call.outputs[1][0] = good && !grows ? counters[0] + 1 : 0;
  call.outputs[1][1] = t;
  call.outputs[2][0] = rate;
  call.outputs[2][1] = 1 - std::pow(beta1, t);
  call.outputs[2][2] = 1 - std::pow(beta2, t);
  call.outputs[2][3] = good ? 1 / scale : 0;
  call.outputs[3][0] = good ? norm / scale : std::numeric_limits<double>::infinity();
  call.outputs[3][1] = scale;
  call.outputs[3][2] = next;
}

std::vector<Sample<UpdateLossScale>> UpdateLossScale::samples() {
  const auto f32 = [](Shape shape, double low, double high) {
    return SampleInput{{DType::f32, shape}, low, high};
  };
  std::vector<Sample<UpdateLossScale>> samples;
  // Far from growing, and growing at once.
  for (const std::int64_t interval : {2000, 1})
    samples.push_back(
        {{.rule = {.growth_interval = interval}},
         {f32({}, 1.0, 1024.0), f32({2}, 1.0, 9.0), f32({3}, 0.1, 0.9), f32({}, 0.5, 3000.0)}});
  return samples;
}

static_assert(Operator<UpdateLossScale> && Aliasing<UpdateLossScale>);

}  // namespace ridge
