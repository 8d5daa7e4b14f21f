// Collectives over several ranks. What they are of one rank, every operator's tests hold.

#include "ridge/ops/collective.h"

#include <gtest/gtest.h>

#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/part.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/check.h"
#include "tests/base/message_of.h"
#include "tests/dist/ranks.h"
#include "tests/ops/infer_message.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using testing::decode;
using testing::encode;
using testing::Reals;

// Integers small enough for sums over eight ranks to be exact in every dtype.
double operand(int rank, std::size_t tensor, std::int64_t i) {
  return static_cast<double>((i + 3 * static_cast<std::int64_t>(tensor) + 5 * rank) % 17 - 8);
}

std::vector<Reals> operands(int rank, Types types) {
  std::vector<Reals> all;
  for (std::size_t t = 0; t < types.size(); ++t) {
    all.emplace_back();
    for (std::int64_t i = 0; i < types[t].numel(); ++i) all.back().push_back(operand(rank, t, i));
  }
  return all;
}

// By rank and tensor.
std::vector<std::vector<Reals>> expected(const AllReduce& op, Types types) {
  const auto ranks = static_cast<int>(op.ranks);
  std::vector<std::vector<Reals>> in, out;
  std::vector<std::vector<ReferenceTensor>> in_tensors, out_tensors;
  for (int rank = 0; rank < ranks; ++rank) in.push_back(operands(rank, types));
  out = in;
  std::vector<ReferenceCall> calls;
  in_tensors.resize(in.size()), out_tensors.resize(in.size());
  for (std::size_t rank = 0; rank < in.size(); ++rank) {
    for (std::size_t t = 0; t < types.size(); ++t) {
      in_tensors[rank].push_back({types[t].shape, in[rank][t]});
      out_tensors[rank].push_back({types[t].shape, out[rank][t]});
    }
    calls.push_back({in_tensors[rank], out_tensors[rank]});
  }
  op.reference_over(calls);
  return out;
}

std::vector<Reals> computed(const AllReduce& op, Types types, Device& device) {
  const PreparedKernel prepared = device.prepare(Op(op), types, types);
  std::vector<std::vector<std::byte>> memory;
  const std::vector<Reals> in = operands(device.rank(), types);
  for (std::size_t t = 0; t < types.size(); ++t) memory.push_back(encode(in[t], types[t].dtype));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (auto& bytes : memory) inputs.push_back(bytes.data()), outputs.push_back(bytes.data());
  std::vector<std::byte> workspace(prepared.workspace + 64);
  void* aligned = workspace.data();
  std::size_t room = workspace.size();
  std::align(64, prepared.workspace, aligned, room);
  prepared.kernel->launch({inputs, outputs, aligned});
  std::vector<Reals> results;
  for (std::size_t t = 0; t < types.size(); ++t)
    results.push_back(decode(memory[t], types[t].dtype));
  return results;
}

TEST(AllReduce, IsTheReferenceOnAnyNumberOfRanks) {
  const std::vector<std::vector<TensorType>> cases{
      {{DType::f32, {}}},
      {{DType::f32, {3, 20011}}},
      {{DType::bf16, {129}}},
      {{DType::f32, {7, 5}}, {DType::f16, {1}}, {DType::bf16, {64, 33}}}};
  for (const int ranks : {2, 3, 4, 8})
    for (const bool mean : {false, true})
      for (const auto& types : cases) {
        // A mean of three is no number of 16 bits.
        if (mean && ranks == 3) continue;
        const AllReduce op{.ranks = ranks, .mean = mean};
        const auto all = expected(op, types);
        on_ranks(ranks, [&](Device& device) {
          EXPECT_EQ(computed(op, types, device), all[static_cast<std::size_t>(device.rank())])
              << ranks << " ranks, " << list_of(types);
        });
      }
}

TEST(AllReduce, OfThreeRanksIsTheirMean) {
  const std::vector<TensorType> types{{DType::f32, {1000}}};
  const AllReduce op{.ranks = 3, .mean = true};
  const auto all = expected(op, types);
  on_ranks(3, [&](Device& device) {
    const Reals means = computed(op, types, device)[0];
    for (std::size_t i = 0; i < means.size(); ++i) EXPECT_NEAR(means[i], all[0][0][i], 1e-6);
  });
}

