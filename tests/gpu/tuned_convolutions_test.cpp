// Every kernel among which the tuner chooses for a convolution or a gradient of one, on a GPU.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ridge/ops/conv.h"
#include "ridge/ops/residual_bottleneck.h"
#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Choose;
using testing::Reals;

struct Layer {
  std::int64_t n, pixels, in, out, size, stride = 1, dilation = 1, groups = 1;

  ConvGeometry geometry(ImageLayout layout = ImageLayout::nhwc) const {
    return {.stride = {stride, stride},
            .padding = {size / 2 * dilation, size / 2 * dilation},
            .dilation = {dilation, dilation},
            .groups = groups,
            .layout = layout};
  }
  Shape image() const { return {n, pixels, pixels, in}; }
  Shape weight() const { return {out, size, size, in / groups}; }
};

class TunedConvolutions : public testing::GpuTest {
 protected:
  // Of at most so many candidates.
  template <class T>
  void expect_all_right(const Sample<T>& sample, DType dtype, std::size_t most = 1000) {
    testing::expect_all_candidates_right(device(), sample, dtype, {}, 4e-5, most);
  }

  void expect_all_right(const Layer& l, DType dtype, bool bias, bool residual, Epilogue epilogue) {
    const Conv2d op{l.geometry(), bias, residual, epilogue};
    std::vector<TensorType> types{{DType::f32, l.image()}, {DType::f32, l.weight()}};
    const TensorType y = Conv2d{l.geometry()}.infer(types)[0];
    if (bias) types.push_back({DType::f32, {l.out}});
    if (residual) types.push_back(y);
    Sample<Conv2d> sample{op, {}};
    for (const TensorType& type : types) sample.inputs.push_back({type});
    expect_all_right(sample, dtype);
  }
};

// Of one step and of many, of fewer and more pixels and channels than a tile, and of several tiles,
// with windows that cross rows and images; and one of more tiles than there is room for at a time.
const Layer layers[] = {
    {1, 7, 8, 8, 1},          {2, 9, 64, 136, 1},    {3, 10, 72, 256, 1}, {1, 7, 512, 64, 1},
    {2, 11, 16, 40, 1, 2},    {2, 7, 128, 64, 3},    {3, 9, 24, 32, 3},   {2, 13, 64, 72, 3, 2},
    {1, 12, 32, 48, 3, 1, 2}, {2, 8, 8, 24, 5},      {1, 33, 64, 64, 3},  {1, 40, 40, 264, 1},
    {5, 5, 256, 96, 3},       {1, 20, 16, 16, 7, 2}, {9, 64, 8, 40, 1},
};

// Of patches that a block reads once: parts of an image, a whole one, and several.
const Layer patch_layers[] = {{1, 33, 64, 64, 3},
                              {3, 14, 128, 32, 3},
                              {2, 56, 64, 40, 3},
                              {7, 7, 64, 24, 3},
                              {9, 7, 128, 32, 3}};

// Of few channels, which are padded: at steps of one and two, with small and large windows, and so
// many that a block has several rows.
const Layer first_layers[] = {{2, 32, 3, 64, 7, 2}, {1, 21, 3, 32, 3, 2},  {2, 15, 3, 64, 3, 1},
                              {1, 18, 1, 40, 5, 1}, {1, 19, 3, 16, 7, 1},  {1, 16, 4, 24, 3, 2},
                              {1, 17, 6, 72, 3, 1}, {40, 32, 3, 32, 3, 2}, {80, 32, 3, 32, 3, 2}};

// Each channel for itself: of both strides, of odd numbers of columns and rows, and of many
// channels; multiples of 8 channels of all sizes, whose places fill the last warp and do not.
const Layer depthwise_layers[] = {
    {2, 13, 40, 40, 3, 1, 1, 40}, {1, 14, 102, 102, 3, 2, 1, 102}, {2, 9, 16, 16, 5, 1, 1, 16},
    {1, 15, 26, 26, 5, 2, 1, 26}, {1, 11, 98, 98, 7, 1, 1, 98},    {1, 12, 10, 10, 7, 2, 1, 10},
    {4, 40, 64, 64, 3, 1, 1, 64}, {1, 1, 8, 8, 3, 1, 1, 8},        {3, 6, 9, 9, 3, 1, 1, 9},
    {2, 21, 40, 40, 3, 2, 1, 40}, {3, 14, 24, 24, 5, 1, 1, 24},    {2, 15, 72, 72, 5, 2, 1, 72},
    {2, 17, 24, 24, 7, 1, 1, 24}, {1, 16, 16, 16, 7, 2, 1, 16},    {5, 7, 136, 136, 5, 1, 1, 136}};

TEST_F(TunedConvolutions, AreRightByEveryCandidate) {
  for (const Layer& layer : layers)
    expect_all_right(layer, DType::bf16, false, false, Epilogue::none);
}

TEST_F(TunedConvolutions, AreRightOfPatches) {
  for (const Layer& layer : patch_layers)
    expect_all_right(layer, DType::f16, true, false, Epilogue::relu);
}

