#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ridge/trace/step_tree.h"

namespace ridge::trace {

// Numbers for texts that are the same in two trees, each of which has numbers of its own.
class SharedNames {
 public:
  SharedNames(const StepTree& a, const StepTree& b);

  std::uint32_t of_a(TextPool::Id id) const { return a_[id]; }
  std::uint32_t of_b(TextPool::Id id) const { return b_[id]; }

 private:
  std::vector<std::uint32_t> a_, b_;
};

// Which node of one tree is which of the other.
struct TreeMatch {
  std::vector<NodeId> to_b;  // by node of a; no_node if it is not there
  std::vector<NodeId> to_a;
  bool with_shapes = true;  // false if one of the traces has none: then shapes do not count
};

// From the root down, among the children of nodes that are the same: those of equal kind, name and
// shape, in order and then in any order; then those of equal name, whose shape has changed. What is
// left may stand elsewhere: what stands in annotations that only one tree has, and the operators
// within such operators, are looked for among each other. Work that is left below the same operator
// is the same with another kernel; outside of operators, if it stands between the same neighbours.
TreeMatch match(const StepTree& a, const StepTree& b, const SharedNames& names);

}  // namespace ridge::trace
