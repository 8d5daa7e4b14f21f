#include "ridge/cpu/conv.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/onednn_conv.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/split_gemm.h"
#include "ridge/cpu/split_kernel.h"
#include "ridge/cpu/split_window_conv.h"
#include "ridge/cpu/split_window_grad.h"
#include "ridge/device/packing.h"
#include "ridge/ops/op.h"
#include "tests/ops/cases.h"

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
    const double eps = s.dtype == DType::bf16 ? 0x1p-8 : s.dtype == DType::f16 ? 0x1p-11 : 1e-5;
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

// The gradient by the weight of output channel o, input channel c and tap k, by its definition.
double gradient_by_weight(const ConvShape& s, const Operands& operands, std::int64_t o,
                          std::int64_t c, std::int64_t k) {
  const ConvGeometry& g = s.geometry;
  const ImageStrides xs(s.x, g.layout), ys(s.y, g.layout);
  const auto at = [](const Tensor& tensor, std::int64_t index) {
    return static_cast<double>(tensor.values()[static_cast<std::size_t>(index)]);
  };
  const std::int64_t first = o / (s.y.c / g.groups) * s.weight.c;
  double sum = 0;
  for (std::int64_t n = 0; n < s.x.n; ++n)
    for (std::int64_t i = 0; i < s.y.h; ++i)
      for (std::int64_t j = 0; j < s.y.w; ++j) {
        const std::int64_t r = k / s.weight.w * g.dilation[0], q = k % s.weight.w * g.dilation[1];
        const std::int64_t row = i * g.stride[0] - g.padding[0] + r;
        const std::int64_t column = j * g.stride[1] - g.padding[1] + q;
        if (row < 0 || row >= s.x.h || column < 0 || column >= s.x.w) continue;
        sum += at(operands.x, xs.at(n, first + c, row, column)) * at(operands.y, ys.at(n, o, i, j));
      }
  return sum;
}

