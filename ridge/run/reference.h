#pragma once

#include <map>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// The oracle: evaluates nodes with the operators' own reference loops in double precision, ignoring
// the values' dtypes. `fed` holds the elements of every input and persistent value that is used
// (of a packed one, those of its parts; copies are what they repeat);
// the result holds those and every computed value. A value updated in place has its new content
// both under its own id and under the updating node's output.
using ReferenceValues = std::map<ValueId, std::vector<double>>;
ReferenceValues evaluate_reference(const Graph& graph, ReferenceValues fed);

}  // namespace ridge
