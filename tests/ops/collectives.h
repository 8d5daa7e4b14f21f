#pragma once

// Collectives over several ranks, whatever their devices are. What they are of one rank, every
// operator's tests hold.

#include <gtest/gtest.h>

#include <vector>

#include "ridge/base/part.h"
#include "ridge/ops/check.h"
#include "ridge/ops/collective.h"
#include "tests/dist/ranks.h"
#include "tests/ops/sample_runner.h"

namespace ridge::testing {

// Integers small enough for sums over eight ranks to be exact in every dtype.
inline double operand(int rank, std::size_t tensor, std::int64_t i) {
  return static_cast<double>((i + 3 * static_cast<std::int64_t>(tensor) + 5 * rank) % 17 - 8);
}

inline std::vector<Reals> operands(int rank, Types types) {
  std::vector<Reals> all;
  for (std::size_t t = 0; t < types.size(); ++t) {
    all.emplace_back();
    for (std::int64_t i = 0; i < types[t].numel(); ++i) all.back().push_back(operand(rank, t, i));
  }
  return all;
}

inline double sum_over(int ranks, bool mean, std::size_t tensor, std::int64_t i) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += operand(rank, tensor, i);
  return mean ? sum / ranks : sum;
}

inline std::vector<Reals> computed(const Op& op, const std::vector<TensorType>& in,
                                   const std::vector<Reals>& values, Device& device) {
  const std::vector<TensorType> out = infer(op, in);
  const auto bytes = run_kernel(device, op, in, out, values);
  std::vector<Reals> results;
  for (std::size_t o = 0; o < out.size(); ++o) results.push_back(decode(bytes[o], out[o].dtype));
  return results;
}

// Those of a rank's part, where each element of the whole is a function of its place.
template <class F>
Reals part_of_rank(const TensorType& whole, int rank, int ranks, const F& element) {
  Reals part;
  const auto [first, count] = part_of(whole.numel(), rank, ranks);
  for (std::int64_t i = first; i < first + count; ++i) part.push_back(element(i));
  return part;
}

// A mean of three is no number of 16 bits.
inline bool is_exact(int ranks, bool mean) { return !mean || ranks != 3; }

inline void expect_sums_and_means(const std::vector<int>& counts, const OpenRank& open) {
  const std::vector<std::vector<TensorType>> cases{
      {{DType::f32, {}}},
      {{DType::f32, {3, 20011}}},
      {{DType::bf16, {129}}},
      {{DType::f32, {7, 5}}, {DType::f16, {1}}, {DType::bf16, {64, 33}}}};
  for (const int ranks : counts)
    for (const bool mean : {false, true})
      for (const auto& types : cases) {
        if (!is_exact(ranks, mean)) continue;
        const auto run = [&](Device& device) {
          const AllReduce op{.ranks = ranks, .mean = mean};
          const std::vector<Reals> sums =
              computed(op, types, operands(device.rank(), types), device);
          for (std::size_t t = 0; t < types.size(); ++t)
            EXPECT_EQ(sums[t],
                      part_of_rank(types[t], 0, 1,
                                   [&](std::int64_t i) { return sum_over(ranks, mean, t, i); }))
                << ranks << " ranks, " << list_of(types);
        };
        on_ranks(ranks, run, open);
      }
}

// Of a part for each of eight ranks.
inline const std::vector<std::vector<TensorType>> shared_tensors{
    {{DType::f32, {3, 20011}}},
    {{DType::bf16, {1291}}},
    {{DType::f32, {7, 65}}, {DType::f16, {128}}, {DType::bf16, {64, 33}}, {DType::f32, {256}}}};

inline void expect_sums_of_parts(const std::vector<int>& counts, const OpenRank& open) {
  for (const int ranks : counts)
    for (const bool mean : {false, true})
      for (const auto& types : shared_tensors) {
        if (!is_exact(ranks, mean)) continue;
        const auto run = [&](Device& device) {
          const ReduceScatter op{.ranks = ranks, .rank = device.rank(), .mean = mean};
          const std::vector<Reals> sums =
              computed(op, types, operands(device.rank(), types), device);
          for (std::size_t t = 0; t < types.size(); ++t)
            EXPECT_EQ(sums[t],
                      part_of_rank(types[t], device.rank(), ranks,
                                   [&](std::int64_t i) { return sum_over(ranks, mean, t, i); }))
                << ranks << " ranks, " << list_of(types);
        };
        on_ranks(ranks, run, open);
      }
}

inline void expect_gathered_parts(const std::vector<int>& counts, const OpenRank& open) {
  for (const int ranks : counts)
    for (const bool in_place : {false, true})
      for (const auto& types : shared_tensors) {
        const auto run = [&](Device& device) {
          AllGather op{.ranks = ranks, .rank = device.rank()};
          std::vector<TensorType> in;
          std::vector<Reals> values, wholes;
          for (std::size_t t = 0; t < types.size(); ++t) {
            const auto element = [&](std::int64_t i) { return operand(0, t, i); };
            values.push_back(part_of_rank(types[t], device.rank(), ranks, element));
            in.push_back({types[t].dtype, {std::ssize(values.back())}});
            wholes.push_back(part_of_rank(types[t], 0, 1, element));
            if (in_place) {
              in.push_back(types[t]);
              values.emplace_back(types[t].numel(), -77.0);
            } else {
              op.shapes.push_back(types[t].shape);
            }
          }
          EXPECT_EQ(computed(op, in, values, device), wholes) << ranks << ", " << list_of(types);
        };
        on_ranks(ranks, run, open);
      }
}

inline void expect_rounded_parts(const std::vector<int>& counts, const OpenRank& open) {
  for (const int ranks : counts)
    for (const DType rounded_to : {DType::bf16, DType::f16}) {
      const auto run = [&](Device& device) {
        const std::vector<TensorType> types{
            {DType::f32, {3, 20011}}, {DType::bf16, {128}}, {DType::f16, {64, 33}}};
        AllGather op{.ranks = ranks, .rank = device.rank(), .rounded_to = rounded_to};
        std::vector<TensorType> in;
        std::vector<Reals> values, wholes;
        for (std::size_t t = 0; t < types.size(); ++t) {
          // Less than half a unit in the last place is added, which either dtype rounds away.
          const auto element = [&](std::int64_t i) { return operand(0, t, i); };
          const auto given = [&](std::int64_t i) {
            return types[t].dtype == DType::f32 ? element(i) * (1 + std::ldexp(1.0, -12))
                                                : element(i);
          };
          values.push_back(part_of_rank(types[t], device.rank(), ranks, given));
          in.push_back({types[t].dtype, {std::ssize(values.back())}});
          wholes.push_back(part_of_rank(types[t], 0, 1, element));
          op.shapes.push_back(types[t].shape);
        }
        EXPECT_EQ(computed(op, in, values, device), wholes) << ranks << ", " << name_of(rounded_to);
      };
      on_ranks(ranks, run, open);
    }
}

}  // namespace ridge::testing
