#include "ridge/plan/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ridge/analyze/plan.h"
#include "ridge/cpu/device.h"
#include "ridge/plan/memory.h"
#include "ridge/session/session.h"
#include "tests/plan/random_graph.h"

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
    EXPECT_GE(plan.bytes, peak_live_bytes(graph, life, workspace));
  }
}

struct ModelSize {
  std::int64_t hidden, layers, heads, kv_heads, intermediate, vocab, batch, seq;
};
constexpr ModelSize default_size{256, 4, 8, 4, 512, 1000, 8, 128};
constexpr ModelSize model_sizes[] = {
    default_size,
    {256, 1, 8, 4, 512, 1000, 8, 128},
    {256, 2, 8, 8, 512, 1000, 1, 128},
    {256, 8, 8, 1, 512, 1000, 8, 64},
    {256, 16, 8, 4, 512, 1000, 2, 256},
    {256, 32, 8, 4, 512, 1000, 8, 128},
    {512, 8, 8, 8, 2048, 1000, 8, 128},
    {512, 8, 8, 4, 2048, 1000, 8, 512},
    {64, 2, 4, 2, 128, 50, 2, 17},
    {128, 3, 4, 1, 256, 7, 3, 1023},
    {32, 1, 4, 4, 96, 256, 1, 1},
    {1024, 6, 16, 8, 2816, 32000, 2, 256},
    {2048, 22, 32, 4, 5632, 32000, 1, 2048},
};

RunOptions options_of(const ModelSize& size, const char* dtype) {
  RunOptions o;
  o.dtype = dtype;
  o.hidden_dim = size.hidden;
  o.n_layers = size.layers;
  o.n_heads = size.heads;
  o.n_kv_heads = size.kv_heads;
  o.intermediate_dim = size.intermediate;
  o.vocab_size = size.vocab;
  o.batch_size = size.batch;
  o.seq_len = size.seq;
  o.gradient_accumulation_steps = 1 + size.layers % 2;
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
  const std::size_t least = peak_live_bytes(graph, life, workspace);
  EXPECT_GE(plan.bytes, least);
  EXPECT_LE(static_cast<double>(plan.bytes), 1.05 * static_cast<double>(least));
}

TEST(PlanArena, NeedsHardlyMoreThanIsAliveInAModel) {
  CpuDevice device(1);
  for (const ModelSize& size : model_sizes)
    for (const char* dtype : {"fp32", "bf16"})
      for (const std::string_view version : {"v1", "v2", "v3", "v4"}) {
        RunOptions options = options_of(size, dtype);
        options.version = version;
        expect_hardly_more_than_is_alive(options, device);
      }
}

TEST(PlanArena, NeedsHardlyMoreWhereActivationsAreRecomputed) {
  CpuDevice device(1);
  for (const ModelSize& size : model_sizes)
    for (const std::string_view version : {"v1", "v2", "v3", "v4"})
      for (const char* recompute : {"attention", "block"}) {
        RunOptions options = options_of(size, size.layers % 2 ? "fp32" : "bf16");
        options.version = version;
        options.recompute = recompute;
        expect_hardly_more_than_is_alive(options, device);
      }
}

}  // namespace
}  // namespace ridge
