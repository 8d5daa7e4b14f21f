#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {

// Something that needs memory of its own while the nodes born .. died run, both included.
struct Tenant {
  std::size_t bytes = 0;
  NodeId born = 0;
  NodeId died = 0;

  bool meets(const Tenant& other) const { return born <= other.died && other.born <= died; }
};

// The most bytes that tenants need at one time: no arena can be smaller.
std::size_t most_live_bytes(std::span<const Tenant> tenants);

struct Placement {
  std::vector<std::size_t> offset;  // by tenant
  std::size_t bytes = 0;            // the highest end of a tenant
};

// Offsets such that no two tenants overlap that live at the same time, in as little memory as can
// be found with moderate effort: how good it is, tests say. A function of the tenants alone. The
// offsets are multiples of whatever all sizes are multiples of.
Placement place(std::span<const Tenant> tenants);

// One stretch of memory for everything a graph needs, from step to step at the same addresses.
// What outlives a run lies at the bottom, without gaps: it meets everything, so that nothing is
// lost by having it in the same arena, and all tensors are one allocation.
struct ArenaPlan {
  std::vector<std::size_t> storage;    // by storage: its offset
  std::vector<std::size_t> workspace;  // by node: the offset of its workspace
  std::size_t bytes = 0;
};

// Requirements on the offsets in an arena.
struct ArenaNeeds {
  // In bytes; a multiple of tensor_alignment.
  std::size_t alignment = tensor_alignment;
  Lingering lingering = {};
  // Whether tensors that go to other ranks together, and are replaced there, lie one after another,
  // each at the next multiple of the alignment: so that they are one stretch of memory. And whether
  // the workspaces of what talks to other ranks, one after another, are one stretch that nothing
  // else has from the first to the last, and what they send stays until the next one or longer,
  // where that takes at most 1 % more memory: else kernels beside them would wait for their memory.
  bool messages_in_one = false;
};

// `workspace` is by node, in bytes. The graph runs in its order; kept values live until its end.
ArenaPlan plan_arena(const Graph& graph, const Lifetimes& lifetimes,
                     std::span<const std::size_t> workspace, const ArenaNeeds& needs = {});

}  // namespace ridge
