#include "ridge/plan/arena.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace ridge {
namespace {

using Order = std::vector<std::uint32_t>;  // of tenants, by index

// Gives the tenants their places one by one, each in the lowest gap that is large enough, within
// `limit` bytes. Stops at the first that finds none and returns its position in the order; the
// number of tenants if all have a place.
std::size_t place_in(const Order& order, std::span<const Tenant> tenants, std::size_t limit,
                     Placement& result) {
  struct Placed {
    Tenant tenant;
    std::size_t begin, end;
  };
  std::vector<Placed> placed;  // by begin
  placed.reserve(tenants.size());
  result.offset.assign(tenants.size(), 0);
  result.bytes = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Tenant& tenant = tenants[order[i]];
    std::size_t begin = 0;
    for (const Placed& p : placed) {
      if (!p.tenant.meets(tenant)) continue;
      if (p.begin >= begin + tenant.bytes) break;
      begin = std::max(begin, p.end);
    }
    const std::size_t end = begin + tenant.bytes;
    if (end > limit) return i;
    result.offset[order[i]] = begin;
    result.bytes = std::max(result.bytes, end);
    placed.insert(std::ranges::upper_bound(placed, begin, {}, &Placed::begin),
                  {tenant, begin, end});
  }
  return order.size();
}

// The largest first; of equals, the first to be born.
Order by_size(std::span<const Tenant> tenants) {
  Order order(tenants.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(tenants[b].bytes, tenants[a].born) <
           std::pair(tenants[a].bytes, tenants[b].born);
  });
  return order;
}

// Those that live longest first; of equals, the largest.
Order by_lifetime(std::span<const Tenant> tenants) {
  Order order = by_size(tenants);
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::uint32_t i) { return tenants[i].died - tenants[i].born; });
  return order;
}

// Greedy, then squeezed: whoever finds no place in less memory than the best so far came too late
// and chooses first in the next round. Leaves `best` as it is if nothing better is found; stops
// once that is good enough.
void squeeze(Order order, std::span<const Tenant> tenants, std::size_t rounds,
             std::size_t good_enough, Placement& best) {
  Placement tried;
  for (std::size_t round = 0; round < rounds && best.bytes > good_enough; ++round) {
    const std::size_t late = place_in(order, tenants, best.bytes - 1, tried);
    if (late == order.size()) {
      std::swap(best, tried);
    } else {
      const auto at = order.begin() + static_cast<std::ptrdiff_t>(late);
      std::rotate(order.begin(), at, at + 1);
    }
  }
}

}  // namespace

std::size_t most_live_bytes(std::span<const Tenant> tenants) {
  NodeId nodes = 0;
  for (const Tenant& t : tenants) nodes = std::max(nodes, t.died + 1);
  std::vector<std::size_t> live(nodes + std::size_t{1}, 0);
  for (const Tenant& t : tenants) {
    live[t.born] += t.bytes;
    live[t.died + std::size_t{1}] -= t.bytes;  // a change modulo 2^64, before the sum
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return std::ranges::max(live);
}

// Orders by size and lifetime together and by birth, and the smallest gap in place of the lowest,
// were no better on models; the order by lifetime is, where large workspaces that live for one node
// lie among small tensors that live long. How many rounds follows from the number of tenants, not
// from a clock, so that the result is the same anywhere.
Placement place(std::span<const Tenant> tenants) {
  const std::size_t n = std::max<std::size_t>(tenants.size(), 1);
  const std::size_t rounds = std::clamp<std::size_t>(100'000'000 / (n * n), 2, 400);
  const std::size_t least = most_live_bytes(tenants);
  Placement best{.offset = {}, .bytes = std::numeric_limits<std::size_t>::max()};
  squeeze(by_size(tenants), tenants, rounds, least + least / 500, best);
  squeeze(by_lifetime(tenants), tenants, rounds, least + least / 20, best);
  return best;
}

ArenaPlan plan_arena(const Graph& graph, const Lifetimes& lifetimes,
                     std::span<const std::size_t> workspace, const ArenaNeeds& needs) {
  const auto nodes = static_cast<NodeId>(graph.nodes().size());
  const auto aligned = [&](std::size_t bytes) {
    return (bytes + needs.alignment - 1) / needs.alignment * needs.alignment;
  };
  ArenaPlan plan{.storage = std::vector<std::size_t>(graph.value_count(), 0),
                 .workspace = std::vector<std::size_t>(nodes, 0)};
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && lifetimes.storage[id] == id) {
      plan.storage[id] = plan.bytes;
      plan.bytes += aligned(lifetimes.bytes[id]);
    }

  std::vector<Tenant> tenants;
  std::vector<std::size_t*> places;  // where to note the tenants' offsets
  std::vector<std::size_t> tenant_of(graph.value_count(), 0);
  for (NodeId n = 0; n < nodes; ++n) {
    for (const ValueId id : lifetimes.born[n]) {
      tenant_of[id] = tenants.size();
      tenants.push_back({aligned(lifetimes.bytes[id]), n, nodes - 1});
      places.push_back(&plan.storage[id]);
    }
    if (workspace[n] > 0) {
      tenants.push_back({aligned(workspace[n]), n, n});
      places.push_back(&plan.workspace[n]);
    }
    for (const ValueId id : lifetimes.dead[n]) tenants[tenant_of[id]].died = n;
  }
  for (Tenant& tenant : tenants)
    if (tenant.bytes <= needs.lingering.most_bytes)
      tenant.died = std::min(nodes - 1, tenant.died + needs.lingering.nodes);
  const Placement placement = place(tenants);
  for (std::size_t t = 0; t < tenants.size(); ++t) *places[t] = plan.bytes + placement.offset[t];
  plan.bytes += placement.bytes;
  return plan;
}

}  // namespace ridge
