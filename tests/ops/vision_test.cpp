// What samples cannot show of the operators of vision networks: windows worked out by hand, results
// that do not depend on the layout, statistics over several steps, and random numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/ops/infer_message.h"
#include "tests/ops/sample_runner.h"
#include "tests/ops/types.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Reals;

// The first output of an operator on one CPU thread.
Reals run(const Op& op, std::vector<TensorType> in, const std::vector<Reals>& values) {
  CpuDevice device(1);
  const std::vector<TensorType> out = infer(op, in);
  return testing::decode(testing::run_kernel(device, op, in, out, values)[0], out[0].dtype);
}

Reals counted(std::int64_t n) {
  Reals values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

// The elements of an image in the other layout.
Reals turned(const Reals& values, const ImageShape& s, ImageLayout from) {
  const ImageLayout to = from == ImageLayout::nchw ? ImageLayout::nhwc : ImageLayout::nchw;
  const ImageStrides a(s, from), b(s, to);
  Reals result(values.size());
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t c = 0; c < s.c; ++c)
      for (std::int64_t h = 0; h < s.h; ++h)
        for (std::int64_t w = 0; w < s.w; ++w)
          result[static_cast<std::size_t>(b.at(n, c, h, w))] =
              values[static_cast<std::size_t>(a.at(n, c, h, w))];
  return result;
}

TEST(Conv, IsNotFollowedByGelu) {
  const TensorType x{DType::f32, {1, 3, 8, 8}}, weight{DType::f32, {4, 3, 3, 3}};
  Conv2d op;
  op.epilogue = Epilogue::gelu;
  EXPECT_EQ(message_of(op, {x, weight}), "conv2d has no epilogue gelu");
}

TEST(Pooling, CountsWindows) {
  // 7 rows, windows of 3, 2 apart: at 0, 2, 4. With ceil no more; of 8 rows one at 6.
  const PoolWindows floor{.kernel = {3, 3}, .stride = {2, 2}};
  PoolWindows ceil = floor;
  ceil.ceil = true;
  EXPECT_EQ(floor.output({7, 8}), (Pair{3, 3}));
  EXPECT_EQ(ceil.output({7, 8}), (Pair{3, 4}));
  // Of 5 rows with padding of 1, windows of 2 at -1, 1, 3; the one at 5 would see only padding.
  const PoolWindows padded{.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}, .ceil = true};
  EXPECT_EQ(padded.output({5, 4}), (Pair{3, 3}));
  EXPECT_EQ(padded.output({6, 6}), (Pair{4, 4}));
  EXPECT_EQ(floor.output({2, 9})[0], 0);
}

TEST(Pooling, WindowsThatEndBeyondTheImage) {
  // 1 2 3 4 / 5 6 7 8 / 9 10 11 12 / 13 14 15 16
  PoolWindows windows{.kernel = {3, 3}, .stride = {2, 2}, .ceil = true};
  const std::vector<TensorType> in{f32({1, 1, 4, 4})};
  EXPECT_THAT(run(MaxPool2d{windows}, in, {counted(16)}), ElementsAre(11, 12, 15, 16));
  // What is beyond the image is part of no mean.
  for (const bool count : {true, false})
    EXPECT_THAT(run(AvgPool2d{windows, count}, in, {counted(16)}),
                ElementsAre(DoubleNear(6, 1e-6), DoubleNear(7.5, 1e-6), DoubleNear(12, 1e-6),
                            DoubleNear(13.5, 1e-6)));
}

