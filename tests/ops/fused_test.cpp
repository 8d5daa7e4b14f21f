// A fused operator is the operators that it stands for: in the reference both give the same results
// and, through autodiff, the same gradients.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ridge/cpu/device.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/reference.h"
#include "tests/ops/norm_results.h"
#include "tests/ops/sample_runner.h"
#include "tests/ops/types.h"

namespace ridge {
namespace {

using testing::Reals;
using Build = std::function<std::vector<Value>(std::span<const Value>)>;

// An operand without a gradient.
struct Constant {
  TensorType type;
  Reals values;
};

// Takes columns [begin, begin + width) out of x[.., columns] as project(x, it): there is no
// slicing.
Constant columns_from(std::int64_t begin, std::int64_t width, std::int64_t columns) {
  Constant pick{f32({width, columns}), Reals(static_cast<std::size_t>(width * columns))};
  for (std::int64_t i = 0; i < width; ++i)
    pick.values[static_cast<std::size_t>(i * columns + begin + i)] = 1.0;
  return pick;
}

// The results of `build` and then the gradients of a weighted sum of them. It is given the operands
// and then the constants.
std::vector<Reals> results_and_gradients(Types in, std::span<const Constant> constants,
                                         const Build& build) {
  Graph graph;
  ReferenceValues fed;
  std::vector<Value> operands;
  for (std::size_t i = 0; i < in.size(); ++i) {
    operands.push_back(
        graph.state(fmt::format("operand {}", i), in[i], Role::parameter, Init::zeros()));
    fed[operands[i].id] = testing::sample_values({in[i]}, DType::f32, i);
  }
  const std::vector<Value> wrt = operands;
  for (const Constant& constant : constants) {
    operands.push_back(graph.input(fmt::format("constant {}", operands.size()), constant.type));
    fed[operands.back().id] = constant.values;
  }
  std::vector<Value> values = build(operands);
  Value loss;
  for (std::size_t r = 0; r < values.size(); ++r) {
    const TensorType type = f32(values[r].shape());
    const Value weights = graph.input(fmt::format("weights {}", r), type);
    fed[weights.id] = testing::sample_values({type}, DType::f32, 100 + r);
    const Value part = sum_to(mul(cast(values[r], DType::f32), weights), {});
    loss = loss ? add(loss, part) : part;
  }
  for (const Value& grad : gradients(loss, wrt)) values.push_back(grad);
  const ReferenceValues computed = evaluate_reference(graph, fed);
  std::vector<Reals> all;
  for (const Value& value : values) all.push_back(computed.at(value.id));
  return all;
}

void expect_same(const std::vector<TensorType>& in, const std::vector<Constant>& constants,
                 const Build& fused, const Build& parts) {
  const auto actual = results_and_gradients(in, constants, fused);
  const auto wanted = results_and_gradients(in, constants, parts);
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(fmt::format("value {}", i));
    testing::expect_close(actual[i], wanted[i], {1e-12, 1e-12});
  }
}

TEST(FusedOperators, SwiGluIsSiluTimesUp) {
  auto parts = [](auto x) { return std::vector{mul(silu(x[0]), x[1])}; };
  expect_same(
      {f32({2, 3, 5}), f32({2, 3, 5})}, {}, [](auto x) { return std::vector{swiglu(x[0], x[1])}; },
      parts);
  expect_same(
      {f32({2, 3, 10})}, {columns_from(0, 5, 10), columns_from(5, 5, 10)},
      [](auto x) { return std::vector{swiglu(x[0])}; },
      [&](auto x) {
        return parts(std::array{project(x[0], x[1]), project(x[0], x[2])});
      });
}

TEST(FusedOperators, AddRmsNormIsASumAndItsNorm) {
  for (const TensorType& delta : {f32({3, 7}), bf16({3, 7})})
    // Which of sum and y are used, so that each arrives at the gradient with and without the other.
    for (const std::vector<std::size_t>& used : {std::vector<std::size_t>{0, 1}, {0}, {1}}) {
      auto select = [&](Value sum, Value y) {
        std::vector<Value> values;
        for (const std::size_t u : used) values.push_back(u == 0 ? sum : y);
        return values;
      };
      std::vector<TensorType> in{f32({3, 7}), delta};
      if (used.back() == 1) in.push_back(f32({7}));
      auto weight = [](auto x) { return x.size() > 2 ? x[2] : fill(*x[0].graph, f32({7}), 1.0f); };
      expect_same(
          in, {},
          [&](auto x) {
            const auto out = x[0].graph->apply(AddRmsNorm{.out = DType::bf16},
                                               std::array{x[0], x[1], weight(x)});
            return select(out[0], out[1]);
          },
          [&](auto x) {
            const Value sum = add(x[0], cast(x[1], DType::f32));
            return select(sum, cast(rms_norm(sum, weight(x)), DType::bf16));
          });
    }
}

TEST(FusedOperators, RmsNormRoundsItsResultAsACastDoes) {
  auto norm = [](auto x, std::optional<DType> out) {
    return x[0].graph->apply(RmsNorm{.out = out}, std::array{x[0], x[1]})[0];
  };
  expect_same(
      {f32({3, 7}), f32({7})}, {}, [&](auto x) { return std::vector{norm(x, DType::bf16)}; },
      [&](auto x) { return std::vector{cast(norm(x, std::nullopt), DType::bf16)}; });
}

TEST(FusedOperators, RmsNormGradTakesAGradientInBf16WhereXIsF32) {
  CpuDevice device(2);
  const std::vector<TensorType> in{bf16({40, 33}), f32({40, 33}), f32({33}), f32({40})};
  std::vector<Reals> values;
  for (std::size_t i = 0; i < in.size(); ++i)
    values.push_back(testing::sample_values({in[i]}, in[i].dtype, i));
  const RmsNormGrad op;
  const std::vector<TensorType> out = op.infer(in);
  const auto wanted = testing::run_reference(op, in, out, values);
  const auto actual = testing::run_kernel(device, op, in, out, values);
  for (std::size_t o = 0; o < out.size(); ++o) {
    EXPECT_EQ(out[o].dtype, DType::f32);
    testing::expect_close(testing::decode(actual[o], DType::f32), wanted[o],
                          testing::tolerance_of(out[o], in));
  }
}

TEST(FusedOperators, RmsNormGradFromTheResultIsThatFromTheOperand) {
  CpuDevice device(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    testing::expect_gradients_from_results(device, dtype);
}

TEST(FusedOperators, MaskedSoftmaxScalesAndMasks) {
  expect_same(
      {f32({2, 3, 9, 9})}, {},
      [](auto x) { return std::vector{x[0].graph->apply1(MaskedSoftmax{.scale = 0.3f}, {x[0]})}; },
      [](auto x) { return std::vector{softmax(causal_mask(scale(x[0], 0.3f)))}; });
}

// NaN beyond the diagonal reaches neither the results nor the gradient.
TEST(FusedOperators, MaskedSoftmaxDoesNotReadTheFuture) {
  CpuDevice device(1);
  constexpr std::int64_t extent = 19;
  const std::vector<TensorType> in{f32({extent, extent})}, both{in[0], in[0]};
  Reals values = testing::sample_values({in[0]}, DType::f32, 0), poisoned = values;
  for (std::int64_t q = 0; q < extent; ++q)
    for (std::int64_t k = q + 1; k < extent; ++k)
      poisoned[static_cast<std::size_t>(q * extent + k)] = std::nan("");
  EXPECT_EQ(testing::run_kernel(device, MaskedSoftmax{}, in, in, {poisoned}),
            testing::run_kernel(device, MaskedSoftmax{}, in, in, {values}));
  EXPECT_EQ(testing::run_kernel(device, MaskedSoftmaxGrad{}, both, in, {poisoned, poisoned}),
            testing::run_kernel(device, MaskedSoftmaxGrad{}, both, in, {values, values}));
}

TEST(FusedOperators, SplitHeadsTakesOutPermutesAndTurns) {
  for (const float theta : {0.0f, 500.0f}) {
    const HeadLayout layout{4, 2, 6, theta};
    auto heads = [&](Value packed, Value pick, std::int64_t count, bool turns) {
      const Value part = reshape(project(packed, pick), {2, 5, count, 6});
      const Value moved = permute(part, {0, 2, 1, 3});
      return turns && theta != 0 ? rope(moved, theta) : moved;
    };
    expect_same(
        {f32({2, 5, 48})},
        {columns_from(0, 24, 48), columns_from(24, 12, 48), columns_from(36, 12, 48)},
        [&](auto x) { return x[0].graph->apply(SplitHeads{layout}, std::array{x[0]}); },
        [&](auto x) {
          return std::vector{heads(x[0], x[1], 4, true), heads(x[0], x[2], 2, true),
                             heads(x[0], x[3], 2, false)};
        });
  }
}

// The rotation leaves lengths, so that merging what was split gives the operand back.
TEST(FusedOperators, MergeHeadsUndoesSplitHeads) {
  CpuDevice device(2);
  const HeadLayout layout{3, 1, 8, 10000.0f};
  const std::vector<TensorType> packed{f32({2, 33, 40})};
  const std::vector<TensorType> parts = SplitHeads{layout}.infer(packed);
  const Reals values = testing::sample_values({packed[0]}, DType::f32, 0);
  const auto split = testing::run_kernel(device, SplitHeads{layout}, packed, parts, {values});
  std::vector<Reals> halves;
  for (const auto& bytes : split) halves.push_back(testing::decode(bytes, DType::f32));
  const auto merged = testing::run_kernel(device, MergeHeads{layout}, parts, packed, halves);
  testing::expect_close(testing::decode(merged[0], DType::f32), values, {1e-6, 0.0});
}

TEST(FusedOperators, SplitHeadsFillsInForGradientsThatNeverArrive) {
  const HeadLayout layout{1, 1, 4, 10000.0f};
  expect_same(
      {f32({1, 3, 12})}, {columns_from(4, 4, 12)},
      [&](auto x) {
        return std::vector{x[0].graph->apply(SplitHeads{layout}, std::array{x[0]})[1]};
      },
      [&](auto x) {
        return std::vector{rope(reshape(project(x[0], x[1]), {1, 1, 3, 4}), layout.rope_theta)};
      });
}

using Bytes = std::vector<std::byte>;

template <class Each>
class FusedOptimizers : public ::testing::Test {};
using Optimizers = ::testing::Types<AdamW, Sgd>;
TYPED_TEST_SUITE(FusedOptimizers, Optimizers);

TYPED_TEST(FusedOptimizers, DoWhatThatOfEachDoes) {
  using Each = TypeParam;
  constexpr std::size_t own = 2 + Each::moments;
  CpuDevice device(2);
  const Each each{.weight_decay = 0.1, .max_norm = 1.0};
  // The second parameter begins and ends within tasks that others share.
  const std::vector<TensorType> parameters{f32({37}), f32({3, 20011}), f32({1}), f32({129})};
  std::vector<TensorType> in{f32({3}), f32({})};
  std::vector<Reals> values{{1e-2, 0.5, 0.25}, {1.75}};
  std::vector<Bytes> wanted;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::vector<TensorType> alone(own, parameters[p]);
    std::vector<Reals> of_this;
    for (std::size_t i = 0; i < own; ++i)
      of_this.push_back(
          testing::sample_values({alone[i], i < 3 ? -1.0 : 0.01, 1.0}, DType::f32, own * p + i));
    in.insert(in.end(), alone.begin(), alone.end());
    values.insert(values.end(), of_this.begin(), of_this.end());
    alone.insert(alone.end(), in.begin(), in.begin() + 2);
    of_this.insert(of_this.end(), values.begin(), values.begin() + 2);
    for (Bytes& bytes : testing::run_kernel(device, each, alone, each.infer(alone), of_this))
      wanted.push_back(std::move(bytes));
  }
  const UpdateAll<Each> all{.each = each};
  EXPECT_EQ(testing::run_kernel(device, all, in, all.infer(in), values), wanted);
}

// Step after step the same numbers, whether they lie in halves or not.
template <class Each>
void expect_the_same_in_halves() {
  CpuDevice device(2);
  const UpdateAll<Each> op{.zero_grad = true};
  const Shape shape{5, 4111};
  const TensorType f32{DType::f32, shape};
  std::vector<TensorType> in(1 + UpdateAll<Each>::operands_each, f32), halves;
  in[0] = op.each.schedule_type();
  halves = in;
  halves[1].dtype = DType::split_f32;
  std::vector<Reals> values{{1e-2, 0.5, 0.25}}, of_halves;
  for (std::size_t i = 1; i < in.size(); ++i)
    values.push_back(testing::sample_values({f32, i < 4 ? -1.0 : 0.01, 1.0}, DType::f32, i));
  values[1][7] = std::numeric_limits<float>::max();
  const Reals grad = values[2];
  of_halves = values;
  for (int step = 0; step < 3; ++step) {
    const auto wanted = testing::run_kernel(device, op, in, op.infer(in), values);
    const auto got = testing::run_kernel(device, op, halves, op.infer(halves), of_halves);
    EXPECT_EQ(testing::decode(got[0], DType::split_f32), testing::decode(wanted[0], DType::f32));
    for (std::size_t o = 1; o < got.size(); ++o) EXPECT_EQ(got[o], wanted[o]) << o;
    of_halves[1] = testing::decode(got[0], DType::split_f32);
    values[1] = testing::decode(wanted[0], DType::f32);
    for (std::size_t m = 0; m < Each::moments; ++m)
      values[3 + m] = of_halves[3 + m] = testing::decode(got[1 + m], DType::f32);
  }
}

TEST(FusedOperators, UpdateWeightsInHalvesToTheSameNumbers) {
  expect_the_same_in_halves<AdamW>();
  expect_the_same_in_halves<Sgd>();
}

TEST(FusedOperators, AdamWAllUpdatesEachOperandInItsOwnMemory) {
  const AdamWAll op{.each = {.max_norm = 1.0}, .zero_grad = true, .copied = {false, true}};
  const std::vector<std::optional<std::uint32_t>> wanted{2, 4, 5, 3, 6, 8, 9, 7, 10};
  for (std::uint32_t o = 0; o < wanted.size(); ++o) {
    const auto alias = op.aliased_input(o, {});
    EXPECT_EQ(alias ? std::optional(alias->input) : std::nullopt, wanted[o]) << o;
  }
}

// So that a run that computes it again for the backward pass is the same run.
TEST(FusedOperators, SwiGluGradGivesTheBitsOfSwiGlu) {
  CpuDevice device(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool packed : {false, true}) {
      const TensorType y{dtype, {37, 211}};
      std::vector<TensorType> in{y};
      if (packed)
        in.push_back({dtype, {37, 422}});
      else
        in.insert(in.end(), 2, y);
      std::vector<Reals> values;
      for (std::size_t i = 0; i < in.size(); ++i)
        values.push_back(testing::sample_values({in[i], -8.0, 8.0}, in[i].dtype, i));
      const SwiGluGrad with_result{.result = true};
      auto wanted = testing::run_kernel(device, SwiGluGrad{}, in, SwiGluGrad{}.infer(in), values);
      const std::vector<TensorType> gate_and_up(in.begin() + 1, in.end());
      wanted.push_back(testing::run_kernel(device, SwiGlu{}, gate_and_up,
                                           SwiGlu{}.infer(gate_and_up),
                                           {values.begin() + 1, values.end()})[0]);
      EXPECT_EQ(testing::run_kernel(device, with_result, in, with_result.infer(in), values),
                wanted);
    }
}

TEST(FusedOperators, CrossEntropyGradInPlaceGivesTheSameBits) {
  CpuDevice device(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<TensorType> in{f32({}), {dtype, {40, 257}}, {DType::i32, {40}}, f32({40})};
    std::vector<Reals> values;
    for (std::size_t i = 0; i < in.size(); ++i)
      values.push_back(testing::sample_values({in[i], 1.0, 8.0}, in[i].dtype, i));
    const auto run = [&](CrossEntropyGrad op) {
      return testing::run_kernel(device, op, in, op.infer(in), values);
    };
    EXPECT_EQ(run({.in_place = true}), run({.in_place = false}));
  }
}

// dy * up through silu, as the gradient of a gated unit has it, on the operators' own kernels.
TEST(FusedOperators, PointwiseGivesTheBitsOfItsSteps) {
  CpuDevice device(2);
  const std::vector<TensorType> three(3, f32({7, 2003}));
  const Types two(three.data(), 2), one(three.data(), 1);
  std::vector<Reals> x;
  for (std::size_t i = 0; i < 3; ++i)
    x.push_back(testing::sample_values({three[i], -4.0, 4.0}, DType::f32, i));
  auto run = [&](const Op& op, Types in, const std::vector<Reals>& values) {
    const auto bytes = testing::run_kernel(device, op, in, one, values);
    return testing::decode(bytes[0], DType::f32);
  };
  const Reals product = run(Mul{}, two, {x[0], x[1]});
  const Reals back = run(SiluGrad{}, two, {product, x[2]});
  const Reals scaled = run(Scale{.factor = 0.3f}, one, {run(Silu{}, one, {x[2]})});
  const Reals sum = run(Add{}, two, {back, scaled});
  const Reals relu_of_sum = run(Relu{}, one, {sum});
  const Reals wanted = run(ReluGrad{}, two, {sum, relu_of_sum});

  using Code = Pointwise::Code;
  const Pointwise fused{.steps = {{Code::mul, 0, 1},
                                  {Code::silu_grad, 3, 2},
                                  {Code::silu, 2},
                                  {Code::scale, 5, 0, 0.3f},
                                  {Code::add, 4, 6},
                                  {Code::relu, 7},
                                  {Code::relu_grad, 7, 8}},
                        .results = {{9}}};
  EXPECT_EQ(run(fused, three, x), wanted);
}

// Columns [first, first + columns) of windows' positions [B, P, C] as heads [B, heads, P, d].
Value heads_of(Value x, std::int64_t first, std::int64_t columns, std::int64_t heads) {
  const Shape& s = x.shape();
  x = reshape(window(x, 2, first, columns), {s[0], s[1], heads, columns / heads});
  return permute(x, {0, 2, 1, 3});
}

// Images [N, H, W, C] as windows [N R C', side^2, C], and back.
Value cut(Value x, const WindowHeads& w) {
  const Shape s = x.shape();
  const std::int64_t rows = s[1] / w.side, columns = s[2] / w.side;
  x = roll(roll(x, 1, -w.shift_down), 2, -w.shift_across);
  const Shape split = w.spread ? Shape{s[0], w.side, rows, w.side, columns, s[3]}
                               : Shape{s[0], rows, w.side, columns, w.side, s[3]};
  x = reshape(x, split);
  x = w.spread ? permute(x, {0, 2, 4, 1, 3, 5}) : permute(x, {0, 1, 3, 2, 4, 5});
  return reshape(x, {s[0] * rows * columns, w.positions(), s[3]});
}

Value joined(Value x, const WindowHeads& w, const Shape& image) {
  const std::int64_t rows = image[1] / w.side, columns = image[2] / w.side;
  x = reshape(x, {image[0], rows, columns, w.side, w.side, image[3]});
  x = w.spread ? permute(x, {0, 3, 1, 4, 2, 5}) : permute(x, {0, 1, 3, 2, 4, 5});
  return roll(roll(reshape(x, image), 1, w.shift_down), 2, w.shift_across);
}

// [windows of an image, 1, P, P]: what keeps pixels apart that the shift put together, found from
// where they were.
Constant mask_of(const WindowHeads& w, std::int64_t height, std::int64_t width) {
  const std::int64_t rows = height / w.side, columns = width / w.side, n = w.positions();
  Constant mask{f32({rows * columns, 1, n, n}), {}};
  for (std::int64_t window = 0; window < rows * columns; ++window) {
    const auto wrapped = [&](std::int64_t p) {
      const std::int64_t y = window / columns * w.side + p / w.side + w.shift_down;
      const std::int64_t x = window % columns * w.side + p % w.side + w.shift_across;
      return std::pair(y >= height, x >= width);
    };
    for (std::int64_t p = 0; p < n; ++p)
      for (std::int64_t q = 0; q < n; ++q)
        mask.values.push_back(wrapped(p) == wrapped(q) ? 0.0 : -1000.0);
  }
  return mask;
}

TEST(FusedOperators, WindowAttentionCutsAttendsAndJoins) {
  constexpr std::int64_t heads = 2, d = 3, channels = heads * d;
  for (const WindowHeads& w :
       {WindowHeads{.n_heads = heads, .side = 3, .scale = 0.5f},
        WindowHeads{.n_heads = heads, .side = 3, .shift_down = 1, .shift_across = 2, .scale = 0.5f},
        WindowHeads{.n_heads = heads, .side = 3, .spread = true, .scale = 0.5f}}) {
    const std::int64_t n = w.positions();
    const Shape image{2, 6, 9, channels};
    expect_same(
        {f32({2, 6, 9, 3 * channels}), f32({heads, n, n})}, {mask_of(w, 6, 9)},
        [&](auto x) { return std::vector{window_attention(x[0], x[1], w)}; },
        [&](auto x) {
          const Value qkv = cut(x[0], w);
          const Value q = scale(heads_of(qkv, 0, channels, heads), w.scale);
          Value s = matmul(q, heads_of(qkv, channels, channels, heads), {.trans_b = true});
          s = reshape(add(s, x[1]), {2, 6, heads, n, n});
          s = reshape(add(s, x[2]), {12, heads, n, n});
          const Value y = matmul(softmax(s), heads_of(qkv, 2 * channels, channels, heads));
          return std::vector{
              joined(reshape(permute(y, {0, 2, 1, 3}), {12, n, channels}), w, image)};
        });
  }
}

}  // namespace
}  // namespace ridge
