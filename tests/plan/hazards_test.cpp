#include "ridge/plan/hazards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr bool reads = false, writes = true;

TEST(Hazards, ReadersFollowTheirWriterAndAreFollowedByTheNext) {
  const std::vector<std::vector<Access>> work{{{0, 8, writes}},
                                              {{0, 4, reads}, {8, 12, writes}},
                                              {{4, 8, reads}, {12, 16, writes}},
                                              {{0, 8, writes}}};
  const auto after = order_of(work);
  EXPECT_THAT(after[0], IsEmpty());
  EXPECT_THAT(after[1], ElementsAre(0));
  EXPECT_THAT(after[2], ElementsAre(0)) << "two readers do not wait for each other";
  EXPECT_THAT(after[3], ElementsAre(2, 1)) << "the first writer is implied";
}

TEST(Hazards, RangesThatOnlyTouchDoNotConflict) {
  const std::vector<std::vector<Access>> work{{{0, 8, writes}}, {{8, 16, writes}}};
  EXPECT_THAT(order_of(work)[1], IsEmpty());
}

// Each piece of work sets every byte that it writes to a number made of its own and of all bytes it
// touches. In whatever allowed order they run, the bytes must come out the same.
std::vector<std::size_t> run(const std::vector<std::vector<Access>>& work,
                             const std::vector<std::size_t>& order, std::size_t bytes) {
  std::vector<std::size_t> memory(bytes);
  std::iota(memory.begin(), memory.end(), std::size_t{1});
  for (const std::size_t i : order) {
    std::size_t mixed = i + 1;
    for (const Access& access : work[i])
      for (std::size_t b = access.begin; b < access.end; ++b) mixed = mixed * 31 + memory[b];
    for (const Access& access : work[i])
      if (access.writes)
        for (std::size_t b = access.begin; b < access.end; ++b) memory[b] = mixed + b;
  }
  return memory;
}

TEST(Hazards, EveryAllowedOrderGivesTheSameMemory) {
  constexpr std::size_t bytes = 24, pieces = 20;
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Access>> work(pieces);
    for (auto& accesses : work)
      for (std::size_t a = 0, count = 1 + below(3); a < count; ++a) {
        const std::size_t begin = below(bytes);
        accesses.push_back({begin, std::min(bytes, begin + 1 + below(4)), below(3) == 0});
      }
    const auto after = order_of(work);
    std::vector<std::size_t> in_turn(pieces);
    std::iota(in_turn.begin(), in_turn.end(), std::size_t{0});
    const auto expected = run(work, in_turn, bytes);
    // A random topological order.
    std::vector<std::size_t> order;
    std::vector<bool> done(pieces, false);
    while (order.size() < pieces) {
      const std::size_t i = below(pieces);
      if (done[i] || !std::ranges::all_of(after[i], [&](std::size_t j) { return done[j]; }))
        continue;
      done[i] = true;
      order.push_back(i);
    }
    ASSERT_EQ(run(work, order, bytes), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace ridge