// The gradient of the weights [C, 1, R, S] of a convolution of each channel by itself.
std::vector<double> weight_gradient(const ConvShape& s, const Operands& operands) {
  std::vector<double> gradient;
  for (std::int64_t c = 0; c < s.x.c; ++c)
    for (std::int64_t k = 0; k < s.weight.pixels(); ++k)
      gradient.push_back(gradient_by_weight(s, operands, c, 0, k));
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

// A convolution of 3 x 3 weights with stride 1.
ConvShape three_by_three(ImageShape x, std::int64_t channels, Pair padding, Kind kind,
                         ImageLayout layout, DType dtype) {
  const bool forward = kind == Kind::forward;
  ConvShape shape = shape_of(x, channels, 3, {.padding = padding, .layout = layout}, dtype,
                             forward ? Epilogue::relu6 : Epilogue::none, forward);
  shape.kind = kind;
  shape.bias = forward;
  return shape;
}

// The gradient by an element of x, by its definition.
double gradient_by_x(const ConvShape& s, const Operands& operands, std::int64_t n, std::int64_t c,
                     std::int64_t row, std::int64_t column) {
  const ImageStrides ys(s.y, s.geometry.layout), ws(s.weight, s.weight_layout);
  const std::int64_t group = c / s.weight.c, of_group = s.y.c / s.geometry.groups;
  double sum = 0;
  for (std::int64_t o = group * of_group; o < (group + 1) * of_group; ++o)
    for (std::int64_t r = 0; r < s.weight.h; ++r)
      for (std::int64_t q = 0; q < s.weight.w; ++q) {
        const std::int64_t i = row + s.geometry.padding[0] - r * s.geometry.dilation[0];
        const std::int64_t j = column + s.geometry.padding[1] - q * s.geometry.dilation[1];
        if (i < 0 || i >= s.y.h || j < 0 || j >= s.y.w) continue;
        sum +=
            static_cast<double>(operands.y.values()[static_cast<std::size_t>(ys.at(n, o, i, j))]) *
            operands.weight.values()[static_cast<std::size_t>(ws.at(o, c % s.weight.c, r, q))];
      }
  return sum;
}

// Of the errors of sums of unit variance, the root of the mean square.
double error_by_x(const ConvShape& s, const Operands& operands, const std::vector<float>& result) {
  const ImageStrides xs(s.x, s.geometry.layout);
  const double scale = std::sqrt(static_cast<double>(s.y.c * s.weight.pixels()));
  double squares = 0;
  std::int64_t count = 0;
  for (std::int64_t n = 0; n < s.x.n; ++n)
    for (std::int64_t c = 0; c < s.x.c; c += 1 + s.x.c / 11)
      for (std::int64_t i = 0; i < s.x.h; ++i)
        for (std::int64_t j = 0; j < s.x.w; ++j, ++count) {
          const double got = result[static_cast<std::size_t>(xs.at(n, c, i, j))];
          squares += std::pow((got - gradient_by_x(s, operands, n, c, i, j)) / scale, 2);
        }
  return std::sqrt(squares / static_cast<double>(count));
}

// Likewise for the gradient by the weights.
double error_by_weight(const ConvShape& s, const Operands& operands,
                       const std::vector<float>& result) {
  const ImageStrides ws(s.weight, s.weight_layout);
  const double scale = std::sqrt(static_cast<double>(s.y.n * s.y.pixels()));
  double squares = 0;
  std::int64_t count = 0;
  for (std::int64_t o = 0; o < s.y.c; o += 1 + s.y.c / 7)
    for (std::int64_t c = 0; c < s.weight.c; c += 1 + s.weight.c / 5)
      for (std::int64_t k = 0; k < s.weight.pixels(); ++k, ++count) {
        const double got =
            result[static_cast<std::size_t>(ws.at(o, c, k / s.weight.w, k % s.weight.w))];
        squares += std::pow((got - gradient_by_weight(s, operands, o, c, k)) / scale, 2);
      }
  return std::sqrt(squares / static_cast<double>(count));
}

// The result is what the definition says, a gradient off by less than `most`, with the same bits on
// one thread and on three.
void expect_right_on_any_threads(const ConvShape& shape, const Conv& conv, double most) {
  Operands operands(shape);
  if (shape.kind == Kind::forward) {
    const std::vector<float> once = operands.run(shape, conv, 1);
    operands.expect_defined(shape, once);
    EXPECT_EQ(operands.run(shape, conv, 3), once);
    return;
  }
  const bool by_x = shape.kind == Kind::input_grad;
  const Tensor& gradient = by_x ? operands.x : operands.weight;
  operands.run(shape, conv, 1);
  const std::vector<float> once = gradient.now();
  EXPECT_LT(by_x ? error_by_x(shape, operands, once) : error_by_weight(shape, operands, once),
            most);
  operands.run(shape, conv, 3);
  EXPECT_EQ(gradient.now(), once);
}

// Tiles over the border, images of fewer results than a tile, more channels than a slice or a
// block of depth has, more tiles than a part, and the padding of each kind; through copies where
// the layout or dtype is not what is computed.
TEST(Conv, ByWinogradComputesTheDefinition) {
  const bool copies_bf16 = !onednn_convolves_bf16();
  for (const int tile : {2, 4})
    for (const Kind kind : {Kind::forward, Kind::input_grad, Kind::weight_grad})
      for (const ImageLayout layout : {ImageLayout::nhwc, ImageLayout::nchw})
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
          for (const auto& [x, channels, padding] :
               {std::tuple{ImageShape{3, 48, 13, 11}, std::int64_t{80}, Pair{1, 1}},
                {ImageShape{1, 272, 9, 8}, 16, Pair{0, 2}},
                {ImageShape{2, 16, 3, 30}, 96, Pair{0, 1}},
                {ImageShape{9, 16, 31, 29}, 16, Pair{2, 1}},
                {ImageShape{70, 32, 2, 2}, 32, Pair{1, 1}}}) {
            if (dtype == DType::bf16 && !copies_bf16) continue;
            const ConvShape shape = three_by_three(x, channels, padding, kind, layout, dtype);
            SCOPED_TRACE(::testing::Message()
                         << "tile " << tile << ", kind " << static_cast<int>(kind) << ", "
                         << name_of(layout) << ' ' << name_of(dtype) << ' ' << x.c << 'x' << x.h
                         << 'x' << x.w << " to " << channels);
            const ConvPtr conv = make_conv(shape, tile);
            expect_right_on_any_threads(shape, *conv,
                                        dtype == DType::f32   ? tile * 7e-7
                                        : dtype == DType::f16 ? 0x1p-11
                                                              : 0x1p-8);
          }
}

// Steps and gaps that leave out pixels, weights that are no square, rows of results that end within
// what is computed at a time, more results than a part, and more channels than a block.
TEST(Conv, ComputesWeightGradientsByProducts) {
  const bool copies_bf16 = !onednn_convolves_bf16();
  for (const ImageLayout layout : {ImageLayout::nhwc, ImageLayout::nchw})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [x, channels, height, width, geometry] :
           {std::tuple{ImageShape{4, 80, 13, 11}, std::int64_t{96}, std::int64_t{3},
                       std::int64_t{3}, ConvGeometry{.stride = {2, 2}, .padding = {1, 1}}},
            {ImageShape{1, 16, 9, 20}, 16, 5, 5, {.padding = {2, 4}}},
            {ImageShape{9, 16, 31, 29}, 32, 1, 3, {.stride = {1, 3}, .padding = {0, 1}}},
            {ImageShape{2, 32, 10, 10}, 16, 3, 2, {.padding = {2, 0}, .dilation = {2, 3}}}}) {
        if (dtype == DType::bf16 && !copies_bf16) continue;
        ConvGeometry g = geometry;
        g.layout = layout;
        ConvShape shape = shape_of(x, channels, height, g, dtype, Epilogue::none, false);
        shape.bias = false;
        shape.kind = Kind::weight_grad;
        shape.weight.w = width;
        shape.y.w = (x.w + 2 * g.padding[1] - g.dilation[1] * (width - 1) - 1) / g.stride[1] + 1;
        SCOPED_TRACE(::testing::Message() << name_of(layout) << ' ' << name_of(dtype) << ' ' << x.c
                                          << 'x' << x.h << 'x' << x.w << " to " << channels);
        ASSERT_EQ(conv_tiles(shape, {}), std::vector<int>{1});
        const ConvPtr conv = make_conv(shape, 1);
        const Operands operands(shape);
        const std::vector<float> once = operands.gradient(*conv, 1);
        EXPECT_LT(error_by_weight(shape, operands, once), dtype == DType::f32 ? 7e-7 : 0x1p-8);
        EXPECT_EQ(operands.gradient(*conv, 3), once);
      }
}

