#pragma once

#include <memory>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// What follows from weights alone, such as their copies in 16 bits, need not be computed in every
// run; nor the conversion of inputs that many runs read. A graph is taken apart into two whose
// values have the same ids: one that is run once and computes what the other reads, and the other,
// which has those values as buffers.
struct Frozen {
  std::unique_ptr<Graph> setup;
  // Kept readable in the setup graph, and to be written to the running graph before its first run.
  std::vector<ValueId> values;
};

enum class FrozenInputs {
  none,
  // An input's conversion to another type, and that of images to channels last: runs find them as
  // the network computes with them, which is how tensor libraries are given theirs.
  conversions,
};

// Leaves the running graph in `graph` and gives the rest. Constant is what is computed from
// persistent values other than inputs, provided that no node updates them in place; what is free,
// like a reshape, stays where its result is wanted. Of the persistent values each graph keeps those
// that it uses, and the running graph those inputs that the setup graph does not read. The setup
// graph has no nodes if nothing is constant.
Frozen freeze(Graph& graph, FrozenInputs inputs = FrozenInputs::none);

}  // namespace ridge
