// Convolutions and their gradients as products in tiles (implicit GEMM): the windows of the image
// are gathered on their way into shared memory. With pixels p = (n, i, j) of y and taps t = (r, s,
// c) of the weight, in the order in which the weight has them,
//
//   forward        y[p, o] = sum_t x[p, t] weight[o, t]
//   input grad     dx[q, c] = sum_(r, s, o) dy[q, (r, s, o)] weight[o, (r, s, c)], q pixels of x
//   weight grad    dweight[o, t] = sum_p dy[p, o] x[p, t]
//
// each for the channels of a group.

#include "ridge/gpu/kernels/conv/portable_conv.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "ridge/gpu/kernels/conv/conv_epilogue.h"
#include "ridge/gpu/kernels/tiled_product.h"

namespace ridge::gpu {
namespace {

// A number written in three digits, the last of which counts up first.
struct Digits {
  int at[3];
};
struct DigitExtents {
  int second = 1, third = 1;
  __device__ Digits of(std::int64_t number) const {
    const auto n = static_cast<std::uint32_t>(number);
    const auto rest = n / static_cast<std::uint32_t>(third);
    return {{static_cast<int>(rest / static_cast<std::uint32_t>(second)),
             static_cast<int>(rest % static_cast<std::uint32_t>(second)),
             static_cast<int>(n % static_cast<std::uint32_t>(third))}};
  }
};

// Steps in memory, in elements, for each digit.
using Steps = std::array<std::int64_t, 3>;

// What a row and a depth of an operand say together of one dimension of an image: that it is at
// (by_row * a digit of the row + by_depth * a digit of the depth + offset) / divisor, if that is a
// whole number within the image.
struct Place {
  int by_row = 0, by_depth = 0, offset = 0, divisor = 1, extent = 0;
  std::int64_t step = 0;
};

template <class Element>
struct ConvOperand {
  using T = Element;
  const T* data;
  std::int64_t rows, depth;
  bool along_depth, packed;
  std::int64_t group_step;
  DigitExtents row_extents, depth_extents;
  Steps row_steps, depth_steps;
  // Of an image: its two dimensions, which are digits of rows and depths from these on.
  bool is_image = false;
  int row_digit = 0, depth_digit = 0;
  Place places[2] = {};

  __device__ ConvOperand at(std::int64_t group) const {
    ConvOperand one = *this;
    one.data += group * group_step;
    return one;
  }

  __device__ const T* element(std::int64_t row, std::int64_t k) const {
    const Digits r = row_extents.of(row), d = depth_extents.of(k);
    const T* p = data;
#pragma unroll
    for (int i = 0; i < 3; ++i) p += row_steps[i] * r.at[i] + depth_steps[i] * d.at[i];
    if (!is_image) return p;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Place& place = places[i];
      // Digits of a number are not indexed by what is known at run time alone.
      const int of_row = row_digit == 0 ? r.at[i] : r.at[i + 1];
      const int of_depth = depth_digit == 0 ? d.at[i] : d.at[i + 1];
      int at = place.by_row * of_row + place.by_depth * of_depth + place.offset;
      if (at < 0 || at % place.divisor != 0) return nullptr;
      at /= place.divisor;
      if (at >= place.extent) return nullptr;
      p += at * place.step;
    }
    return p;
  }

  template <class Unit>
  __device__ typename Unit::Stored load(T x) const {
    return stored<Unit>(x);
  }
};

// What is done to a sum before it is written.
template <class T>
struct ConvFinish {
  std::int64_t m, n;
  T* result;
  const T *bias, *residual;  // null where there is none
  Epilogue epilogue;
  std::int64_t group_step, column_step;
  DigitExtents row_extents;
  Steps row_steps;