// Channels and pixels that fill no tile, one channel, and one result; through copies where the
// layout or dtype is not what is computed.
TEST(Conv, ComputesConvolutionsOfOnePixelBySplitProducts) {
  if (split_gemm_plans({.m = 1, .n = 1, .k = 1}).empty())
    GTEST_SKIP() << "this processor has no products of split bf16";
  for (const Kind kind : {Kind::forward, Kind::input_grad, Kind::weight_grad})
    for (const ImageLayout layout : {ImageLayout::nhwc, ImageLayout::nchw})
      for (const DType dtype : {DType::f32, DType::f16})
        for (const auto& [x, channels] : {std::tuple{ImageShape{3, 80, 13, 11}, std::int64_t{72}},
                                          {ImageShape{2, 17, 9, 20}, 530},
                                          {ImageShape{1, 200, 12, 12}, 1}}) {
          ConvShape shape =
              shape_of(x, channels, 1, {.layout = layout}, dtype, Epilogue::relu, true);
          shape.kind = kind;
          if (kind != Kind::forward) {
            shape.bias = shape.residual = false;
            shape.epilogue = Epilogue::none;
          }
          SCOPED_TRACE(::testing::Message()
                       << "kind " << static_cast<int>(kind) << ", " << name_of(layout) << ' '
                       << name_of(dtype) << ' ' << x.c << 'x' << x.h << 'x' << x.w << " to "
                       << channels);
          ASSERT_EQ(conv_tiles(shape, {.split_bf16 = true}), std::vector<int>{by_split_products});
          ASSERT_EQ(conv_tiles(shape, {}), std::vector<int>{});
          const ConvPtr conv = make_conv(shape, by_split_products);
          expect_right_on_any_threads(shape, *conv, dtype == DType::f32 ? 3e-7 : 0x1p-11);
        }
}

