#include "ridge/cpu/conv.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/onednn_conv.h"
#include "ridge/cpu/simd.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

using Kind = ConvShape::Kind;

std::size_t elements(const ImageShape& s) {
  return static_cast<std::size_t>(s.n * s.c * s.pixels());
}

// Numbers of a dtype in memory aligned to 64 bytes, which the library overwrites no more of than
// they are.
class Tensor {
 public:
  Tensor(std::size_t count, DType dtype, std::string_view name) : dtype_(dtype) {
    values_.resize(count);
    fill_normal(values_, 1.0f, 3, stream_of(name));
    memory_.reset(std::aligned_alloc(64, (count * size_of(dtype) + guard + 63) / 64 * 64));
    std::memset(memory_.get(), 0x7B, count * size_of(dtype) + guard);
    store_floats(values_, dtype, static_cast<std::byte*>(memory_.get()));
    load_floats(static_cast<std::byte*>(memory_.get()), dtype, values_);
  }

  void* data() const { return memory_.get(); }
  const std::vector<float>& values() const { return values_; }  // as they were at first
  std::vector<float> now() const {
    std::vector<float> floats(values_.size());
    const auto* const bytes = static_cast<const std::byte*>(memory_.get());
    load_floats(bytes, dtype_, floats);
    for (std::size_t i = 0; i < guard; ++i)
      EXPECT_EQ(bytes[values_.size() * size_of(dtype_) + i], std::byte{0x7B});
    return floats;
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static constexpr std::size_t guard = 128;

  DType dtype_;
  std::vector<float> values_;
  std::unique_ptr<void, Free> memory_;
};

// The result at an element by its definition.
double defined(const ConvShape& s, const Tensor& x, const Tensor& w, double addend, std::int64_t n,
               std::int64_t o, std::int64_t i, std::int64_t j) {
  const ConvGeometry& g = s.geometry;
  const ImageStrides xs(s.x, g.layout), ws(s.weight, s.weight_layout);
  const std::int64_t first = o / (s.y.c / g.groups) * s.weight.c;
  double sum = addend;
  for (std::int64_t c = 0; c < s.weight.c; ++c)
    for (std::int64_t r = 0; r < s.weight.h; ++r)
      for (std::int64_t q = 0; q < s.weight.w; ++q) {
        const std::int64_t row = i * g.stride[0] - g.padding[0] + r * g.dilation[0];
        const std::int64_t column = j * g.stride[1] - g.padding[1] + q * g.dilation[1];
        if (row < 0 || row >= s.x.h || column < 0 || column >= s.x.w) continue;
        sum += static_cast<double>(
                   x.values()[static_cast<std::size_t>(xs.at(n, first + c, row, column))]) *
               w.values()[static_cast<std::size_t>(ws.at(o, c, r, q))];
      }
  return element_function(s.epilogue).value(sum);
}

struct Operands {
  Tensor x, weight, y, bias, residual;

  explicit Operands(const ConvShape& s)
      : x(elements(s.x), s.dtype, "x"),
        weight(elements(s.weight), s.dtype, "weight"),
        y(elements(s.y), s.dtype, "y"),
        bias(static_cast<std::size_t>(s.y.c), s.dtype, "bias"),
        residual(elements(s.y), s.dtype, "residual") {}

  // The result on so many threads.
  std::vector<float> run(const ConvShape& s, const Conv& conv, int threads) {
    ThreadPool pool(threads);
    const Tensor packed(conv.packed_bytes() / sizeof(float), DType::f32, "packed");
    const Tensor workspace(conv.workspace() / sizeof(float) + 1, DType::f32, "workspace");
    if (conv.packed_bytes() > 0) conv.pack(pool, weight.data(), packed.data());
    conv.run(pool,
             {.x = x.data(),
              .weight = conv.packed_bytes() > 0 ? packed.data() : weight.data(),
              .y = y.data(),
              .bias = s.bias ? bias.data() : nullptr,
              .residual = s.residual ? residual.data() : nullptr},
             workspace.data());
    return y.now();
  }