TEST_F(TunedConvolutions, AreRightOfFewChannels) {
  for (const Layer& layer : first_layers)
    expect_all_right(layer, DType::bf16, true, false, Epilogue::relu);
}

TEST_F(TunedConvolutions, AreRightWithChannelsApart) {
  for (const Layer& layer : depthwise_layers) {
    expect_all_right(layer, DType::bf16, true, false, Epilogue::silu);
    expect_all_right(layer, DType::f16, false, true, Epilogue::relu6);
    expect_all_right(layer, DType::f32, false, true, Epilogue::none);
  }
}

TEST_F(TunedConvolutions, GradientsOfImagesAreRightWithChannelsApart) {
  for (const Layer& l : depthwise_layers) {
    if (l.stride != 1) continue;
    const Conv2d op{l.geometry()};
    const TensorType weight{DType::f32, l.weight()};
    const TensorType y = op.infer(std::vector<TensorType>{{DType::f32, l.image()}, weight})[0];
    expect_all_right<Conv2dInputGrad>({{l.geometry(), l.image()}, {{y}, {weight}}}, DType::bf16);
  }
}

struct BottleneckSizes {
  std::int64_t n, pixels, expanded, reduced;
  bool projects = false;
};

Sample<ResidualBottleneck> bottleneck(const BottleneckSizes& s) {
  const auto weight = [](std::int64_t out, std::int64_t in, std::int64_t size) {
    const double range = 1.5 / std::sqrt(static_cast<double>(in * size * size));
    return SampleInput{{DType::f32, {out, size, size, in}}, -range, range};
  };
  const auto of = [](const Shape& shape) { return SampleInput{{DType::f32, shape}}; };
  const auto image = [&](std::int64_t channels) { return of({s.n, s.pixels, s.pixels, channels}); };
  Sample<ResidualBottleneck> sample{
      {{.padding = {1, 1}, .layout = ImageLayout::nhwc}, s.projects, s.reduced > 0},
      {image(64), weight(64, 64, 3), of({64}), weight(s.expanded, 64, 1), of({s.expanded}),
       image(s.projects ? 64 : s.expanded)}};
  const auto append = [&](std::int64_t out, std::int64_t in) {
    sample.inputs.push_back(weight(out, in, 1));
    sample.inputs.push_back(of({out}));
  };
  if (s.projects) append(s.expanded, 64);
  if (s.reduced > 0) append(s.reduced, s.expanded);
  return sample;
}

// Of images that are cut evenly and not, of a panel of channels and several, with a projection and
// without. One or two candidates are one kernel; the rest are convolutions, which have tests of
// their own.
TEST_F(TunedConvolutions, BottlenecksAreRight) {
  for (const BottleneckSizes& s : {BottleneckSizes{1, 14, 64, 0},
                                   {2, 14, 256, 64},
                                   {1, 56, 64, 0},
                                   {1, 14, 128, 0, true},
                                   {2, 14, 256, 64, true}})
    expect_all_right(bottleneck(s), s.n == 1 ? DType::bf16 : DType::f16, 2);
}

// Of more tiles than there is room for at a time, of either size, where the reference would take
// long.
TEST_F(TunedConvolutions, ManyBottlenecksAreWhatConvolutionsAre) {
  for (const BottleneckSizes& s : {BottleneckSizes{70, 14, 256, 64},
                                   {70, 14, 128, 0},
                                   {70, 14, 256, 64, true},
                                   {70, 14, 192, 0, true}}) {
    const Sample<ResidualBottleneck> sample = bottleneck(s);
    const std::vector<TensorType> in = testing::operand_types(sample, DType::f16),
                                  out = sample.op.infer(in);
    const auto values = testing::operand_values(sample, in);
    const auto results = [&](std::size_t candidate) {
      Choose tuner(candidate);
      return testing::run_kernel(device(), Op(sample.op), in, out, values, {.tuner = &tuner});
    };
    const auto convolutions = results(2);
    for (const std::size_t candidate : {0, 1})
      for (std::size_t o = 0; o < out.size(); ++o) {
        SCOPED_TRACE(fmt::format("{}, candidate {}, output {}", list_of(in), candidate, o));
        testing::Tolerance tolerance = testing::tolerance_of_result(sample.op, out[o], in);
        tolerance.absolute *= 2;  // either may be so far from what is right
        tolerance.relative *= 2;
        testing::expect_close(testing::decode(results(candidate)[o], out[o].dtype),
                              testing::decode(convolutions[o], out[o].dtype), tolerance);
      }
  }
}

// Few shapes: the library takes most of a second to prepare each.
TEST_F(TunedConvolutions, AreRightWithAResidual) {
  expect_all_right(layers[1], DType::bf16, true, true, Epilogue::relu);
  expect_all_right(layers[5], DType::bf16, false, true, Epilogue::none);
  expect_all_right(layers[14], DType::bf16, false, true, Epilogue::relu);
}

