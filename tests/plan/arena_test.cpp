#include "ridge/plan/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ridge/analyze/plan.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/collective.h"
#include "ridge/plan/memory.h"
#include "ridge/session/session.h"
#include "tests/passes/built_run.h"
#include "tests/plan/random_graph.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

std::vector<Tenant> random_tenants(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random()) % n; };
  const std::uint32_t nodes = 1 + below(100), longest = 1 + below(nodes),
                      largest = 1 + below(below(2) ? 4 : 1000);
  std::vector<Tenant> tenants(below(120));
  for (Tenant& t : tenants) {
    t.bytes = 64 * (1 + below(largest));
    t.born = below(nodes);
    t.died = std::min(nodes - 1, t.born + below(longest));
  }
  return tenants;
}

TEST(Place, KeepsTenantsApartThatLiveAtOneTime) {
  double excess = 0;
  int placed = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const std::vector<Tenant> tenants = random_tenants(seed);
    const Placement placement = place(tenants);
    ASSERT_EQ(placement.offset.size(), tenants.size());
    std::size_t end = 0, all = 0;
    for (std::size_t a = 0; a < tenants.size(); ++a) {
      EXPECT_EQ(placement.offset[a] % 64, 0u);
      end = std::max(end, placement.offset[a] + tenants[a].bytes);
      all += tenants[a].bytes;
      for (std::size_t b = 0; b < a; ++b) {
        const bool together =
            tenants[a].born <= tenants[b].died && tenants[b].born <= tenants[a].died;
        const bool apart = placement.offset[a] + tenants[a].bytes <= placement.offset[b] ||
                           placement.offset[b] + tenants[b].bytes <= placement.offset[a];
        ASSERT_TRUE(apart || !together) << a << " and " << b << " overlap";
      }
    }
    EXPECT_EQ(placement.bytes, end);
    const std::size_t least = most_live_bytes(tenants);
    ASSERT_GE(placement.bytes, least);
    ASSERT_LE(placement.bytes, all);
    if (least > 0) {
      excess += static_cast<double>(placement.bytes) / static_cast<double>(least) - 1;
      ++placed;
    }
  }
  EXPECT_LT(excess / placed, 0.007);  // on average; single ones may have no better placement
}

TEST(Place, FindsWhatNestedLifetimesAllow) {
  // As in a model: what is born first dies last, and something short-lived beside each.
  std::vector<Tenant> tenants;
  for (NodeId n = 0; n < 50; ++n) {
    tenants.push_back({64 * (1 + n * 37 % 11), n, 100 - n});
    tenants.push_back({64 * (1 + n * 17 % 13), n, n});
  }
  EXPECT_EQ(place(tenants).bytes, most_live_bytes(tenants));
}

TEST(MostLiveBytes, CountsBothEndsOfALifetime) {
  EXPECT_EQ(most_live_bytes({}), 0u);
  EXPECT_EQ(most_live_bytes(std::vector<Tenant>{{64, 0, 1}, {128, 1, 2}, {64, 2, 2}}), 192u);
  EXPECT_EQ(most_live_bytes(std::vector<Tenant>{{64, 0, 0}, {128, 1, 2}, {64, 3, 3}}), 128u);
}

// Walks through the graph as an executor does and claims each byte range while it is in use.
class Occupancy {
 public:
  void claim(std::size_t offset, std::size_t bytes, std::size_t arena) {
    ASSERT_LE(offset + bytes, arena);
    const auto next = used_.lower_bound(offset);
    ASSERT_TRUE(next == used_.end() || offset + bytes <= next->first) << "overlaps what is above";
    ASSERT_TRUE(next == used_.begin() || std::prev(next)->second <= offset)
        << "overlaps what is below";
    used_.emplace(offset, offset + bytes);
  }
  void leave(std::size_t offset) { EXPECT_EQ(used_.erase(offset), 1u); }

 private:
  std::map<std::size_t, std::size_t> used_;  // begin and end
};

