#pragma once

// Weights for tests that nobody has to ship: each element is a function of its tensor's name and
// its place. vision_golden.py has the same rule.

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/base/shape.h"
#include "ridge/graph/graph.h"
#include "ridge/run/executor.h"

namespace ridge {

// Element `index` of a stream, uniform in [0, 1): SplitMix64's finalizer (Steele, Lea, Flood, 2014)
// over a counter that begins at the stream's number.
inline float rule_uniform(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t z = stream + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-24f;
}

// Weights that keep activations within bounds through a hundred layers.
inline void fill_by_rule(std::span<float> out, std::string_view name, const Shape& shape) {
  const std::uint64_t stream = stream_of(name);
  float scale = 0, offset = 0;
  if (name.ends_with("running_var")) {
    scale = 1.0f, offset = 0.5f;
  } else if (name.ends_with("running_mean") || name.ends_with("bias")) {
    scale = 0.05f, offset = -0.025f;
  } else if (name.ends_with("logit_scale")) {
    scale = 1.0f, offset = 2.0f;
  } else if (shape.rank() == 1) {
    scale = 0.4f, offset = 0.4f;
  } else {
    const std::int64_t fan_in = shape.numel() / shape[0];
    const auto bound = static_cast<float>(std::sqrt(6.0 / static_cast<double>(fan_in)));
    scale = 2 * bound, offset = -bound;
  }
  // Fused in so many words, so that the bits are the same whatever a compiler fuses: one in the
  // last place decides on which side of a kink an element falls.
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::fma(rule_uniform(stream, i), scale, offset);
}

// Calls `take` with each parameter and buffer that is no constant, and with its weights.
template <class Take>
void for_each_weight(Graph& graph, const Take& take) {
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    const bool weights = info.role == Role::parameter || info.role == Role::buffer;
    if (!weights || info.init.kind == Init::Kind::values) continue;
    std::vector<float> values(static_cast<std::size_t>(info.type.numel()));
    fill_by_rule(values, info.name, info.type.shape);
    take(graph.value(id), std::move(values));
  }
}

// Makes the weights the initial values of the graph.
inline void set_weights_by_rule(Graph& graph) {
  for_each_weight(graph, [&](Value weight, std::vector<float> values) {
    graph.set_init(weight, Init::of(std::move(values)));
  });
}

// Initializes what an executor keeps, constants among it, and writes the weights.
inline void initialize_by_rule(Graph& graph, Executor& executor) {
  executor.initialize(0);
  for_each_weight(graph, [&](Value weight, const std::vector<float>& values) {
    executor.write(weight, std::span<const float>(values));
  });
}

}  // namespace ridge