// Windows that padding fills, does not, and more than fills, even ones, dilated ones, steps that
// leave out pixels; channels and positions that fill no tile; groups; several images, between which
// zeros are shared.
TEST(Conv, ComputesConvolutionsOfWindowsBySplitProducts) {
  if (!may_multiply_split()) GTEST_SKIP() << "this processor has no products of split bf16";
  struct Window {
    std::int64_t h, w;
    Pair stride, padding, dilation;
  };
  for (const Window& window :
       {Window{3, 3, {1, 1}, {1, 1}, {1, 1}}, Window{3, 3, {1, 1}, {0, 2}, {1, 1}},
        Window{5, 2, {1, 1}, {2, 0}, {1, 1}}, Window{1, 7, {1, 1}, {0, 3}, {1, 1}},
        Window{3, 3, {1, 1}, {2, 1}, {2, 3}}, Window{3, 3, {2, 2}, {1, 1}, {1, 1}},
        Window{1, 1, {2, 3}, {0, 0}, {1, 1}}, Window{1, 1, {1, 1}, {1, 2}, {1, 1}},
        Window{3, 3, {2, 1}, {4, 5}, {1, 1}}, Window{7, 4, {3, 2}, {3, 5}, {1, 2}}})
    for (const auto& [x, channels, groups] :
         {std::tuple{ImageShape{3, 80, 13, 11}, std::int64_t{72}, std::int64_t{1}},
          {ImageShape{2, 17, 9, 20}, 130, 1},
          {ImageShape{2, 200, 25, 7}, 16, 1},
          {ImageShape{2, 120, 10, 12}, 72, 3},
          {ImageShape{150, 32, 6, 9}, 40, 1}})
      for (const Kind kind : {Kind::forward, Kind::input_grad, Kind::weight_grad}) {
        if (kind == Kind::input_grad && (window.stride != Pair{1, 1} || window.h == 1)) continue;
        if (kind == Kind::weight_grad && (window.h == 7 || channels < 16 * groups)) continue;
        const ConvGeometry geometry{.stride = window.stride,
                                    .padding = window.padding,
                                    .dilation = window.dilation,
                                    .groups = groups,
                                    .layout = ImageLayout::nhwc};
        const Pair extent = geometry.output({x.h, x.w}, {window.h, window.w});
        ConvShape shape{.kind = kind,
                        .geometry = geometry,
                        .x = x,
                        .y = {x.n, channels, extent[0], extent[1]},
                        .weight = {channels, x.c / groups, window.h, window.w},
                        .weight_layout = ImageLayout::nhwc};
        if (kind == Kind::forward) {
          shape.bias = shape.residual = true;
          shape.epilogue = Epilogue::relu;
        }
        SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << ", window "
                                          << window.h << 'x' << window.w << ", " << x.n << 'x'
                                          << x.c << 'x' << x.h << 'x' << x.w << " to " << channels);
        ASSERT_TRUE(has_split_window_conv(shape) || has_split_window_grad(shape));
        const ImageShape& results = kind == Kind::input_grad ? shape.x : shape.y;
        if (results.n * results.pixels() >= 128) {
          const std::vector<int> tiles = conv_tiles(shape, {.split_bf16 = true});
          ASSERT_FALSE(tiles.empty());
          ASSERT_EQ(tiles[0], by_split_products);
        }
        expect_right_on_any_threads(shape, *make_conv(shape, by_split_products), 3e-7);
        if (kind != Kind::weight_grad)
          expect_right_on_any_threads(shape, *make_conv(shape, by_split_blocks), 3e-7);
      }
}

TEST(Conv, SplitsWeightsInBlocksWhereFewRowsReadThem) {
  if (!may_multiply_split()) GTEST_SKIP() << "this processor has no products of split bf16";
  const auto has_blocks = [](ImageShape x, std::int64_t channels, Kind kind, KernelChoice choice) {
    const ConvShape shape =
        three_by_three(x, channels, {1, 1}, kind, ImageLayout::nhwc, DType::f32);
    return std::ranges::count(conv_tiles(shape, choice), by_split_blocks) == 1;
  };
  const KernelChoice training{.split_bf16 = true};
  EXPECT_TRUE(has_blocks({4, 512, 7, 7}, 512, Kind::forward, training));
  EXPECT_TRUE(has_blocks({4, 512, 7, 7}, 512, Kind::input_grad, training));
  EXPECT_FALSE(has_blocks({4, 512, 7, 7}, 512, Kind::weight_grad, training));
  EXPECT_FALSE(has_blocks({32, 512, 7, 7}, 512, Kind::forward, training));
  EXPECT_FALSE(has_blocks({4, 512, 7, 7}, 512, Kind::forward, {}));
  EXPECT_FALSE(
      has_blocks({4, 512, 7, 7}, 512, Kind::forward, {.inference = true, .split_bf16 = true}))
      << "weights stay split";
}