// What ranks make of these operands, by rank and tensor, on `device` for its own.
std::vector<Reals> run(const Op& op, const std::vector<TensorType>& in,
                       const std::vector<Reals>& values, Device& device) {
  const std::vector<TensorType> out = infer(op, in);
  const PreparedKernel prepared = device.prepare(op, in, out);
  std::vector<std::vector<std::byte>> given, made;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (std::size_t i = 0; i < in.size(); ++i) given.push_back(encode(values[i], in[i].dtype));
  for (const TensorType& type : out) made.emplace_back(type.bytes());
  for (auto& bytes : given) inputs.push_back(bytes.data());
  for (std::uint32_t o = 0; o < out.size(); ++o) {
    const auto alias = aliased_input(op, o, in);
    outputs.push_back(alias ? given[alias->input].data() : made[o].data());
  }
  std::vector<std::byte> workspace(prepared.workspace);
  prepared.kernel->launch({inputs, outputs, workspace.data()});
  std::vector<Reals> results;
  for (std::uint32_t o = 0; o < out.size(); ++o) {
    const auto alias = aliased_input(op, o, in);
    results.push_back(decode(alias ? given[alias->input] : made[o], out[o].dtype));
  }
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

// Of a part for each of eight ranks.
const std::vector<std::vector<TensorType>> shared_tensors{
    {{DType::f32, {3, 20011}}},
    {{DType::bf16, {1291}}},
    {{DType::f32, {7, 65}}, {DType::f16, {128}}, {DType::bf16, {64, 33}}, {DType::f32, {256}}}};

TEST(ReduceScatter, GivesEachRankTheSumOfItsPart) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const bool mean : {false, true})
      for (const auto& types : shared_tensors) {
        if (mean && ranks == 3) continue;  // a mean of three is no number of 16 bits
        on_ranks(ranks, [&](Device& device) {
          const ReduceScatter op{.ranks = ranks, .rank = device.rank(), .mean = mean};
          const std::vector<Reals> sums = run(op, types, operands(device.rank(), types), device);
          for (std::size_t t = 0; t < types.size(); ++t)
            EXPECT_EQ(sums[t], part_of_rank(types[t], device.rank(), ranks,
                                            [&](std::int64_t i) {
                                              double sum = 0;
                                              for (int rank = 0; rank < ranks; ++rank)
                                                sum += operand(rank, t, i);
                                              return mean ? sum / ranks : sum;
                                            }))
                << ranks << " ranks, " << list_of(types);
        });
      }
}

TEST(AllGather, PutsPartsTogether) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const bool in_place : {false, true})
      for (const auto& types : shared_tensors) {
        on_ranks(ranks, [&](Device& device) {
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
          EXPECT_EQ(run(op, in, values, device), wholes) << ranks << ", " << list_of(types);
        });
      }
}

TEST(AllGather, RefusesPartsThatAreNotTheRanks) {
  const AllGather op{.ranks = 2, .rank = 1};
  EXPECT_EQ(infer(Op(op), std::vector<TensorType>{{DType::f32, {32}}, {DType::f32, {80}}}),
            (std::vector<TensorType>{{DType::f32, {80}}}));
  EXPECT_NE(message_of(op, {{DType::f32, {48}}, {DType::f32, {80}}}), "nothing was thrown");
  EXPECT_NE(message_of(op, {{DType::f32, {32}}}), "nothing was thrown");
  EXPECT_EQ(message_of(AllGather{.ranks = 2, .rank = 2}, {{DType::f32, {16}}, {DType::f32, {16}}}),
            "all_gather: there is no rank 2 of 2");
  EXPECT_EQ(message_of(ReduceScatter{.ranks = 4}, {{DType::f32, {3, 16}}}),
            "reduce_scatter: the 48 elements of f32[3, 16] give no part for each of 4 ranks");
}

TEST(Collectives, CountWhatTheySend) {
  const std::vector<TensorType> whole{{DType::bf16, {4, 64}}}, part{{DType::bf16, {64}}};
  EXPECT_EQ(sent_bytes(Op(ReduceScatter{.ranks = 4}), whole), 3 * 64 * 4) << "sums are of f32";
  EXPECT_EQ(sent_bytes(Op(AllReduce{.ranks = 4}), whole), 2 * 3 * 64 * 4);
  EXPECT_EQ(sent_bytes(Op(AllGather{.ranks = 4, .shapes = {{4, 64}}}), part), 3 * 64 * 2);
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
  EXPECT_EQ(message_of<UsageError>([&] { computed(of_two, types, alone); }),
            "all_reduce over 2 ranks on a device that is one of 1");
  on_ranks(3, [&](Device& device) {
    EXPECT_EQ(message_of<UsageError>([&] { device.prepare(Op(of_two), types, types); }),
              "all_reduce over 2 ranks on a device that is one of 3");
  });
}

}  // namespace
}  // namespace ridge
