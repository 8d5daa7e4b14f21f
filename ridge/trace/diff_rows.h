#pragma once

#include <vector>

#include "ridge/trace/diff.h"
#include "ridge/trace/tree_match.h"

namespace ridge::trace {

struct DiffInput {
  const StepTree& before;
  const StepTree& after;
  const std::vector<bool>& steps_before;  // whether a step is compared
  const std::vector<bool>& steps_after;
  const SharedNames& names;
  const TreeMatch& match;
};

// One row for all nodes of the same path, shape, kernel and change; none where nothing differs.
std::vector<DiffRow> diff_rows(const DiffInput& in);
std::vector<OperatorDiff> diff_operators(const DiffInput& in);

}  // namespace ridge::trace