TEST(Conv, IsByWinogradWhereThatMultipliesLess) {
  const auto tiles = [](ImageShape x, std::int64_t channels, const auto& change) {
    ConvShape shape =
        three_by_three(x, channels, {1, 1}, Kind::forward, ImageLayout::nhwc, DType::f32);
    change(shape);
    return conv_tiles(shape, {.inference = true});
  };
  const auto as_it_is = [](ConvShape&) {};
  const std::vector<int> none, one{1}, small{2}, both{2, 4};
  EXPECT_EQ(tiles({1, 64, 56, 56}, 64, as_it_is), both);
  EXPECT_EQ(tiles({3, 512, 7, 7}, 512, as_it_is), small) << "else the weights take most";
  EXPECT_EQ(tiles({64, 512, 7, 7}, 512, as_it_is), both);
  EXPECT_EQ(tiles({200, 64, 1, 1}, 64, as_it_is), none) << "one result of a tile";
  EXPECT_EQ(tiles({1, 64, 7, 7}, 64, as_it_is), none) << "few results";
  EXPECT_EQ(tiles({1, 20, 56, 56}, 64, as_it_is), none);
  EXPECT_EQ(tiles({1, 64, 56, 56}, 24, as_it_is), none);
  const auto changed = [&](const auto& change) { return tiles({1, 64, 56, 56}, 64, change); };
  EXPECT_EQ(changed([](ConvShape& s) { s.dtype = DType::f16; }), both) << "computed in f32";
  EXPECT_EQ(changed([](ConvShape& s) { s.kind = Kind::input_grad; }), both);
  EXPECT_EQ(changed([](ConvShape& s) { s.kind = Kind::weight_grad; }), both);
  const auto by_weight = [&](const auto& change) {
    return changed([&](ConvShape& s) {
      s.kind = Kind::weight_grad;
      change(s);
    });
  };
  EXPECT_EQ(by_weight([](ConvShape& s) { s.geometry.stride = {2, 2}; }), one);
  EXPECT_EQ(by_weight([](ConvShape& s) { s.geometry.dilation = {1, 2}; }), one);
  EXPECT_EQ(by_weight([](ConvShape& s) { s.weight.h = 5; }), one);
  EXPECT_EQ(by_weight([](ConvShape& s) { s.weight.h = s.weight.w = 1; }), none);
  EXPECT_EQ(by_weight([](ConvShape& s) { s.weight.h = s.weight.w = 7; }), none);
  EXPECT_EQ(by_weight([](ConvShape& s) { s.geometry.groups = 2; }), none);
  EXPECT_EQ(changed([](ConvShape& s) { s.geometry.stride = {2, 2}; }), none);
  EXPECT_EQ(changed([](ConvShape& s) { s.geometry.dilation = {1, 2}; }), none);
  EXPECT_EQ(changed([](ConvShape& s) { s.geometry.groups = 2; }), none);
  EXPECT_EQ(changed([](ConvShape& s) { s.weight.h = 1; }), none);
  ConvShape training =
      three_by_three({1, 64, 56, 56}, 64, {1, 1}, Kind::forward, ImageLayout::nhwc, DType::f32);
  EXPECT_EQ(conv_tiles(training, {}), small) << "which is as exact as direct sums";
  for (const Kind kind : {Kind::input_grad, Kind::weight_grad}) {
    training.kind = kind;
    EXPECT_EQ(conv_tiles(training, {}), both);
  }
  ConvShape small_image =
      three_by_three({3, 512, 7, 7}, 512, {1, 1}, Kind::weight_grad, ImageLayout::nhwc, DType::f32);
  EXPECT_EQ(conv_tiles(small_image, {}), both) << "which maps no weights";
}

// Runs each candidate and answers with one.
class PickingTuner final : public Tuner {
 public:
  explicit PickingTuner(std::size_t pick) : pick_(pick) {}
  std::size_t choose(std::string_view key, std::size_t candidates,
                     const std::function<void(std::size_t)>& run) override {
    keys.emplace_back(key);
    for (std::size_t i = 0; i < candidates; ++i)
      for (int time = 0; time < 2; ++time) run(i);
    return pick_ % candidates;
  }
  std::vector<std::string> keys;

 private:
  std::size_t pick_;
};