  __device__ void operator()(float sum, std::int64_t group, std::int64_t row,
                             std::int64_t column) const {
    const Digits r = row_extents.of(row);
    std::int64_t at = group * group_step + column * column_step;
#pragma unroll
    for (int i = 0; i < 3; ++i) at += row_steps[i] * r.at[i];
    float sums[1] = {sum};
    if (bias) sums[0] += load(bias + group * n + column);
    if (residual) sums[0] += load(residual + at);
    apply_epilogue(epilogue, sums);
    store(result + at, sums[0]);
  }
};

// All that the host knows of a convolution's product.
template <class T>
struct ConvProduct {
  ConvOperand<T> a, b;
  ConvFinish<T> finish;
};

int as_int(std::int64_t extent) { return static_cast<int>(extent); }

// The extents of a group's operands and results, and where their elements lie.
struct ConvLayout {
  const ConvProblem& problem;
  std::int64_t groups, in, out, taps;  // channels of a group, and of its weight R S
  bool nhwc;
  ImageStrides x, y, weight;

  explicit ConvLayout(const ConvProblem& p)
      : problem(p),
        groups(p.geometry.groups),
        in(p.weight.c),
        out(p.weight.n / groups),
        taps(p.weight.pixels()),
        nhwc(p.geometry.layout == ImageLayout::nhwc),
        x(p.x, p.geometry.layout),
        y(p.y, p.geometry.layout),
        weight(p.weight, p.geometry.layout) {}

  static std::int64_t pixels(const ImageShape& image) { return image.n * image.pixels(); }

  ProductExtents extents() const {
    switch (problem.kind) {
      case ConvProblem::Kind::forward:
        return {groups, pixels(problem.y), out, taps * in};
      case ConvProblem::Kind::input_grad:
        return {groups, pixels(problem.x), in, taps * out};
      case ConvProblem::Kind::weight_grad:
        break;
    }
    return {groups, out, taps * in, pixels(problem.y)};
  }

  // Whether packs of so many of a group's channels lie at multiples of their size.
  static bool is_packed(std::int64_t channels, int pack) { return channels % pack == 0; }

  // The digits of a pixel of an image: which image, row, column.
  static DigitExtents pixel_digits(const ImageShape& image) {
    return {as_int(image.h), as_int(image.w)};
  }
  static Steps pixel_steps(const ImageStrides& steps) { return {steps.n, steps.h, steps.w}; }

  // The digits of a tap with so many channels: (r, s, channel), or (channel, r, s) with channels
  // first.
  DigitExtents tap_digits(std::int64_t channels) const {
    const ImageShape& w = problem.weight;
    return nhwc ? DigitExtents{as_int(w.w), as_int(channels)}
                : DigitExtents{as_int(w.h), as_int(w.w)};
  }
  Steps tap_steps(std::int64_t channel, std::int64_t row, std::int64_t column) const {
    return nhwc ? Steps{row, column, channel} : Steps{channel, row, column};
  }
  int tap_digit() const { return nhwc ? 0 : 1; }

  // The places of the windows in x, from digits of pixels and of taps.
  void place_windows(Place (&places)[2], bool pixels_are_rows) const {
    const ConvGeometry& g = problem.geometry;
    for (std::size_t i = 0; i < 2; ++i) {
      const int stride = as_int(g.stride[i]), dilation = as_int(g.dilation[i]);
      places[i] = {.by_row = pixels_are_rows ? stride : dilation,
                   .by_depth = pixels_are_rows ? dilation : stride,
                   .offset = -as_int(g.padding[i]),
                   .extent = as_int(i == 0 ? problem.x.h : problem.x.w),
                   .step = i == 0 ? x.h : x.w};
    }
  }