void check_no_overlap(const Graph& graph, const Lifetimes& life,
                      std::span<const std::size_t> workspace, const ArenaPlan& plan) {
  Occupancy occupancy;
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && life.storage[id] == id)
      occupancy.claim(plan.storage[id], life.bytes[id], plan.bytes);
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    for (const ValueId id : life.born[n])
      occupancy.claim(plan.storage[id], life.bytes[id], plan.bytes);
    if (workspace[n] > 0) {
      occupancy.claim(plan.workspace[n], workspace[n], plan.bytes);
      occupancy.leave(plan.workspace[n]);
    }
    for (const ValueId id : life.dead[n]) occupancy.leave(plan.storage[id]);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "node " << n;
  }
}

TEST(PlanArena, KeepsValuesOfRandomGraphsApart) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Graph graph;
    const testing::RandomGraph random(graph, seed, 20 + static_cast<int>(seed) % 80);
    const Lifetimes life = lifetimes_of(graph);
    std::vector<std::size_t> workspace;
    for (NodeId n = 0; n < graph.nodes().size(); ++n)
      workspace.push_back((n * 7 + seed) % 5 == 0 ? (n * 13 + seed) % 3000 : 0);
    const ArenaPlan plan = plan_arena(graph, life, workspace);
    check_no_overlap(graph, life, workspace, plan);
    EXPECT_GE(plan.bytes, plan_memory(graph, life, workspace).peak_bytes);
  }
}

// Values of up to so many bytes keep their memory for so many nodes longer.
TEST(PlanArena, SmallValuesLinger) {
  constexpr std::size_t bytes = 4096;
  Graph graph;
  Value x = graph.input("x", {DType::f32, {1024}});
  for (int node = 0; node < 12; ++node) x = graph.apply1(Relu{}, {x});
  graph.keep(x, "y");
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<std::size_t> workspace(graph.nodes().size(), 0);
  const auto needed = [&](const Lingering& lingering) {
    const ArenaPlan plan = plan_arena(graph, life, workspace, {.lingering = lingering});
    check_no_overlap(graph, life, workspace, plan);
    return plan.bytes;
  };
  const std::size_t least = needed({});
  EXPECT_EQ(needed({.nodes = 3, .most_bytes = bytes}), least + 3 * bytes);
  EXPECT_EQ(needed({.nodes = 3, .most_bytes = bytes - 1}), least);
}

// What goes to other ranks together, in the order of the message, not that of birth.
TEST(PlanArena, MessagesLieInOneStretch) {
  Graph graph;
  std::vector<Value> gradients;
  for (const std::int64_t size : {1000, 7, 300, 40})
    gradients.push_back(
        graph.apply1(Relu{}, {graph.input(fmt::format("x{}", size), {DType::f32, {size}})}));
  const Value between = graph.apply1(Relu{}, {gradients[0]});
  std::swap(gradients[0], gradients[2]);
  const std::vector<Value> sums = all_reduce(gradients, {.ranks = 2});
  for (std::size_t i = 0; i < sums.size(); ++i) graph.keep(sums[i], fmt::format("y{}", i));
  graph.keep(graph.apply1(Relu{}, {between}), "z");
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<std::size_t> workspace(graph.nodes().size(), 128);
  constexpr std::size_t alignment = 256;
  const auto places = [&](bool in_one) {
    const ArenaPlan plan =
        plan_arena(graph, life, workspace, {.alignment = alignment, .messages_in_one = in_one});
    check_no_overlap(graph, life, workspace, plan);
    std::vector<std::size_t> offsets;
    for (const Value& gradient : gradients) offsets.push_back(plan.storage[gradient.id]);
    return offsets;
  };
  const std::vector<std::size_t> alone = places(false), together = places(true);
  const auto is_one = [&](const std::vector<std::size_t>& offsets) {
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const std::size_t bytes = gradients[i].type().bytes();
      if (offsets[i + 1] - offsets[i] != (bytes + alignment - 1) / alignment * alignment)
        return false;
    }
    return true;
  };
  EXPECT_FALSE(is_one(alone));
  EXPECT_TRUE(is_one(together));
}