// The plan of memory is made before anything is timed. What is chosen holds for any number of
// threads, and for all batches that are more than a trial takes.
TEST(Conv, OfEachChoiceWantsTheSameMemory) {
  const ConvGeometry geometry{.padding = {1, 1}};
  const auto prepare_op = [](const Op& op, const std::vector<TensorType>& in, std::size_t pick,
                             int threads, bool inference) {
    CpuDevice device(threads);
    PickingTuner tuner(pick);
    const PreparedKernel prepared =
        device.prepare(op, in, infer(op, in),
                       {.products = Products::tuned, .tuner = &tuner, .inference = inference});
    EXPECT_EQ(tuner.keys.size(), 1u);
    const auto* const packing = dynamic_cast<const PackingKernel*>(prepared.kernel.get());
    return std::tuple{prepared.workspace, packing->packed().bytes, packing->packed().workspace,
                      tuner.keys.front()};
  };
  const auto prepare = [&](std::size_t pick, std::int64_t images, int threads, bool inference) {
    return prepare_op(Op(Conv2d{geometry}),
                      {{DType::f32, {images, 64, 32, 32}}, {DType::f32, {64, 64, 3, 3}}}, pick,
                      threads, inference);
  };
  const auto first = prepare(0, 40, 2, false);
  EXPECT_EQ(prepare(1, 40, 2, false), first);
  EXPECT_EQ(prepare(1, 40, 3, false), first);
  EXPECT_EQ(std::get<1>(first), 16u * 64 * 64 * sizeof(float));
  EXPECT_EQ(std::get<3>(prepare(0, 400, 2, false)), std::get<3>(first));
  EXPECT_NE(std::get<3>(prepare(0, 2, 2, false)), std::get<3>(first));
  const auto kept = prepare(0, 40, 2, true);
  EXPECT_EQ(prepare(2, 40, 2, true), kept);
  EXPECT_EQ(std::get<1>(kept), 36u * 64 * 64 * sizeof(float));
  EXPECT_NE(std::get<3>(kept), std::get<3>(first));
  const auto by_weight = [&](std::size_t pick, int threads) {
    const TensorType images{DType::f32, {40, 64, 32, 32}};
    return prepare_op(Op(Conv2dWeightGrad{geometry, {64, 64, 3, 3}}), {images, images}, pick,
                      threads, false);
  };
  for (const std::size_t pick : {1, 2}) EXPECT_EQ(by_weight(pick, 3), by_weight(0, 2));
  EXPECT_NE(std::get<3>(by_weight(0, 2)), std::get<3>(first));
}

// The library and both tiles round differently, so that their bits tell them apart.
TEST(Conv, IsComputedByWhatTheTunerChose) {
  CpuDevice device(2);
  const ConvGeometry geometry{.padding = {1, 1}, .layout = ImageLayout::nhwc};
  const TensorType x{DType::f32, {2, 24, 24, 48}}, weight{DType::f32, {32, 3, 3, 48}},
      y{DType::f32, {2, 24, 24, 32}};
  for (const auto& [op, in, terms] :
       {std::tuple{Op(Conv2d{geometry}), std::vector{x, weight}, 9 * 48},
        {Op(Conv2dInputGrad{geometry, x.shape}), std::vector{y, weight}, 9 * 32},
        {Op(Conv2dWeightGrad{geometry, weight.shape}), std::vector{y, x}, 2 * 24 * 24}}) {
    SCOPED_TRACE(name_of(op));
    const std::vector<TensorType> out = infer(op, in);
    std::vector<testing::Reals> values;
    for (const TensorType& type : in) {
      std::vector<float> floats(static_cast<std::size_t>(type.numel()));
      fill_normal(floats, 1.0f, 5, stream_of(type.to_string()));
      values.emplace_back(floats.begin(), floats.end());
    }
    const auto expected = testing::run_reference(op, in, out, values);
    std::set<testing::Reals> results;
    for (const std::size_t pick : {0, 1, 2}) {
      PickingTuner tuner(pick);
      const auto bytes =
          testing::run_kernel(device, op, in, out, values,
                              {.products = Products::tuned, .tuner = &tuner, .inference = true});
      const testing::Reals result = testing::decode(bytes[0], DType::f32);
      testing::expect_close(result, expected[0], {1e-5 * std::sqrt(terms), 1e-5});
      results.insert(result);
    }
    EXPECT_EQ(results.size(), 3u);
  }
}

}  // namespace
}  // namespace ridge
