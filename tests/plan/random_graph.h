#pragma once

// Graphs of no meaning, for properties that hold for any: a function of the seed.

#include <fmt/format.h>

#include <random>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/op.h"
#include "ridge/ops/reduce.h"
#include "ridge/ops/unary.h"

namespace ridge::testing {

class RandomGraph {
 public:
  // Appends about `nodes` nodes, all phases in their order.
  RandomGraph(Graph& graph, std::uint32_t seed, int nodes) : graph_(graph), random_(seed) {
    for (int i = 0; i < 3; ++i) values_.push_back(graph.input(name("input"), type()));
    const Shape wide{3, 5};
    for (int i = 0; i < 3; ++i)
      values_.push_back(graph.parameter(name("parameter"), wide, Init::normal(1.0f)));
    values_.push_back(graph.pack(std::span(values_).last(2), "packed"));
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
      const PhaseScope scope(graph, phase);
      for (int n = 0; n < nodes / 3; ++n) values_.push_back(next());
    }
    graph.keep(any(), "last");
  }

 private:
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::string name(std::string_view what) { return fmt::format("{} {}", what, names_++); }
  TensorType type() { return {DType::f32, {1 + below(9), 1 + below(60)}}; }

  // Mostly something recent, as in a model; sometimes something from far back.
  Value any() {
    const std::size_t reach =
        below(4) == 0 ? values_.size() : std::min<std::size_t>(values_.size(), 6);
    return values_[values_.size() - 1 - below(reach)];
  }

  Value next() {
    const Value x = any();
    const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
    switch (below(8)) {
      case 0:
        return reshape(x, {columns, rows});
      case 1: {
        const std::int64_t begin = below(static_cast<std::size_t>(rows));
        return slice(x, begin, 1 + below(static_cast<std::size_t>(rows - begin)));
      }
      case 2:
        return permute(x, {1, 0});
      case 3: {
        const Value sum = graph_.state(name("sum"), x.type(), Role::gradient, Init::ones());
        return graph_.apply1(Accumulate{}, {sum, x});
      }
      case 4:
        if (!graph_.info(x.id).kept && graph_.info(x.id).name.empty()) graph_.keep(x, name("kept"));
        return scale(x, 0.75f);
      case 5:
        return add(sum_to(x, {1, columns}), x);
      case 6:
        return graph_.apply1(GlobalNorm{}, {x, any()}).shape().rank() == 0 ? scale(x, 1.25f) : x;
      default:
        return add(x, x);
    }
  }

  Graph& graph_;
  std::mt19937 random_;
  std::vector<Value> values_;
  int names_ = 0;
};

}  // namespace ridge::testing
