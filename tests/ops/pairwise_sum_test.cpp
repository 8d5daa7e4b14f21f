// The order of pairwise sums, and that parts of one are computed alike. What a call does to its
// operands, every operator's tests hold.

#include "ridge/ops/pairwise_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ridge/base/philox.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// Of very different sizes, so that each order of adding gives another sum.
float term(std::int64_t t) {
  const std::uint32_t word = philox(3, static_cast<std::uint64_t>(t), 0)[0];
  return std::ldexp(1.0f + static_cast<float>(word % 4096) / 4096, static_cast<int>(word >> 27));
}

// Of terms [first, first + count).
float tree(std::int64_t first, std::int64_t count, std::int64_t run) {
  if (count == run) {
    float sum = term(first);
    for (std::int64_t t = 1; t < run; ++t) sum += term(first + t);
    return sum;
  }
  return tree(first, count / 2, run) + tree(first + count / 2, count / 2, run);
}

// What the operator leaves in its last tensor after the calls from `first` on.
float computed(const PairwiseSum& op, std::size_t sums, std::int64_t first, std::int64_t count) {
  CpuDevice device(1);
  std::vector<TensorType> in{{DType::i32, {}}}, out;
  in.resize(2 + sums, {DType::f32, {1}});
  out.resize(sums, {DType::f32, {1}});
  const PreparedKernel prepared = device.prepare(Op(op), in, out);
  std::vector<float> held(sums, NAN);
  for (std::int64_t t = first; t < first + count; ++t) {
    const auto number = static_cast<std::int32_t>(t);
    const float x = term(t);
    std::vector<const void*> inputs{&number, &x};
    std::vector<void*> outputs;
    for (float& sum : held) inputs.push_back(&sum), outputs.push_back(&sum);
    prepared.kernel->launch({inputs, outputs, nullptr});
  }
  return held.back();
}

TEST(PairwiseSum, AddsInTheOrderOfATree) {
  for (const std::int64_t run : {1, 2, 3, 5})
    for (const std::size_t sums : {1, 2, 3, 4}) {
      const PairwiseSum op{.run = run};
      const std::int64_t calls = op.calls(sums);
      EXPECT_EQ(computed(op, sums, 0, calls), tree(0, calls, run)) << run << ", " << sums;
      EXPECT_EQ(computed(op, sums, 7 * calls, calls), tree(7 * calls, calls, run));
      EXPECT_EQ(computed(op, sums, 0, 2 * calls), tree(calls, calls, run)) << "the last sum's";
    }
}

TEST(PairwiseSum, OfPartsGivesThePartsOfASum) {
  for (const std::int64_t run : {1, 3})
    for (std::size_t levels = 0; levels <= 3; ++levels) {
      if (run == 1 && levels == 0) continue;
      const std::int64_t parts = std::int64_t{8} >> levels, count = run << levels;
      std::vector<float> sums;
      for (std::int64_t part = 0; part < parts; ++part)
        sums.push_back(computed({.run = run}, levels + (run > 1 ? 1 : 0), part * count, count));
      while (sums.size() > 1) {
        std::vector<float> pairs;
        for (std::size_t i = 0; i < sums.size(); i += 2) pairs.push_back(sums[i] + sums[i + 1]);
        sums = pairs;
      }
      EXPECT_EQ(sums[0], tree(0, 8 * run, run)) << parts << " parts";
    }
}

TEST(PairwiseSum, CountsWhatACallDoesOnAverage) {
  const std::vector<TensorType> in{{DType::i32, {}},
                                   {DType::f32, {64}},
                                   {DType::f32, {64}},
                                   {DType::f32, {64}},
                                   {DType::f32, {64}}};
  const Cost cost = PairwiseSum{}.cost(in, {in.begin() + 2, in.end()});
  EXPECT_EQ(cost.flops, 64 * 7 / 8);
  EXPECT_EQ(cost.bytes_read, 4 + 256 + 256 * 7 / 8);
  EXPECT_EQ(cost.bytes_written, 256);
}

}  // namespace
}  // namespace ridge
