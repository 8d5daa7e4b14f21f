// Collectives over several ranks on CPUs.

#include "tests/ops/collectives.h"

#include <gtest/gtest.h>

#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/base/message_of.h"
#include "tests/ops/infer_message.h"

namespace ridge {
namespace {

using testing::computed;
using testing::operands;
using testing::Reals;

TEST(AllReduce, IsTheReferenceOnAnyNumberOfRanks) {
  testing::expect_sums_and_means({2, 3, 4, 8}, cpu_of_rank);
}

TEST(AllReduce, OfThreeRanksIsTheirMean) {
  const std::vector<TensorType> types{{DType::f32, {1000}}};
  const AllReduce op{.ranks = 3, .mean = true};
  on_ranks(3, [&](Device& device) {
    const Reals means = computed(op, types, operands(device.rank(), types), device)[0];
    for (std::size_t i = 0; i < means.size(); ++i)
      EXPECT_NEAR(means[i], testing::sum_over(3, true, 0, static_cast<std::int64_t>(i)), 1e-6);
  });
}

TEST(ReduceScatter, GivesEachRankTheSumOfItsPart) {
  testing::expect_sums_of_parts({1, 2, 3, 4, 8}, cpu_of_rank);
}

TEST(AllGather, PutsPartsTogether) { testing::expect_gathered_parts({1, 2, 3, 4, 8}, cpu_of_rank); }

TEST(AllGather, RoundsParts) { testing::expect_rounded_parts({1, 2, 3, 4, 8}, cpu_of_rank); }

TEST(AllGather, RefusesPartsThatAreNotTheRanks) {
  const AllGather op{.ranks = 2, .rank = 1};
  EXPECT_EQ(infer(Op(op), std::vector<TensorType>{{DType::f32, {32}}, {DType::f32, {80}}}),
            (std::vector<TensorType>{{DType::f32, {80}}}));
  EXPECT_NE(message_of(op, {{DType::f32, {48}}, {DType::f32, {80}}}), "nothing was thrown");
  EXPECT_NE(message_of(op, {{DType::f32, {32}}}), "nothing was thrown");
  EXPECT_EQ(message_of(AllGather{.ranks = 2, .rank = 2}, {{DType::f32, {16}}, {DType::f32, {16}}}),
            "all_gather: there is no rank 2 of 2");
  EXPECT_EQ(message_of(AllGather{.ranks = 2, .rounded_to = DType::bf16},
                       {{DType::f32, {32}}, {DType::bf16, {64}}}),
            "all_gather rounds parts to 16 bits, not bf16, and gives tensors of their own");
  EXPECT_EQ(message_of(ReduceScatter{.ranks = 4}, {{DType::f32, {3, 16}}}),
            "reduce_scatter: the 48 elements of f32[3, 16] give no part for each of 4 ranks");
}

TEST(Collectives, CountWhatTheySend) {
  const std::vector<TensorType> whole{{DType::bf16, {4, 64}}}, part{{DType::bf16, {64}}};
  EXPECT_EQ(sent_bytes(Op(ReduceScatter{.ranks = 4}), whole), 3 * 64 * 2);
  EXPECT_EQ(sent_bytes(Op(AllReduce{.ranks = 4}), whole), 2 * 3 * 64 * 2);
  EXPECT_EQ(sent_bytes(Op(AllGather{.ranks = 4, .shapes = {{4, 64}}}), part), 3 * 64 * 2);
  EXPECT_EQ(sent_bytes(Op(AllGather{.ranks = 4, .shapes = {{4, 64}}, .rounded_to = DType::bf16}),
                       std::vector<TensorType>{{DType::f32, {64}}}),
            3 * 64 * 2);
  EXPECT_GT(sent_bytes(Op(AllReduce{.ranks = 2}), std::vector<TensorType>{{DType::f32, {}}}), 0)
      << "of a scalar, which each sends whole";
  EXPECT_EQ(sent_bytes(Op(AllReduce{.ranks = 1}), whole), 0);
  EXPECT_EQ(sent_bytes(Op(Scale{}), whole), 0);
}

TEST(Parts, CoverATensorOnce) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 100, 4096, 60033})
    for (const std::int64_t ranks : {1, 2, 3, 8, 64}) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const Part part = part_of(n, rank, ranks);
        EXPECT_TRUE(part.first == next || part.count == 0) << n << " on " << ranks;
        EXPECT_EQ(part.first % 16 == 0 || part.count == 0, true);
        next += part.count;
      }
      EXPECT_EQ(next, n);
    }
}

// Of an element ranks - 1 additions, which the ranks share, and a product for the mean.
TEST(AllReduce, CostsItsPart) {
  const std::vector<TensorType> types{{DType::f32, {30, 4}}, {DType::bf16, {40}}};
  const auto cost_of = [&](const AllReduce& op) { return op.cost(types, types); };
  EXPECT_EQ(cost_of({.ranks = 1, .mean = true}), Cost{});
  EXPECT_EQ(cost_of({.ranks = 4}).flops, 120);
  EXPECT_EQ(cost_of({.ranks = 4, .mean = true}).flops, 280);
  EXPECT_EQ(cost_of({.ranks = 4}).bytes_read, 480 + 80);
  EXPECT_EQ(cost_of({.ranks = 4}).bytes_written, 480 + 80);
}

TEST(AllReduce, IsOfAsManyRanksAsThereAre) {
  CpuDevice alone(1);
  const std::vector<TensorType> types{{DType::f32, {4}}};
  const AllReduce of_two{.ranks = 2};
  EXPECT_EQ(message_of<UsageError>([&] { computed(of_two, types, operands(0, types), alone); }),
            "all_reduce over 2 ranks on a device that is one of 1");
  on_ranks(3, [&](Device& device) {
    EXPECT_EQ(message_of<UsageError>([&] { device.prepare(Op(of_two), types, types); }),
              "all_reduce over 2 ranks on a device that is one of 3");
  });
}

}  // namespace
}  // namespace ridge
