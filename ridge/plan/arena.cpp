#include "ridge/plan/arena.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "ridge/graph/op_rules.h"

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

// Storages that go to other ranks as one message and are replaced by it, in its order.
std::vector<std::vector<ValueId>> messages_of(const Graph& graph, const Lifetimes& lifetimes) {
  std::vector<std::vector<ValueId>> messages;
  std::vector<bool> taken(graph.value_count(), false);
  for (const Node& node : graph.nodes()) {
    const std::vector<TensorType> types = graph.types_of(node.inputs);
    if (node.inputs.size() < 2 || node.outputs.size() != node.inputs.size() ||
        sent_bytes(graph, node) == 0)
      continue;
    std::vector<ValueId> message;
    for (std::uint32_t i = 0; i < node.inputs.size(); ++i) {
      const auto alias = aliased_input(*node.op, i, types);
      const ValueId storage = lifetimes.storage[node.inputs[i]];
      const bool is_whole = lifetimes.offset[node.inputs[i]] == 0 &&
                            lifetimes.bytes[storage] == allocated_bytes(types[i]);
      if (!alias || alias->input != i || graph.info(storage).persistent || !is_whole ||
          taken[storage])
        break;
      taken[storage] = true;
      message.push_back(storage);
    }
    if (message.size() == node.inputs.size()) messages.push_back(std::move(message));
  }
  return messages;
}

// The tenants of a graph's run, put together in the order of its nodes.
class Household {
 public:
  Household(const Graph& graph, const Lifetimes& lifetimes, const ArenaNeeds& needs)
      : lifetimes_(lifetimes),
        needs_(needs),
        last_node_(static_cast<NodeId>(graph.nodes().size() - 1)),
        tenant_of_(graph.value_count(), nobody) {
    if (needs.messages_in_one) messages_ = messages_of(graph, lifetimes);
    message_of_.assign(graph.value_count(), nobody);
    for (std::size_t m = 0; m < messages_.size(); ++m)
      for (const ValueId id : messages_[m]) message_of_[id] = m;
  }

  std::size_t aligned(std::size_t bytes) const {
    return (bytes + needs_.alignment - 1) / needs_.alignment * needs_.alignment;
  }

  // Notes where places are kept, until offsets are known. With the first storage of a message come
  // all others.
  void storage_is_born(ValueId id, NodeId node, std::vector<std::size_t>& places) {
    if (tenant_of_[id] != nobody) return;
    std::span<const ValueId> together(&id, 1);
    if (message_of_[id] != nobody) together = messages_[message_of_[id]];
    tenants_.push_back({.born = node, .died = last_node_});
    lives_.push_back({.residents = together.size()});
    for (const ValueId one : together) {
      tenant_of_[one] = tenants_.size() - 1;
      residents_.push_back({&places[one], tenants_.size() - 1, tenants_.back().bytes});
      tenants_.back().bytes += aligned(lifetimes_.bytes[one]);
    }
  }
  void storage_dies(ValueId id, NodeId node) {
    Life& life = lives_[tenant_of_[id]];
    life.last = std::max(life.last, node);
    if (--life.residents == 0) tenants_[tenant_of_[id]].died = life.last;
  }

  // That of what talks to other ranks is the same for all of them.
  void workspace(std::size_t bytes, NodeId node, bool talks, std::size_t& place) {
    const bool shares = needs_.messages_in_one && talks;
    std::size_t tenant = shares ? room_ : nobody;
    if (tenant == nobody) {
      tenant = tenants_.size();
      tenants_.push_back({.born = node});
      lives_.push_back({.residents = 1});
    }
    if (shares) room_ = tenant;
    residents_.push_back({&place, tenant, 0});
    tenants_[tenant].bytes = std::max(tenants_[tenant].bytes, aligned(bytes));
    tenants_[tenant].died = node;
  }

  // Gives all their places, behind `first`; returns where the last one ends.
  std::size_t settle(std::size_t first) {
    for (Tenant& tenant : tenants_)
      if (tenant.bytes <= needs_.lingering.most_bytes)
        tenant.died = std::min(last_node_, tenant.died + needs_.lingering.nodes);
    const Placement placement = place(tenants_);
    for (const Resident& one : residents_)
      *one.place = first + placement.offset[one.tenant] + one.begin;
    return first + placement.bytes;
  }

 private:
  static constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();