TEST_F(TunedConvolutions, AreRightWithWhatFollowsThem) {
  expect_all_right(layers[11], DType::bf16, true, false, Epilogue::relu);
  for (const Epilogue epilogue : {Epilogue::relu6, Epilogue::silu, Epilogue::hard_swish})
    expect_all_right(layers[1], DType::bf16, true, false, epilogue);
}

// Squeeze and excitation convolves pooled images, with few channels that are no multiple of 8.
TEST_F(TunedConvolutions, AreRightOfOnePixelWithChannelsFirst) {
  const auto expect_right = [&](std::int64_t in, std::int64_t out, std::int64_t size, DType dtype,
                                Epilogue epilogue, std::int64_t pixels = 1) {
    SCOPED_TRACE(fmt::format("{} to {}, {} x {}, {}", in, out, size, size, name_of(epilogue)));
    const ConvGeometry geometry{
        .stride = {pixels, pixels}, .padding = {size / 2, size / 2}, .layout = ImageLayout::nchw};
    const std::vector<TensorType> types{{DType::f32, {4, in, pixels, pixels}},
                                        {DType::f32, {out, in, size, size}},
                                        {DType::f32, {out}}};
    Sample<Conv2d> sample{{geometry, true, false, epilogue}, {}};
    for (const TensorType& type : types) sample.inputs.push_back({type});
    expect_all_right(sample, dtype);
  };
  for (const auto& [in, out] : {std::pair{32, 8}, std::pair{96, 4}, std::pair{144, 6},
                                std::pair{240, 10}, std::pair{1152, 48}})
    for (const DType dtype : {DType::f16, DType::bf16})
      expect_right(in, out, 1, dtype, Epilogue::silu);
  for (const Epilogue epilogue : {Epilogue::relu, Epilogue::relu6, Epilogue::hard_swish})
    expect_right(96, 4, 1, DType::bf16, epilogue);
  for (const Epilogue epilogue : {Epilogue::relu6, Epilogue::silu})
    for (const std::int64_t size : {1, 3})
      for (const std::int64_t pixels : {1, 2})
        expect_right(16, 8, size, DType::bf16, epilogue, pixels);
}

// Operands that are cut to tf32 make sums of positive numbers smaller by 7e-4; rounded ones are as
// often larger. The library's kernels of both kinds are within a tolerance that knows the dtype
// alone.
TEST_F(TunedConvolutions, RoundOperandsToTf32) {
  for (const Layer& l :
       {Layer{4, 64, 3, 32, 3, 2}, Layer{4, 32, 16, 96, 1}, Layer{4, 1, 144, 6, 1}})
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu6, Epilogue::silu}) {
      const Conv2d op{l.geometry(), true, false, epilogue};
      const std::vector<TensorType> in{
          {DType::f32, l.image()}, {DType::f32, l.weight()}, {DType::f32, {l.out}}};
      const std::vector<TensorType> out = op.infer(in);
      std::mt19937 random(3);
      std::uniform_real_distribution<float> positive(0.01f, 2);
      std::vector<Reals> values;
      for (const TensorType& type : in)
        for (Reals& operand = values.emplace_back(static_cast<std::size_t>(type.numel()));
             double& x : operand)
          x = positive(random);
      for (double& weight : values[1])
        weight = static_cast<float>(weight / (l.in * l.size * l.size));
      const Reals exact = testing::run_reference(Op(op), in, out, values)[0];
      const double sum = std::reduce(exact.begin(), exact.end());
      for (std::size_t candidate = 0;; ++candidate) {
        Choose tuner(candidate);
        KernelChoice choice{.tf32 = true};
        choice.tuner = &tuner;
        const auto results = testing::run_kernel(device(), Op(op), in, out, values, choice);
        const Reals got = testing::decode(results[0], DType::f32);
        EXPECT_NEAR(std::reduce(got.begin(), got.end()) / sum, 1, 1e-4)
            << list_of(in) << ", " << name_of(epilogue) << ", " << tuner.told;
        if (tuner.is_last()) break;
      }
    }
}

TEST_F(TunedConvolutions, AreRightInF16) {
  for (const Layer& layer : {layers[1], layers[5], layers[7]})
    expect_all_right(layer, DType::f16, true, false, Epilogue::relu);
  expect_all_right(first_layers[0], DType::f16, true, false, Epilogue::relu);
}

TEST_F(TunedConvolutions, GradientsAreRightByEveryCandidate) {
  for (const Layer& l : {layers[1], layers[5], layers[7]}) {
    const Conv2d op{l.geometry()};
    const std::vector<TensorType> in{{DType::f32, l.image()}, {DType::f32, l.weight()}};
    const TensorType y = op.infer(in)[0];
    expect_all_right<Conv2dInputGrad>({{l.geometry(), l.image()}, {{y}, {in[1]}}}, DType::bf16);
    expect_all_right<Conv2dWeightGrad>({{l.geometry(), l.weight()}, {{y}, {in[0]}}}, DType::bf16);
  }
}

}  // namespace
}  // namespace ridge