  // That of the weights, with y standing for the gradient of the result.
  std::vector<float> gradient(const Conv& conv, int threads) const {
    ThreadPool pool(threads);
    const Tensor workspace(conv.workspace() / sizeof(float) + 1, DType::f32, "workspace");
    conv.run(pool, {.x = x.data(), .weight = weight.data(), .y = y.data()}, workspace.data());
    return weight.now();
  }

  void expect_defined(const ConvShape& s, const std::vector<float>& result) const {
    const ImageStrides ys(s.y, s.geometry.layout);
    const double eps = s.dtype == DType::bf16 ? 0x1p-8 : 1e-5;
    for (std::int64_t n = 0; n < s.y.n; ++n)
      for (std::int64_t o = 0; o < s.y.c; o += 1 + s.y.c / 19)
        for (std::int64_t i = 0; i < s.y.h; ++i)
          for (std::int64_t j = 0; j < s.y.w; j += 1 + s.y.w / 5) {
            const auto at = static_cast<std::size_t>(ys.at(n, o, i, j));
            const double addend =
                (s.bias ? static_cast<double>(bias.values()[static_cast<std::size_t>(o)]) : 0.0) +
                (s.residual ? static_cast<double>(residual.values()[at]) : 0.0);
            const double wanted = defined(s, x, weight, addend, n, o, i, j);
            // Sums of k products of unit variance; the library may round them before it adds the
            // residual.
            const double scale = std::sqrt(static_cast<double>(s.weight.c * s.weight.pixels()));
            ASSERT_NEAR(result[at], wanted, eps * (scale + 2 * std::abs(wanted)))
                << "image " << n << ", channel " << o << ", row " << i << ", column " << j;
          }
  }
};

ConvShape shape_of(ImageShape x, std::int64_t channels, std::int64_t kernel, ConvGeometry geometry,
                   DType dtype, Epilogue epilogue, bool residual) {
  const Pair out = geometry.output({x.h, x.w}, {kernel, kernel});
  return {.geometry = geometry,
          .x = x,
          .y = {x.n, channels, out[0], out[1]},
          .weight = {channels, x.c / geometry.groups, kernel, kernel},
          .weight_layout = geometry.layout,
          .dtype = dtype,
          .bias = true,
          .residual = residual,
          .epilogue = epilogue};
}

// Of few images parts are rows and channels, of many images; with an epilogue of ours, and without.
std::vector<ConvShape> shapes() {
  constexpr auto nhwc = ImageLayout::nhwc;
  const ConvGeometry one{.layout = nhwc}, three{.padding = {1, 1}, .layout = nhwc},
      strided{.stride = {2, 2}, .padding = {1, 1}, .layout = nhwc},
      depthwise{.padding = {1, 1}, .groups = 48, .layout = nhwc},
      first{.stride = {2, 2}, .padding = {1, 1}};
  std::vector<ConvShape> all;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [epilogue, residual] :
         {std::pair{Epilogue::none, true}, std::pair{Epilogue::relu, true},
          std::pair{Epilogue::silu, false}, std::pair{Epilogue::silu, true},
          std::pair{Epilogue::relu6, false}, std::pair{Epilogue::hard_swish, true}}) {
      all.push_back(shape_of({1, 48, 14, 14}, 200, 3, three, dtype, epilogue, residual));
      all.push_back(shape_of({2, 64, 7, 7}, 272, 1, one, dtype, epilogue, residual));
      all.push_back(shape_of({1, 32, 29, 31}, 96, 3, strided, dtype, epilogue, residual));
      all.push_back(shape_of({3, 48, 28, 28}, 48, 3, depthwise, dtype, epilogue, residual));
      all.push_back(shape_of({33, 24, 5, 5}, 40, 3, three, dtype, epilogue, residual));
      all.push_back(shape_of({9, 3, 12, 12}, 20, 3, first, dtype, epilogue, residual));
    }
  // Each channel by itself: more padding than the weights see, fewer columns than a tile has, and
  // numbers of channels that fill no whole vectors.
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t kernel : {3, 5})
      for (const std::int64_t stride : {1, 2})
        for (const auto& [channels, height, width, padding] :
             {std::array<std::int64_t, 4>{58, 9, 15, kernel / 2},
              {33, 5, 6, 0},
              {96, 7, 7, 2},
              {40, 1, 30, 4}}) {
          const ConvGeometry each{.stride = {stride, stride},
                                  .padding = {padding, padding},
                                  .groups = channels,
                                  .layout = nhwc};
          const Epilogue epilogue = stride == 1 ? Epilogue::relu6 : Epilogue::silu;
          all.push_back(shape_of({2, channels, height, width}, channels, kernel, each, dtype,
                                 epilogue, channels == 58));
        }
  // The rows of a linear layer.
  all.push_back(shape_of({1, 72, 197, 1}, 160, 1, one, DType::f32, Epilogue::gelu, false));
  // So wide that a row alone is more than a part with an epilogue of ours may have.
  all.push_back(shape_of({1, 8, 3, 2000}, 96, 1, one, DType::f32, Epilogue::silu, false));
  return all;
}