// Kernels between the first and the last that talks need not wait for its workspace.
TEST(PlanArena, WhatTalksToOthersHasRoomOfItsOwnMeanwhile) {
  Graph graph;
  const TensorType type{DType::f32, {1000}};
  Value x = graph.input("x", type);
  for (int message = 0; message < 3; ++message) {
    graph.keep(all_reduce(std::vector{graph.apply1(Relu{}, {x})}, {.ranks = 2})[0],
               fmt::format("y{}", message));
    for (int node = 0; node < 3; ++node) x = graph.apply1(Relu{}, {x});
  }
  graph.keep(x, "z");
  const Lifetimes life = lifetimes_of(graph);
  std::vector<std::size_t> workspace;
  std::vector<NodeId> talkers;
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    const bool talks = name_of(*graph.nodes()[n].op) == AllReduce::name;
    if (talks) talkers.push_back(n);
    workspace.push_back(talks ? 1000 * (2 + n % 3) : 64);
  }
  for (const bool in_one : {false, true}) {
    const ArenaPlan plan = plan_arena(graph, life, workspace, {.messages_in_one = in_one});
    check_no_overlap(graph, life, workspace, plan);
    std::size_t begin = plan.workspace[talkers[0]], end = 0;
    for (const NodeId n : talkers) end = std::max(end, plan.workspace[n] + workspace[n]);
    bool is_shared = false;
    for (NodeId n = talkers.front(); n <= talkers.back(); ++n) {
      for (const ValueId id : life.born[n])
        is_shared |= plan.storage[id] < end && begin < plan.storage[id] + life.bytes[id];
      if (name_of(*graph.nodes()[n].op) != AllReduce::name)
        is_shared |= plan.workspace[n] < end && begin < plan.workspace[n] + workspace[n];
    }
    EXPECT_EQ(is_shared, !in_one);
    if (!in_one) continue;
    for (const NodeId n : talkers) EXPECT_EQ(plan.workspace[n], begin);
  }
}

// A kernel behind a message does not wait for it because it wants the memory that is being sent:
// not before the next message, nor at all if only less is sent after it.
TEST(PlanArena, WhatIsSentStaysForAWhile) {
  Graph graph;
  Value x = graph.input("x", {DType::f32, {4096}});
  const Value little = graph.input("little", {DType::f32, {1024}});
  // More is alive before anything is sent.
  graph.apply1(Relu{}, {graph.apply1(Relu{}, {graph.input("much", {DType::f32, {8 * 4096}})})});
  std::vector<ValueId> sent;
  for (const Value& message : {x, x, little, little}) {
    const Value sends = graph.apply1(Relu{}, {message});
    sent.push_back(sends.id);
    graph.keep(graph.apply1(ReduceScatter{.ranks = 2}, {sends}), fmt::format("y{}", sent.size()));
    x = graph.apply1(Relu{}, {x});
    x = graph.apply1(Relu{}, {x});
  }
  graph.keep(x, "z");
  constexpr std::size_t end = 4;
  const std::size_t until[] = {1, end};  // by long message: which one it stays for
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<std::size_t> workspace(graph.nodes().size(), 0);
  for (const bool in_one : {false, true}) {
    const ArenaPlan plan = plan_arena(graph, life, workspace, {.messages_in_one = in_one});
    check_no_overlap(graph, life, workspace, plan);
    for (const std::size_t message : {0u, 1u}) {
      bool is_taken = false;
      std::size_t messages = 0;  // before node n
      for (NodeId n = 0; n < graph.nodes().size(); ++n) {
        if (messages > message && messages <= until[message])
          for (const ValueId id : life.born[n])
            is_taken |= plan.storage[id] == plan.storage[sent[message]];
        if (name_of(*graph.nodes()[n].op) == ReduceScatter::name) ++messages;
      }
      EXPECT_EQ(is_taken, !in_one) << "message " << message;
    }
  }
}