  // The places in y of the windows that an element of x, a row, is in at a tap.
  void place_results(Place (&places)[2]) const {
    const ConvGeometry& g = problem.geometry;
    for (std::size_t i = 0; i < 2; ++i)
      places[i] = {.by_row = 1,
                   .by_depth = -as_int(g.dilation[i]),
                   .offset = as_int(g.padding[i]),
                   .divisor = as_int(g.stride[i]),
                   .extent = as_int(i == 0 ? problem.y.h : problem.y.w),
                   .step = i == 0 ? y.h : y.w};
  }
};

template <class T>
ConvProduct<T> forward(const ConvLayout& at, const ConvPointers& o, int pack) {
  const ConvProblem& p = at.problem;
  const ProductExtents s = at.extents();
  ConvOperand<T> x{.data = static_cast<const T*>(o.x),
                   .rows = s.m,
                   .depth = s.k,
                   .along_depth = at.nhwc,
                   .packed = at.nhwc && ConvLayout::is_packed(at.in, pack),
                   .group_step = at.in * at.x.c,
                   .row_extents = ConvLayout::pixel_digits(p.y),
                   .depth_extents = at.tap_digits(at.in),
                   .row_steps = {at.x.n, 0, 0},
                   .depth_steps = at.tap_steps(at.x.c, 0, 0),
                   .is_image = true,
                   .row_digit = 1,
                   .depth_digit = at.tap_digit()};
  at.place_windows(x.places, true);
  return {.a = x,
          .b = {.data = static_cast<const T*>(o.weight),
                .rows = s.n,
                .depth = s.k,
                .along_depth = true,
                .packed = ConvLayout::is_packed(s.k, pack),
                .group_step = s.n * s.k,
                .row_steps = {s.k, 0, 0},
                .depth_steps = {1, 0, 0}},
          .finish = {.m = s.m,
                     .n = s.n,
                     .result = static_cast<T*>(const_cast<void*>(o.y)),
                     .bias = static_cast<const T*>(o.bias),
                     .residual = static_cast<const T*>(o.residual),
                     .epilogue = p.epilogue,
                     .group_step = at.out * at.y.c,
                     .column_step = at.y.c,
                     .row_extents = ConvLayout::pixel_digits(p.y),
                     .row_steps = ConvLayout::pixel_steps(at.y)}};
}

template <class T>
ConvProduct<T> input_grad(const ConvLayout& at, const ConvPointers& o, int pack) {
  const ConvProblem& p = at.problem;
  const ProductExtents s = at.extents();
  ConvOperand<T> dy{.data = static_cast<const T*>(o.y),
                    .rows = s.m,
                    .depth = s.k,
                    .along_depth = at.nhwc,
                    .packed = at.nhwc && ConvLayout::is_packed(at.out, pack),
                    .group_step = at.out * at.y.c,
                    .row_extents = ConvLayout::pixel_digits(p.x),
                    .depth_extents = at.tap_digits(at.out),
                    .row_steps = {at.y.n, 0, 0},
                    .depth_steps = at.tap_steps(at.y.c, 0, 0),
                    .is_image = true,
                    .row_digit = 1,
                    .depth_digit = at.tap_digit()};
  at.place_results(dy.places);
  return {.a = dy,
          .b = {.data = static_cast<const T*>(o.weight),
                .rows = s.n,
                .depth = s.k,
                .along_depth = !at.nhwc,
                .packed = at.nhwc && ConvLayout::is_packed(at.in, pack),
                .group_step = at.out * at.weight.n,
                .depth_extents = at.tap_digits(at.out),
                .row_steps = {at.weight.c, 0, 0},
                .depth_steps = at.tap_steps(at.weight.n, at.weight.h, at.weight.w)},
          .finish = {.m = s.m,
                     .n = s.n,
                     .result = static_cast<T*>(const_cast<void*>(o.x)),
                     .bias = nullptr,
                     .residual = nullptr,
                     .epilogue = Epilogue::none,
                     .group_step = at.in * at.x.c,
                     .column_step = at.x.c,
                     .row_extents = ConvLayout::pixel_digits(p.x),
                     .row_steps = ConvLayout::pixel_steps(at.x)}};
}

template <class T>
ConvProduct<T> weight_grad(const ConvLayout& at, const ConvPointers& o, int pack) {
  const ConvProblem& p = at.problem;
  const ProductExtents s = at.extents();
  ConvOperand<T> x{.data = static_cast<const T*>(o.x),
                   .rows = s.n,
                   .depth = s.k,
                   .along_depth = !at.nhwc,
                   .packed = at.nhwc && ConvLayout::is_packed(at.in, pack),
                   .group_step = at.in * at.x.c,
                   .row_extents = at.tap_digits(at.in),
                   .depth_extents = ConvLayout::pixel_digits(p.y),
                   .row_steps = at.tap_steps(at.x.c, 0, 0),
                   .depth_steps = {at.x.n, 0, 0},
                   .is_image = true,
                   .row_digit = at.tap_digit(),
                   .depth_digit = 1};
  at.place_windows(x.places, false);
  return {.a = {.data = static_cast<const T*>(o.y),
                .rows = s.m,
                .depth = s.k,
                .along_depth = !at.nhwc,
                .packed = at.nhwc && ConvLayout::is_packed(at.out, pack),
                .group_step = at.out * at.y.c,
                .depth_extents = ConvLayout::pixel_digits(p.y),
                .row_steps = {at.y.c, 0, 0},
                .depth_steps = ConvLayout::pixel_steps(at.y)},
          .b = x,
          .finish = {.m = s.m,
                     .n = s.n,
                     .result = static_cast<T*>(const_cast<void*>(o.weight)),
                     .bias = nullptr,
                     .residual = nullptr,
                     .epilogue = Epilogue::none,
                     .group_step = s.m * s.n,
                     .column_step = 1,
                     .row_steps = {s.n, 0, 0}}};
}

template <class T>
ConvProduct<T> product_of(const ConvProblem& problem, const ConvPointers& operands, int pack) {
  const ConvLayout layout(problem);
  switch (problem.kind) {
    case ConvProblem::Kind::forward:
      return forward<T>(layout, operands, pack);
    case ConvProblem::Kind::input_grad:
      return input_grad<T>(layout, operands, pack);
    case ConvProblem::Kind::weight_grad:
      break;
  }
  return weight_grad<T>(layout, operands, pack);
}

class PortableConv final : public FusedConv {
 public:
  PortableConv(const Card& card, const ConvProblem& problem, TilePlan plan)
      : early_(card.launches_early()),
        problem_(problem),
        plan_(plan),
        extents_(ConvLayout(problem).extents()) {}

