#pragma once

// What convolutions and linear layers take into their own kernels.

#include <optional>
#include <vector>

#include "ridge/ops/epilogue.h"
#include "ridge/passes/rewrite.h"

namespace ridge {

// The epilogue that computes what node n does; none if there is no such.
inline Epilogue epilogue_of(const Rewriter& rw, NodeId n) {
  const Op* op = rw.op(n);
  return op ? as_epilogue(*op) : Epilogue::none;
}

// The one node that uses v if nobody else needs v.
inline NodeId reader(const Rewriter& rw, ValueId v) {
  return rw.uses(v).size() == 1 && !rw.is_readable(v) ? rw.uses(v).front() : no_node;
}

// The operand that node n adds to v, if n only adds and that operand is another value of v's type.
inline std::optional<ValueId> residual_of(const Rewriter& rw, NodeId n, ValueId v) {
  if (!rw.op<Add>(n)) return std::nullopt;
  const std::vector<ValueId>& in = rw.node(n).inputs;
  const ValueId other = in[0] == v ? in[1] : in[0];
  if (other == v || rw.type(other) != rw.type(v)) return std::nullopt;
  return other;
}

}  // namespace ridge
