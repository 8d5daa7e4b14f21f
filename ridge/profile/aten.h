#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// What a tool that knows PyTorch's operators is told of a node. Where an operator of PyTorch
// computes exactly the same, the node goes by its name (aten_name()), such as "aten::mm", with
// operands as that one would have them: a product's as matrices, a batch's leading dimensions as
// one, a transposed operand with the strides of a view. Any other is "ridge::<operator>" with its
// own operands.
struct AtenCall {
  struct Operand {
    std::vector<std::int64_t> dims, strides;
    std::string_view dtype;  // "float", "c10::BFloat16", "c10::Half", "int"
  };
  std::string name;
  std::vector<Operand> inputs;
};

AtenCall aten_call(const Graph& graph, const Node& node);

}  // namespace ridge