  std::size_t workspace() const override { return plan_.workspace(extents_); }

  void run(Stream stream, const ConvPointers& operands, void* workspace) const override {
    if (problem_.dtype == DType::f32 && problem_.tf32)
      return run_by<MatrixUnit<Tf32>, float>(stream, operands, workspace);
    dispatch_floating(problem_.dtype,
                      [&]<class T>() { run_by<MatrixUnit<T>, T>(stream, operands, workspace); });
  }

 private:
  template <class Unit, class T>
  void run_by(Stream stream, const ConvPointers& operands, void* workspace) const {
    const ConvProduct<T> product = product_of<T>(problem_, operands, pack_of<Unit>);
    const auto launch_in = [&]<class Tile>() {
      launch_product<Tile, Unit>(stream, early_, extents_, plan_.parts, product.a, product.b,
                                 product.finish, workspace);
    };
    if (plan_.rows == MediumTile::rows)
      launch_in.template operator()<MediumTile>();
    else
      launch_in.template operator()<SmallTile>();
  }

  bool early_;
  ConvProblem problem_;
  TilePlan plan_;
  ProductExtents extents_;
};

// Fewer channels of a group would leave most of a tile empty.
constexpr std::int64_t least_group = 16;

bool takes(const ConvProblem& p) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const ProductExtents s = ConvLayout(p).extents();
  if (!is_floating(p.dtype) || is_float8(p.dtype) || std::max({s.m, s.n, s.k}) > most) return false;
  return p.geometry.groups == 1 ||
         std::min(p.weight.c, p.weight.n / p.geometry.groups) >= least_group;
}

}  // namespace

std::shared_ptr<FusedConv> portable_conv(const Card& card, const ConvProblem& problem,
                                         std::size_t rank) {
  if (!takes(problem)) return nullptr;
  const std::vector<TilePlan> plans =
      tile_plans(card, ConvLayout(problem).extents(), MediumTile::rows);
  if (rank >= plans.size()) return nullptr;
  return std::make_shared<PortableConv>(card, problem, plans[rank]);
}

}  // namespace ridge::gpu
