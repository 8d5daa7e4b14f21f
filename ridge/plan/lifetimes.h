#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// Which memory each value of a graph occupies, and for how long. Several values may share one
// storage (a reshape, a slice, an update in place); a storage is named by the first value that has
// it, that of a packed value and its parts by the packed value. Inputs lie side by side in one,
// each at a multiple of the alignment, so that one transfer feeds them all.
struct Lifetimes {
  std::vector<ValueId> storage;     // by value: the value that owns its memory
  std::vector<std::size_t> offset;  // by value: the byte where it begins in its storage
  std::vector<bool> permanent;      // by storage: outlives a run (inputs, persistent, kept values)
  std::vector<std::size_t> bytes;   // by storage: what is allocated for it, rounded to alignment
  std::vector<std::vector<ValueId>> born;  // by node: the storages it allocates
  std::vector<std::vector<ValueId>> dead;  // by node: the storages no later node touches
};

// Tensors are allocated in multiples of this many bytes, on every device.
inline constexpr std::size_t tensor_alignment = 64;
std::size_t allocated_bytes(const TensorType& type);

// For how many nodes storages of at most so many bytes stay after their last use, so that kernels
// which do not depend on each other do not wait for each other's memory either.
struct Lingering {
  NodeId nodes = 0;
  std::size_t most_bytes = 0;
};

Lifetimes lifetimes_of(const Graph& graph);

// By storage: whether a node updates it in place.
std::vector<bool> updated_storages(const Graph& graph, const Lifetimes& lifetimes);

// By value: whether it keeps its memory and the host alone writes it, seldom: a weight that nothing
// trains, and no input.
std::vector<bool> seldom_written(const Graph& graph, const Lifetimes& lifetimes);

}  // namespace ridge
