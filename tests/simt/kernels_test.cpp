// Portable kernels that no operator launches on a card without what they serve: those of products
// in parts, and of sums over ranks. Not run: conv_padded.cu, which works for the library of
// convolutions, and the probes of probe.cu that move a gigabyte.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "ridge/gpu/device/probe.h"
#include "ridge/gpu/kernels/collective/part_sums.h"
#include "ridge/gpu/kernels/product/split_bf16.h"
#include "tests/simt/buffer.h"

namespace ridge {
namespace {

using simt::Buffer;

// Numbers of many sizes and both signs.
std::vector<float> numbers(std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = std::ldexp(1.0f + static_cast<float>(i * 7919 % 65536) / 65536.0f,
                        static_cast<int>(i % 60) - 30) *
             (i % 3 == 0 ? -1.0f : 1.0f);
  return all;
}

const gpu::Context gpu_alone;

TEST(SimtKernels, ThreeComponentsOfBf16AreTheNumber) {
  for (const auto& [rows, columns] : {std::pair{3, 40}, {5, 13}, {1, 1}}) {
    const std::vector<float> given = numbers(static_cast<std::size_t>(rows * columns));
    const Buffer<float> x(given);
    const std::int64_t pitch = gpu::split_pitch(columns);
    const Buffer<BFloat16> parts(gpu::split_bytes(rows, columns) / 2, BFloat16(0.0f));
    gpu::write_split(gpu_alone, x.data(), rows, columns, parts.data());
    const std::vector<BFloat16> found = parts.values();
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < gpu::split_components; ++c) {
        const std::int64_t at = (c * rows + i / columns) * pitch + i % columns;
        sum += static_cast<float>(found[static_cast<std::size_t>(at)]);
      }
      EXPECT_EQ(sum, given[static_cast<std::size_t>(i)]) << rows << " x " << columns << ", " << i;
    }
  }
}

TEST(SimtKernels, PartsAreAddedInTheirOrder) {
  constexpr std::size_t n = 300, count = 3;
  const std::vector<float> given = numbers(n * count), before = numbers(n);
  for (const bool accumulate : {false, true}) {
    const Buffer<float> parts(given), c(before);
    gpu::add_parts(gpu_alone, parts.data(), count, n, accumulate, c.data());
    const std::vector<float> sums = c.values();
    for (std::size_t i = 0; i < n; ++i) {
      float sum = accumulate ? before[i] : 0.0f;
      for (std::size_t p = 0; p < count; ++p) sum += given[p * n + i];
      EXPECT_EQ(sums[i], sum);
    }
  }
}

// The sum over ranks in the order of the host.
float tree_sum(const std::vector<float>& of_ranks) {
  if (of_ranks.size() == 1) return of_ranks[0];
  std::size_t half = 1;
  while (half * 2 < of_ranks.size()) half *= 2;
  const auto middle = of_ranks.begin() + static_cast<std::ptrdiff_t>(half);
  return tree_sum({of_ranks.begin(), middle}) + tree_sum({middle, of_ranks.end()});
}

// One part of each length, the parts one behind another at the given offset, by one call.
void expect_sums_over_ranks(int ranks, int rank, const std::vector<std::size_t>& lengths,
                            std::size_t offset) {
  SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << ranks << ", " << offset);
  const std::size_t all = std::accumulate(lengths.begin(), lengths.end(), offset);
  const std::size_t stride = (all + 15) / 16 * 16;
  const std::vector<float> own = numbers(all);
  const std::vector<float> rest = numbers(stride * static_cast<std::size_t>(ranks - 1));
  const Buffer<float> x(own), others(rest), y(all, 0);
  std::vector<gpu::PartOfAll> parts;
  std::size_t first = offset;
  for (const std::size_t n : lengths) {
    parts.push_back({.n = static_cast<std::int64_t>(n),
                     .own = x.data() + first,
                     .others = others.data() + first,
                     .stride = static_cast<std::int64_t>(stride * sizeof(float)),
                     .sum = y.data() + first});
    first += n;
  }
  gpu::sum_over_ranks(gpu_alone, parts, {.rank = rank, .ranks = ranks}, 0.5f);
  const std::vector<float> sums = y.values();
  for (std::size_t i = offset; i < all; ++i) {
    std::vector<float> terms;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks - 1); ++r)
      terms.push_back(rest[r * stride + i]);
    terms.insert(terms.begin() + rank, own[i]);
    EXPECT_EQ(sums[i], 0.5f * tree_sum(terms)) << i;
  }
}

TEST(SimtKernels, SumsOverRanksAreThoseOfTheHost) {
  for (const int ranks : {2, 3, 4, 5, 8})
    for (const std::size_t n : {1, 64, 1030}) {
      expect_sums_over_ranks(ranks, 0, {n}, 0);
      expect_sums_over_ranks(ranks, ranks - 1, {n}, 1);
    }
}

TEST(SimtKernels, OneLaunchSumsManyParts) {
  const std::uint64_t before = simt::counts().launches;
  expect_sums_over_ranks(2, 1, {1030, 0, 1, 2048, 3}, 0);
  EXPECT_EQ(simt::counts().launches, before + 1);
  expect_sums_over_ranks(3, 1, std::vector<std::size_t>(700, 2), 1);  // more than a table has
}

TEST(SimtKernels, CopiesAreWhole) {
  for (const std::vector<std::size_t>& lengths :
       {std::vector<std::size_t>{1}, {16}, {4097}, {64, 0, 4097, 5}})
    for (const std::size_t offset : {0, 1}) {
      std::vector<char> given(std::accumulate(lengths.begin(), lengths.end(), offset));
      for (std::size_t i = 0; i < given.size(); ++i) given[i] = static_cast<char>(i);
      const Buffer<char> x(given), y(given.size(), 0);
      std::vector<gpu::Copy> copies;
      std::size_t first = offset;
      for (const std::size_t n : lengths) {
        copies.push_back({static_cast<std::int64_t>(n), x.data() + first, y.data() + first});
        first += n;
      }
      const std::uint64_t before = simt::counts().launches;
      gpu::copy(gpu_alone, copies);
      EXPECT_EQ(simt::counts().launches, before + 1);
      given[0] = offset == 0 ? given[0] : char{0};
      EXPECT_EQ(y.values(), given);
    }
}

TEST(SimtKernels, TheProbeOfALaunchDoesNothing) {
  gpu::make_probe(gpu_alone, Probe::nothing, 0).kernel->launch({});
}

}  // namespace
}  // namespace ridge
