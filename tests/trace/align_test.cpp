#include "ridge/trace/align.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ridge::trace {
namespace {

using Sequence = std::vector<std::uint32_t>;

std::size_t longest(const Sequence& a, const Sequence& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j)
      table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1
                                         : std::max(table[i - 1][j], table[i][j - 1]);
  return table[a.size()][b.size()];
}

// Pairs equal symbols, in order; returns how many.
std::size_t checked(const Sequence& a, const Sequence& b) {
  const auto pairs = aligned(a, b);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(a.at(pairs[i].first), b.at(pairs[i].second));
    if (i == 0) continue;
    EXPECT_LT(pairs[i - 1].first, pairs[i].first);
    EXPECT_LT(pairs[i - 1].second, pairs[i].second);
  }
  return pairs.size();
}

TEST(TraceAlignment, IsALongestCommonSubsequence) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const auto symbols = static_cast<std::uint32_t>(1 + random() % 6);
    Sequence a(random() % 30), b(random() % 30);
    for (auto& symbol : a) symbol = static_cast<std::uint32_t>(random() % symbols);
    for (auto& symbol : b) symbol = static_cast<std::uint32_t>(random() % symbols);
    EXPECT_EQ(checked(a, b), longest(a, b)) << "round " << round;
  }
}

TEST(TraceAlignment, ComesToAnEndWhereLittleIsTheSame) {
  std::mt19937 random(12);
  Sequence a(50'000), b(50'000);
  for (auto& symbol : a) symbol = static_cast<std::uint32_t>(random() % 1000);
  for (auto& symbol : b) symbol = static_cast<std::uint32_t>(random() % 1000);
  checked(a, b);
  std::copy(a.begin() + 30'000, a.end(), b.begin() + 30'000);
  EXPECT_GE(checked(a, b), 20'000U);
  std::iota(a.begin(), a.end(), 1'000U);
  EXPECT_EQ(checked(a, b), 0U);
}

}  // namespace
}  // namespace ridge::trace