TEST(Pooling, PaddingInTheMean) {
  const PoolWindows windows{.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}};
  const std::vector<TensorType> in{f32({1, 1, 2, 2})};
  EXPECT_THAT(run(AvgPool2d{windows, true}, in, {{4, 8, 12, 16}}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(run(AvgPool2d{windows, false}, in, {{4, 8, 12, 16}}), ElementsAre(4, 8, 12, 16));
  // In ceil mode the last window ends where the padding does: 2 of its 4 columns count.
  const PoolWindows ceil{.kernel = {1, 4}, .stride = {1, 3}, .padding = {0, 1}, .ceil = true};
  EXPECT_THAT(run(AvgPool2d{ceil, true}, {f32({1, 1, 1, 6})}, {{1, 2, 3, 4, 5, 6}}),
              ElementsAre(1.5, 4.5, 3));
}

TEST(Pooling, AdaptiveWindowsOverlap) {
  // Of 5 into 3: [0, 2), [1, 4), [3, 5).
  EXPECT_THAT(run(AdaptiveAvgPool2d{.size = {1, 3}}, {f32({1, 1, 1, 5})}, {{1, 2, 3, 4, 5}}),
              ElementsAre(1.5, 3, 4.5));
}

TEST(Pooling, TheFirstOfEqualElementsTakesTheGradient) {
  const PoolWindows windows{.kernel = {2, 2}, .stride = {1, 1}};
  EXPECT_THAT(run(MaxPool2dGrad{windows}, {f32({1, 1, 1, 2}), f32({1, 1, 2, 3})},
                  {{10, 100}, {5, 5, 5, 5, 5, 5}}),
              ElementsAre(10, 100, 0, 0, 0, 0));
}

TEST(Pooling, KeepsNaN) {
  const PoolWindows windows{.kernel = {2, 2}, .stride = {2, 2}};
  for (const ImageLayout layout : image_layouts) {
    PoolWindows w = windows;
    w.layout = layout;
    const Shape shape = ImageShape(1, 1, 2, 2).in(layout);
    EXPECT_TRUE(std::isnan(run(MaxPool2d{w}, {f32(shape)}, {{3, std::nan(""), 9, 1}})[0]));
  }
}

TEST(Resizing, LiesBetweenCenters) {
  EXPECT_THAT(run(Resize{.size = {1, 4}}, {f32({1, 1, 1, 2})}, {{0, 4}}), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(run(Resize{.size = {1, 2}}, {f32({1, 1, 1, 4})}, {{0, 2, 4, 6}}), ElementsAre(1, 5));
}

TEST(Layouts, GiveTheSame) {
  const ImageShape x{2, 6, 9, 7};
  const Reals values = testing::sample_values({f32({2, 6, 9, 7})}, DType::f32, 0);
  const Reals weights = testing::sample_values({f32({8, 3, 3, 3})}, DType::f32, 1);
  struct Case {
    Op nchw, nhwc;
    ImageShape y;
    bool weighted = false;
  };
  const ConvGeometry first{.stride = {2, 1}, .padding = {1, 1}, .groups = 2};
  ConvGeometry last = first;
  last.layout = ImageLayout::nhwc;
  const PoolWindows pool{.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1}};
  PoolWindows pool_last = pool;
  pool_last.layout = ImageLayout::nhwc;
  const std::vector<Case> cases{
      {Conv2d{first}, Conv2d{last}, {2, 8, 5, 7}, true},
      {MaxPool2d{pool}, MaxPool2d{pool_last}, {2, 6, 5, 4}},
      {AvgPool2d{pool}, AvgPool2d{pool_last}, {2, 6, 5, 4}},
      {AdaptiveAvgPool2d{{4, 2}}, AdaptiveAvgPool2d{{4, 2}, ImageLayout::nhwc}, {2, 6, 4, 2}},
      {Resize{{12, 5}}, Resize{{12, 5}, ImageLayout::nhwc}, {2, 6, 12, 5}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(name_of(c.nchw));
    std::vector<TensorType> a{f32(x.in(ImageLayout::nchw))}, b{f32(x.in(ImageLayout::nhwc))};
    std::vector<Reals> va{values}, vb{turned(values, x, ImageLayout::nchw)};
    if (c.weighted) {
      const ImageShape w{8, 3, 3, 3};
      a.push_back(f32(w.in(ImageLayout::nchw)));
      b.push_back(f32(w.in(ImageLayout::nhwc)));
      va.push_back(weights);
      vb.push_back(turned(weights, w, ImageLayout::nchw));
    }
    const Reals ya = run(c.nchw, a, va), yb = turned(run(c.nhwc, b, vb), c.y, ImageLayout::nhwc);
    testing::expect_close(yb, ya, {1e-6, 1e-6});
  }
}

// Running statistics after two steps, as PyTorch's BatchNorm2d has them.
TEST(BatchNorms, MoveTheirStatistics) {
  const std::vector<TensorType> in{f32({2, 1, 1, 2}), f32({1}), f32({1}), f32({1}), f32({1})};
  const Op op(BatchNormTrain{.momentum = 0.1f});
  CpuDevice device(1);
  const std::vector<TensorType> out = infer(op, in);
  // Mean 4, variance 5 (biased), 20 / 3 (unbiased).
  const auto results = testing::run_kernel(device, op, in, out, {{1, 3, 5, 7}, {2}, {3}, {0}, {1}});
  const auto value = [&](std::size_t i) { return testing::decode(results[i], DType::f32)[0]; };
  EXPECT_NEAR(value(1), 4, 1e-6);
  EXPECT_NEAR(value(2), 1 / std::sqrt(5 + 1e-5), 1e-6);
  EXPECT_NEAR(value(3), 0.4, 1e-6);
  EXPECT_NEAR(value(4), 0.9 + 0.1 * 20 / 3, 1e-6);
  EXPECT_NEAR(value(0), 3 - 2 * 3 / std::sqrt(5 + 1e-5), 1e-6);
  EXPECT_THAT(
      message_of(BatchNormTrain{}, {f32({1, 3, 1, 1}), f32({3}), f32({3}), f32({3}), f32({3})}),
      AllOf(HasSubstr("batch_norm_train"), HasSubstr("more than one element")));
}

// A variance that is a millionth of the mean's square keeps its digits.
TEST(BatchNorms, SurviveALargeMean) {
  for (const ImageLayout layout : image_layouts) {
    const std::vector<TensorType> in{f32(ImageShape(4, 1, 8, 8).in(layout)), f32({1}), f32({1}),
                                     f32({1}), f32({1})};
    Reals x(256);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1024.0 + (i % 2 ? 1.0 : -1.0);
    const Op op(BatchNormTrain{.eps = 0.0f, .layout = layout});
    CpuDevice device(1);
    const auto results =
        testing::run_kernel(device, op, in, infer(op, in), {x, {1}, {0}, {0}, {1}});
    EXPECT_NEAR(testing::decode(results[2], DType::f32)[0], 1.0, 1e-5);
    EXPECT_NEAR(testing::decode(results[0], DType::f32)[0], -1.0, 1e-5);
  }
}

// As of their concatenation, and no fewer than ReLU leaves.
TEST(BatchNorms, ReadAsManyImagesAsTheyMay) {
  const auto parts = static_cast<std::int64_t>(BatchNorm::most_parts);
  std::vector<TensorType> images, vectors(4, f32({3 * parts}));
  std::vector<Reals> values, ones(4, Reals(static_cast<std::size_t>(3 * parts), 1.0));
  for (std::int64_t p = 0; p < parts; ++p) {
    images.push_back(f32({1, 2, 2, 3}));
    values.push_back(testing::sample_values({images.back(), -2.0, 2.0}, DType::f32,
                                            static_cast<std::size_t>(p)));
  }
  const Reals joined = run(Concat{3}, images, values);
  const auto with = [](auto first, const auto& rest) {
    first.insert(first.end(), rest.begin(), rest.end());
    return first;
  };
  Reals expected = run(BatchNorm{.layout = ImageLayout::nhwc},
                       with(std::vector{f32({1, 2, 2, 3 * parts})}, vectors),
                       with(std::vector<Reals>{joined}, ones));
  for (double& x : expected) x = std::max(x, 0.0);
  const BatchNorm op{.layout = ImageLayout::nhwc, .parts = BatchNorm::most_parts, .relu = true};
  EXPECT_EQ(run(op, with(images, vectors), with(values, ones)), expected);
}

TEST(Dropping, KeepsTheRateAndRepeatsItself) {
  const std::vector<TensorType> in{f32({1000, 100}), {DType::i32, {}}};
  const Reals ones(100'000, 1.0);
  const auto dropped = [&](float rate, std::uint64_t seed, double step) {
    return run(Dropout{.rate = rate, .seed = seed}, in, {ones, {step}});
  };
  for (const float rate : {0.1f, 0.5f, 0.9f}) {
    const Reals y = dropped(rate, 1, 0);
    const auto zeros = static_cast<double>(std::ranges::count(y, 0.0));
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(zeros / 1e5, rate, 5 * std::sqrt(rate * (1 - rate) / 1e5));
    EXPECT_NEAR(*std::ranges::max_element(y), 1 / (1 - rate), 1e-5);
  }
  EXPECT_EQ(dropped(0.5f, 1, 3), dropped(0.5f, 1, 3));
  EXPECT_NE(dropped(0.5f, 1, 3), dropped(0.5f, 1, 4));
  EXPECT_NE(dropped(0.5f, 1, 3), dropped(0.5f, 2, 3));
}

TEST(Dropping, DropsWholeBlocks) {
  const Reals y = run(Dropout{.rate = 0.5f, .seed = 7, .block = 10},
                      {f32({64, 10}), {DType::i32, {}}}, {Reals(640, 1.0), {5}});
  int dropped = 0;
  for (std::size_t r = 0; r < 64; ++r) {
    for (std::size_t c = 1; c < 10; ++c) EXPECT_EQ(y[r * 10 + c], y[r * 10]);
    dropped += y[r * 10] == 0.0;
  }
  EXPECT_GT(dropped, 12);
  EXPECT_LT(dropped, 52);
}

TEST(VisionShapes, ThatDoNotFit) {
  EXPECT_THAT(message_of(Conv2d{}, {f32({1, 4, 8, 8}), f32({6, 3, 3, 3})}),
              AllOf(HasSubstr("conv2d"), HasSubstr("[6, 3, 3, 3]"), HasSubstr("4 channels")));
  EXPECT_THAT(message_of(Conv2d{{.groups = 2}}, {f32({1, 4, 8, 8}), f32({5, 2, 3, 3})}),
              HasSubstr("2 groups"));
  EXPECT_THAT(message_of(Conv2d{}, {f32({1, 4, 5, 8}), f32({6, 4, 7, 3})}),
              AllOf(HasSubstr("5 x 8"), HasSubstr("too small for a kernel of 7 x 3")));
  EXPECT_THAT(message_of(Conv2d{{.stride = {0, 1}}}, {f32({1, 4, 5, 8}), f32({6, 4, 3, 3})}),
              HasSubstr("at least 1"));
  EXPECT_THAT(message_of(Conv2d{{}, true}, {f32({1, 4, 5, 8}), f32({6, 4, 3, 3}), f32({4})}),
              AllOf(HasSubstr("operand 2"), HasSubstr("f32[6]")));
  EXPECT_THAT(message_of(Conv2d{}, {f32({4, 5, 8}), f32({6, 4, 3, 3})}), HasSubstr("4 dimensions"));
  EXPECT_THAT(message_of(MaxPool2d{{.kernel = {3, 3}, .padding = {2, 2}}}, {f32({1, 1, 8, 8})}),
              HasSubstr("at most half"));
  EXPECT_THAT(message_of(MaxPool2d{{.kernel = {3, 3}}}, {f32({1, 1, 2, 8})}),
              HasSubstr("too small for a window of 3 x 3"));
  EXPECT_THAT(message_of(AdaptiveAvgPool2d{{0, 1}}, {f32({1, 1, 2, 8})}), HasSubstr("0 x 1"));
  EXPECT_THAT(message_of(Concat{1}, {f32({1, 2, 3}), f32({1, 2, 4})}),
              AllOf(HasSubstr("concat"), HasSubstr("[1, 2, 4]")));
  EXPECT_THAT(message_of(Roll{.dim = 2}, {f32({1, 2})}), HasSubstr("no dimension 2"));
  EXPECT_THAT(message_of(Dropout{.rate = 1.0f}, {f32({4}), {DType::i32, {}}}), HasSubstr("rate"));
  EXPECT_THAT(message_of(Dropout{.block = 3}, {f32({4}), {DType::i32, {}}}), HasSubstr("blocks"));
  EXPECT_THAT(message_of(LayerNorm{}, {f32({2, 4}), f32({3}), f32({4})}), HasSubstr("f32[3]"));
  const TensorType one = f32({2, 3, 3, 1}), c = f32({2});
  EXPECT_THAT(message_of(BatchNorm{.parts = 2}, {one, one, c, c, c, c}), HasSubstr("not 2"));
  const BatchNorm two{.layout = ImageLayout::nhwc, .parts = 2};
  EXPECT_THAT(message_of(two, {one, f32({2, 3, 2, 1}), c, c, c, c}),
              HasSubstr("more than their channels"));
  EXPECT_THAT(message_of(two, {one, one, c, c, c, f32({3})}), HasSubstr("f32[3]"));
  EXPECT_THAT(message_of(SqueezeExcitation{}, {f32({2, 8}), f32({4, 8}), f32({4}), f32({8, 4}), c}),
              HasSubstr("f32[4, 8]"));
  EXPECT_THAT(message_of(SqueezeExcitation{.inner = Epilogue::relu6},
                         {f32({2, 8}), f32({4, 8}), f32({4}), f32({4, 8}), f32({8})}),
              HasSubstr("relu or silu"));
  EXPECT_THAT(message_of(Permute{{1, 0}, DType::i32}, {f32({4, 9})}), HasSubstr("become i32"));
  EXPECT_THAT(message_of(BatchNorm{}, {f32({2, 4, 1, 1}), f32({4}), f32({4}), f32({4}), f32({1})}),
              HasSubstr("operand 4"));
}

// 2 * 3 * 8 results of 4 channels and 3 x 3 taps.
TEST(VisionCosts, CountMultiplyAccumulates) {
  const std::vector<TensorType> in{f32({1, 4, 4, 5}), f32({8, 4, 3, 3}), f32({8})};
  const Conv2d op{{}, true, false, Epilogue::hard_swish};
  const std::vector<TensorType> out = op.infer(in);
  EXPECT_EQ(out[0].shape, (Shape{1, 8, 2, 3}));
  const Cost cost = op.cost(in, out);
  EXPECT_EQ(cost.macs, 48 * 36);
  EXPECT_EQ(cost.flops, 2 * 48 * 36 + 48 * (1 + 3));
}

}  // namespace
}  // namespace ridge
