#pragma once

// What a graph may ask of any operator. ops/op.cpp answers by one visit of the closed set, so that
// nothing here depends on which operators there are.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/shape.h"
#include "ridge/graph/graph.h"

namespace ridge {

class GradBuilder;

// The exact work of one node. A multiply and an add are one operation each, so a product of
// [m, k] and [k, n] costs 2 m n k; exp, log, sin, square root and division count one each;
// comparisons, selections and conversions count none.
struct Cost {
  std::int64_t flops = 0;
  // The multiply-accumulates of products: each is two of `flops`.
  std::int64_t macs = 0;
  // The part of `flops` that a causal mask leaves necessary: equal to `flops` but for the products
  // of masked attention scores, where only the keys up to the query's own position count.
  std::int64_t causal_flops = 0;
  std::int64_t bytes_read = 0;     // each input once (of a gathered table, the rows gathered)
  std::int64_t bytes_written = 0;  // each output once

  std::int64_t bytes() const { return bytes_read + bytes_written; }
  Cost& operator+=(const Cost& other);
  bool operator==(const Cost&) const = default;
};

Cost operator*(const Cost& once, std::int64_t times);

std::string_view name_of(const Op& op);
std::vector<TensorType> infer(const Op& op, Types inputs);
Cost cost(const Op& op, Types inputs, Types outputs);
Cost cost(const Graph& graph, const Node& node);

// Where an output lies in the memory of an input.
struct Alias {
  std::uint32_t input = 0;
  std::int64_t offset_elements = 0;  // of a slice: where it begins
};

// The input whose memory output `output` shares, if any: a reshape's or slice's, or one updated in
// place.
std::optional<Alias> aliased_input(const Op& op, std::uint32_t output, Types inputs);

// Appends the nodes that compute the gradient of each input; "no value" where there is none.
// UsageError for an operator without a gradient.
std::vector<Value> grad(const Op& op, GradBuilder& builder);

}  // namespace ridge
