// Convolutions of integers as large as networks have them, where the library takes other kernels
// than for the small ones that every operator's test runs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/thread_pool.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/int8_conv.h"
#include "ridge/ops/int8.h"
#include "ridge/ops/op.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using testing::Reals;

// Of one image with channels last and kernels of k x k that reach beyond its edges.
struct Layer {
  std::int64_t extent, channels, results, k, stride, dilation;

  Int8Conv2d op() const {
    const std::int64_t padding = k / 2 * dilation;
    Int8Conv2d op{{.stride = {stride, stride},
                   .padding = {padding, padding},
                   .dilation = {dilation, dilation},
                   .layout = ImageLayout::nhwc}};
    op.out = DType::f32;
    return op;
  }
  std::vector<TensorType> types() const {
    return {{DType::s8, {1, extent, extent, channels}},
            {DType::s8, {results, k, k, channels}},
            {DType::f32, {results}},
            {DType::f32, {results}}};
  }
  // The sum at a place of the result.
  double sum(const std::vector<Reals>& in, std::int64_t i, std::int64_t j, std::int64_t o) const {
    std::int64_t sum = 0;
    for (std::int64_t r = 0; r < k; ++r)
      for (std::int64_t s = 0; s < k; ++s) {
        const std::int64_t row = i * stride + (r - k / 2) * dilation;
        const std::int64_t column = j * stride + (s - k / 2) * dilation;
        if (row < 0 || row >= extent || column < 0 || column >= extent) continue;
        for (std::int64_t c = 0; c < channels; ++c)
          sum += static_cast<std::int64_t>(
              in[0][static_cast<std::size_t>((row * extent + column) * channels + c)] *
              in[1][static_cast<std::size_t>(((o * k + r) * k + s) * channels + c)]);
      }
    return static_cast<double>(sum);
  }
};