TEST(Conv, ComputesTheDefinitionOnAnyNumberOfThreads) {
  for (const ConvShape& shape : shapes()) {
    SCOPED_TRACE(::testing::Message()
                 << name_of(shape.dtype) << ' ' << shape.x.n << 'x' << shape.x.c << 'x' << shape.x.h
                 << 'x' << shape.x.w << " to " << shape.y.c << " channels, epilogue "
                 << static_cast<int>(shape.epilogue));
    const ConvPtr conv = make_conv(shape);
    Operands operands(shape);
    const std::vector<float> once = operands.run(shape, *conv, 1);
    operands.expect_defined(shape, once);
    EXPECT_EQ(operands.run(shape, *conv, 3), once);
    // The same kernel on operands elsewhere.
    Operands others(shape);
    EXPECT_EQ(others.run(shape, *conv, 2), once);
  }
}

// Few images are cut into rows, whose last part may be smaller: the library's reference, some
// hundred times slower, must not compute any part of what it has a kernel for as a whole.
TEST(Conv, OfCutImagesTakesNoReferenceWhereWholeOnesDoNot) {
  for (const std::int64_t extent : {7, 13, 28, 56, 57, 112})
    for (const std::int64_t kernel : {1, 3})
      for (const std::int64_t stride : {1, 2})
        for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{64, 128}, {24, 56}})
          for (const std::int64_t images : {1, 5}) {
            const ConvGeometry geometry{.stride = {stride, stride},
                                        .padding = {kernel / 2, kernel / 2},
                                        .layout = ImageLayout::nhwc};
            ConvShape shape = shape_of({images, from, extent, extent}, to, kernel, geometry,
                                       DType::f32, Epilogue::none, false);
            shape.bias = false;
            ConvShape whole = shape;
            whole.x.n = whole.y.n = 32;
            EXPECT_LE(make_onednn_conv(shape)->is_slow(), make_onednn_conv(whole)->is_slow())
                << images << "x" << from << "x" << extent << " to " << to << " channels, kernel "
                << kernel << ", stride " << stride;
          }
}

// The gradient of the weights [C, 1, R, S] of a convolution of each channel by itself, by its
// definition.
std::vector<double> weight_gradient(const ConvShape& s, const Operands& operands) {
  const ConvGeometry& g = s.geometry;
  const ImageStrides xs(s.x, g.layout), ys(s.y, g.layout);
  const auto at = [](const Tensor& tensor, std::int64_t index) {
    return static_cast<double>(tensor.values()[static_cast<std::size_t>(index)]);
  };
  std::vector<double> gradient;
  for (std::int64_t c = 0; c < s.x.c; ++c)
    for (std::int64_t k = 0; k < s.weight.pixels(); ++k) {
      double sum = 0;
      for (std::int64_t n = 0; n < s.x.n; ++n)
        for (std::int64_t i = 0; i < s.y.h; ++i)
          for (std::int64_t j = 0; j < s.y.w; ++j) {
            const std::int64_t row = i * g.stride[0] - g.padding[0] + k / s.weight.w;
            const std::int64_t column = j * g.stride[1] - g.padding[1] + k % s.weight.w;
            if (row < 0 || row >= s.x.h || column < 0 || column >= s.x.w) continue;
            sum += at(operands.x, xs.at(n, c, row, column)) * at(operands.y, ys.at(n, c, i, j));
          }
      gradient.push_back(sum);
    }
  return gradient;
}