// That costs hardly any memory, also where a long message comes when most is alive, as the gradient
// of a large vocabulary does, and that of a network's classifier.
TEST(PlanArena, WhatIsSentStaysForHardlyAnything) {
  RunOptions llama = small_llama({20'011, 256, 2, 8, 8, 512, 4, 64});
  llama.dtype = "bf16";
  for (RunOptions options : {llama, network_options("vgg11", Use::training, "v4", "bf16")})
    for (const std::int64_t zero : {1, 2, 3}) {
      options.version = "v4", options.ranks = 2, options.zero = zero;
      options.resolve();
      const BuiltRun run(options, 0, {.kind = DeviceKind::gpu, .buckets = 8});
      const Lifetimes life = lifetimes_of(run.graph);
      const std::vector<std::size_t> workspace(run.graph.nodes().size(), 0);
      const auto bytes = [&](bool in_one) {
        return plan_arena(run.graph, life, workspace, {.messages_in_one = in_one}).bytes;
      };
      EXPECT_LE(bytes(true), bytes(false) + bytes(false) / 100) << zero;
    }
}

constexpr LlamaSizes model_sizes[] = {
    {1000, 256, 4, 8, 4, 512, 8, 128},  // the default
    {1000, 256, 1, 8, 4, 512, 8, 128},     {1000, 256, 2, 8, 8, 512, 1, 128},
    {1000, 256, 8, 8, 1, 512, 8, 64},      {1000, 256, 16, 8, 4, 512, 2, 256},
    {1000, 256, 32, 8, 4, 512, 8, 128},    {1000, 512, 8, 8, 8, 2048, 8, 128},
    {1000, 512, 8, 8, 4, 2048, 8, 512},    {50, 64, 2, 4, 2, 128, 2, 17},
    {7, 128, 3, 4, 1, 256, 3, 1023},       {256, 32, 1, 4, 4, 96, 1, 1},
    {32000, 1024, 6, 16, 8, 2816, 2, 256}, {32000, 2048, 22, 32, 4, 5632, 1, 2048},
};

RunOptions options_of(const LlamaSizes& sizes, const char* dtype) {
  RunOptions o = small_llama(sizes);
  o.dtype = dtype;
  o.gradient_accumulation_steps = 1 + sizes.n_layers % 2;
  o.max_grad_norm = 1.0;
  return o;
}

void expect_hardly_more_than_is_alive(RunOptions options, Device& device) {
  options.resolve();
  SCOPED_TRACE(fmt::format("{} recompute {}: {} layers of {}, seq {}, {}", options.version,
                           options.recompute, options.n_layers, options.hidden_dim, options.seq_len,
                           options.dtype));
  Graph graph;
  const Schedule schedule = build_graph(graph, options).schedule;
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<std::size_t> workspace =
      kernel_needs(graph, device, execution_of(schedule).kernels).workspace;
  const ArenaPlan plan = plan_arena(graph, life, workspace);
  check_no_overlap(graph, life, workspace, plan);
  const std::size_t least = plan_memory(graph, life, workspace).peak_bytes;
  EXPECT_GE(plan.bytes, least);
  EXPECT_LE(static_cast<double>(plan.bytes), 1.05 * static_cast<double>(least));
}

TEST(PlanArena, NeedsHardlyMoreThanIsAliveInAModel) {
  CpuDevice device(1);
  for (const LlamaSizes& sizes : model_sizes)
    for (const char* dtype : {"fp32", "bf16"})
      for (const std::string_view version : {"v1", "v2", "v3", "v4"}) {
        RunOptions options = options_of(sizes, dtype);
        options.version = version;
        expect_hardly_more_than_is_alive(options, device);
      }
}

TEST(PlanArena, NeedsHardlyMoreWhereActivationsAreRecomputed) {
  CpuDevice device(1);
  for (const LlamaSizes& sizes : model_sizes)
    for (const std::string_view version : {"v1", "v2", "v3", "v4"})
      for (const char* recompute : {"attention", "block"}) {
        RunOptions options = options_of(sizes, sizes.n_layers % 2 ? "fp32" : "bf16");
        options.version = version;
        options.recompute = recompute;
        expect_hardly_more_than_is_alive(options, device);
      }
}

}  // namespace
}  // namespace ridge