TEST(Int8Conv2d, IsExactForLargeLayersToo) {
  CpuDevice device;
  for (const Layer& layer : {Layer{28, 2048, 512, 3, 1, 1},
                             {28, 1024, 128, 3, 1, 2},
                             {56, 64, 64, 3, 1, 1},
                             {56, 128, 128, 3, 2, 1},
                             {14, 512, 2048, 1, 1, 1},
                             {7, 512, 512, 3, 1, 1},
                             {35, 48, 64, 5, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{} of {} to {}", layer.extent, layer.channels, layer.results));
    const Int8Conv2d op = layer.op();
    const std::vector<TensorType> in = layer.types(), out = op.infer(in);
    std::vector<Reals> values;
    for (std::size_t i = 0; i < 2; ++i)
      values.push_back(testing::sample_values({in[i], -127, 127}, DType::s8, i));
    values.emplace_back(layer.results, 1.0);
    values.emplace_back(layer.results, 0.0);
    // On some processors without AMX oneDNN 2.6 has no right convolution of the first layer, and
    // Ridge refuses the wrong one.
    Reals y;
    try {
      y = testing::decode(testing::run_kernel(device, Op(op), in, out, values)[0], DType::f32);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
    const std::int64_t extent = out[0].shape[1];
    for (std::uint64_t probe = 0; probe < 400; ++probe) {
      const auto drawn = [&](std::int64_t below, std::uint64_t stream) {
        return static_cast<std::int64_t>(
            uniform_integer(static_cast<std::uint32_t>(below), 7, stream, probe));
      };
      // Half of them along an edge.
      const std::int64_t i = probe % 4 == 0 ? 0 : probe % 4 == 1 ? extent - 1 : drawn(extent, 1);
      const std::int64_t j = drawn(extent, 2), o = drawn(layer.results, 3);
      const auto at = static_cast<std::size_t>((i * extent + j) * layer.results + o);
      ASSERT_EQ(y[at], static_cast<float>(layer.sum(values, i, j, o)))
          << i << ", " << j << ", " << o;
    }
  }
}

// On any processor: what those without VNNI take. Large values of one sign, so that sums over all
// channels would not be exact in f32.
TEST(Int8ConvByF32, SumsSomeChannelsAtATime) {
  constexpr std::int64_t extent = 5, channels = 300, results = 6, k = 3;
  const auto large = [](std::int64_t i) {
    return static_cast<std::int8_t>(
        127 - static_cast<int>(uniform_integer(28, 3, 1, static_cast<std::uint64_t>(i))));
  };
  ThreadPool pool(2);
  for (const std::int64_t groups : {1, 2}) {
    const std::int64_t all = groups * channels;
    const ConvShape shape{
        .geometry = {.padding = {1, 1}, .groups = groups, .layout = ImageLayout::nhwc},
        .x = {1, all, extent, extent},
        .y = {1, results, extent, extent},
        .weight = {results, channels, k, k},
        .weight_layout = ImageLayout::nhwc,
        .dtype = DType::s8,
        .int8 = Int8Scales{.out = DType::f32}};
    const ConvPtr conv = make_int8_conv_by_f32(shape);
    std::vector<std::int8_t> x(static_cast<std::size_t>(extent * extent * all));
    std::vector<std::int8_t> weight(static_cast<std::size_t>(results * k * k * channels));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = large(std::ssize(x) + static_cast<std::int64_t>(i));
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = large(-1 - static_cast<std::int64_t>(i));
    std::vector<char> packed(conv->packed_bytes()), workspace(conv->workspace());
    conv->pack(pool, weight.data(), packed.data());
    std::vector<float> y(static_cast<std::size_t>(extent * extent * results));
    const std::vector<float> ones(results, 1.0f), zeros(results, 0.0f);
    conv->run(pool,
              {.x = x.data(),
               .weight = packed.data(),
               .y = y.data(),
               .bias = zeros.data(),
               .weight_scale = ones.data()},
              workspace.data());
    for (std::int64_t i = 0; i < extent; ++i)
      for (std::int64_t o = 0; o < results; ++o) {
        std::int64_t sum = 0;
        for (std::int64_t r = 0; r < k; ++r)
          for (std::int64_t q = 0; q < k; ++q) {
            const std::int64_t row = i + r - 1, column = 2 + q - 1;
            if (row < 0 || row >= extent) continue;
            const std::int64_t first = o / (results / groups) * channels;
            for (std::int64_t c = 0; c < channels; ++c)
              sum += x[static_cast<std::size_t>((row * extent + column) * all + first + c)] *
                     weight[static_cast<std::size_t>(((o * k + r) * k + q) * channels + c)];
          }
        EXPECT_EQ(y[static_cast<std::size_t>((i * extent + 2) * results + o)],
                  static_cast<float>(sum))
            << i << ", " << o << " of " << groups << " groups";
      }
  }
}

// Scales as calibration finds them, and activations that bend: what is rounded may be a step off
// where the exact number lies in the middle between two, and nowhere else.
TEST(Int8Conv2d, RoundsToTheNearest) {
  CpuDevice device;
  for (const Epilogue epilogue :
       {Epilogue::none, Epilogue::relu6, Epilogue::silu, Epilogue::hard_swish, Epilogue::gelu}) {
    SCOPED_TRACE(name_of(epilogue));
    Int8Conv2d op{{.padding = {1, 1}, .layout = ImageLayout::nhwc}};
    op.residual = true;
    op.epilogue = epilogue;
    op.x_scale = 0.0213f;
    op.residual_scale = 0.0371f;
    op.y_scale = 0.0457f;
    const std::vector<TensorType> in{{DType::s8, {2, 9, 9, 24}},
                                     {DType::s8, {40, 3, 3, 24}},
                                     {DType::f32, {40}},
                                     {DType::f32, {40}},
                                     {DType::s8, {2, 9, 9, 40}}};
    const double low[] = {-127, -127, 0.0005, -1, -127}, high[] = {127, 127, 0.0011, 1, 127};
    std::vector<Reals> values;
    for (std::size_t i = 0; i < in.size(); ++i)
      values.push_back(testing::sample_values({in[i], low[i], high[i]}, in[i].dtype, i));
    const std::vector<TensorType> out = op.infer(in);
    const Reals y =
        testing::decode(testing::run_kernel(device, Op(op), in, out, values)[0], DType::s8);
    Int8Conv2d unrounded = op;
    unrounded.out = DType::f32;
    const TensorType exact[] = {{DType::f32, out[0].shape}};
    const Reals expected = testing::run_reference(Op(unrounded), in, exact, values)[0];
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double steps = std::clamp(expected[i] / op.y_scale, -127.0, 127.0);
      ASSERT_LE(std::abs(y[i] - steps), 0.5 + 1e-3) << i;
    }
  }
}

}  // namespace
}  // namespace ridge