// More padding than the weights see, fewer columns than a tile has, numbers of channels that fill
// no whole vectors, and more images than are summed apart.
TEST(Conv, ComputesWeightGradientsOfEachChannelByItself) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t kernel : {3, 5, 7})
      for (const std::int64_t stride : {1, 2})
        for (const auto& [images, channels, height, width, padding] :
             {std::array<std::int64_t, 5>{2, 58, 9, 15, kernel / 2},
              {1, 33, 8, 9, 0},
              {11, 96, 7, 7, 2},
              {2, 40, 1, 30, 4}}) {
          const ConvGeometry each{.stride = {stride, stride},
                                  .padding = {padding, padding},
                                  .groups = channels,
                                  .layout = ImageLayout::nhwc};
          ConvShape shape = shape_of({images, channels, height, width}, channels, kernel, each,
                                     dtype, Epilogue::none, false);
          shape.kind = Kind::weight_grad;
          shape.bias = false;
          SCOPED_TRACE(::testing::Message()
                       << name_of(dtype) << ' ' << images << 'x' << channels << 'x' << height << 'x'
                       << width << ", kernel " << kernel << ", stride " << stride);
          const ConvPtr conv = make_conv(shape);
          EXPECT_FALSE(conv->is_slow());
          // Our own kernel has sums of its own for up to eight parts of the images.
          const auto sums = static_cast<std::size_t>(std::min<std::int64_t>(images, 8) * kernel *
                                                     kernel * channels);
          const bool is_ours = conv->workspace() == sums * sizeof(float);
          // In bf16 it stands behind copies in f32 where the library does not convolve that.
          const bool is_converted = dtype == DType::bf16 && !onednn_convolves_bf16();
          EXPECT_TRUE(is_ours || is_converted || kernel == 3);
          const Operands operands(shape);
          const std::vector<double> wanted = weight_gradient(shape, operands);
          const std::vector<float> once = operands.gradient(*conv, 1);
          EXPECT_EQ(operands.gradient(*conv, 3), once);
          const double eps = dtype == DType::bf16 ? 0x1p-8 : 1e-5;
          const double scale = std::sqrt(static_cast<double>(images * shape.y.pixels()));
          for (std::size_t i = 0; i < wanted.size(); ++i)
            ASSERT_NEAR(once[i], wanted[i], eps * (scale + std::abs(wanted[i]))) << i;
        }
}

// The library reads channels first as fast where a convolution is a product, from 8 images on;
// other convolutions go through a copy with channels last, for which they want memory.
TEST(Conv, CopiesNoImagesForProductsOfManyImages) {
  const auto workspace = [](std::int64_t images, std::int64_t kernel) {
    CpuDevice device(2);
    Graph graph;
    const Value x = graph.input("x", {DType::f32, {images, 32, 14, 14}});
    const Value weight = graph.parameter("weight", {64, 32, kernel, kernel}, Init::zeros());
    conv2d(x, weight, {}, {});
    const Node& node = graph.nodes().front();
    return device.prepare(*node.op, graph.types_of(node.inputs), graph.types_of(node.outputs), {})
        .workspace;
  };
  const auto image_bytes = [](std::int64_t images) {
    return static_cast<std::size_t>(images) * 32 * 14 * 14 * sizeof(float);
  };
  for (const std::int64_t images : {8, 9, 16}) EXPECT_EQ(workspace(images, 1), 0u) << images;
  for (const std::int64_t images : {1, 7}) EXPECT_GE(workspace(images, 1), image_bytes(images));
  for (const std::int64_t images : {7, 8, 16}) EXPECT_GE(workspace(images, 3), image_bytes(images));
}

}  // namespace
}  // namespace ridge