  // Something that lives with a tenant, from so many bytes on, and where its place is kept.
  struct Resident {
    std::size_t* place;
    std::size_t tenant, begin;
  };
  struct Life {
    std::size_t residents = 0;  // that have not died
    NodeId last = 0;            // when the last of the others died
  };

  const Lifetimes& lifetimes_;
  const ArenaNeeds& needs_;
  NodeId last_node_;
  std::vector<std::vector<ValueId>> messages_;
  std::vector<std::size_t> message_of_, tenant_of_;  // by storage
  std::vector<Tenant> tenants_;
  std::vector<Life> lives_;  // by tenant
  std::vector<Resident> residents_;
  std::size_t room_ = nobody;  // the tenant that is the workspace of all that talks
};

// By node: bytes that it sends to other ranks.
std::vector<std::size_t> bytes_sent(const Graph& graph) {
  std::vector<std::size_t> bytes;
  for (const Node& node : graph.nodes())
    bytes.push_back(static_cast<std::size_t>(sent_bytes(graph, node)));
  return bytes;
}

// By node: until when what it needs last stays. What is being sent stays until the next node that
// sends, or the last one: kernels between them may run meanwhile, unless they want that memory.
std::vector<NodeId> ends_of_stays(const std::vector<std::size_t>& sent) {
  const auto nodes = static_cast<NodeId>(sent.size());
  std::vector<NodeId> ends(nodes);
  NodeId next = nodes - 1;
  for (NodeId n = nodes; n-- > 0;) {
    ends[n] = sent[n] > 0 ? next : n;
    if (sent[n] > 0) next = n;
  }
  return ends;
}

// The same where messages are long that only shorter ones follow: the next one comes before they
// are through. Where all that follows is less, they stay to the end.
std::vector<NodeId> ends_of_longer_stays(const std::vector<std::size_t>& sent) {
  std::vector<NodeId> ends = ends_of_stays(sent);
  std::size_t bytes_to_come = 0;
  for (std::size_t n = sent.size(); n-- > 0;) {
    if (sent[n] > bytes_to_come) ends[n] = static_cast<NodeId>(sent.size() - 1);
    bytes_to_come += sent[n];
  }
  return ends;
}

// `ends`: by node, until when what it needs last stays.
ArenaPlan plan_with(const Graph& graph, const Lifetimes& lifetimes,
                    std::span<const std::size_t> workspace, const ArenaNeeds& needs,
                    const std::vector<std::size_t>& sent, const std::vector<NodeId>& ends) {
  const auto nodes = static_cast<NodeId>(graph.nodes().size());
  ArenaPlan plan{.storage = std::vector<std::size_t>(graph.value_count(), 0),
                 .workspace = std::vector<std::size_t>(nodes, 0)};
  Household household(graph, lifetimes, needs);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && lifetimes.storage[id] == id) {
      plan.storage[id] = plan.bytes;
      plan.bytes += household.aligned(lifetimes.bytes[id]);
    }
  for (NodeId n = 0; n < nodes; ++n) {
    for (const ValueId id : lifetimes.born[n]) household.storage_is_born(id, n, plan.storage);
    if (workspace[n] > 0) household.workspace(workspace[n], n, sent[n] > 0, plan.workspace[n]);
    for (const ValueId id : lifetimes.dead[n]) household.storage_dies(id, ends[n]);
  }
  plan.bytes = household.settle(plan.bytes);
  return plan;
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
  const std::vector<std::size_t> sent = bytes_sent(graph);
  const auto plan = [&](const std::vector<NodeId>& ends) {
    return plan_with(graph, lifetimes, workspace, needs, sent, ends);
  };
  std::vector<NodeId> at_once(sent.size());
  std::iota(at_once.begin(), at_once.end(), NodeId{0});
  ArenaPlan least = plan(at_once);
  const bool sends = std::ranges::any_of(sent, [](std::size_t bytes) { return bytes > 0; });
  if (!needs.messages_in_one || !sends) return least;
  // Waiting for a message costs less than a run that does not fit any more.
  const std::size_t most_bytes = least.bytes + least.bytes / 100;
  for (const auto& ends : {ends_of_longer_stays(sent), ends_of_stays(sent)})
    if (ArenaPlan patient = plan(ends); patient.bytes <= most_bytes) return patient;
  return least;
}

}  // namespace ridge
