#include "ridge/ops/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/conv/conv_sm90.h"
#include "ridge/gpu/kernels/product/linear_finish.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge {
namespace {

constexpr std::size_t most_plans = 8;  // of the library's, that are timed

bool is_aligned(const void* p) { return gpu::is_aligned(p, 16); }

// The operands of one launch; bias and residual are null where the layer has none.
struct Pointers {
  const void *x, *weight, *bias, *residual;
  void* y;

  Pointers(const Linear& op, const Launch& call) : y(call.outputs[0]) {
    const Linear::Operands at = op.operands();
    x = call.inputs[at.x];
    weight = call.inputs[at.weight];
    bias = op.bias ? call.inputs[at.bias] : nullptr;
    residual = op.residual ? call.inputs[at.residual] : nullptr;
  }
  // To those of later rows.
  void advance(std::int64_t rows, const gpu::ProductShape& shape, DType dtype) {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    x = static_cast<const std::byte*>(x) + rows * shape.k * size;
    if (residual) residual = static_cast<const std::byte*>(residual) + rows * shape.n * size;
    y = static_cast<std::byte*>(y) + rows * shape.n * size;
  }
  bool aligned() const {
    return is_aligned(x) && is_aligned(weight) && is_aligned(bias) && is_aligned(residual) &&
           is_aligned(y);
  }
};

// The layer's product by the vendor's library; with what the library can add to it, if `joined`.
gpu::ProductShape product_of(const Linear& op, const GpuPrepare& prepare, bool joined) {
  const auto [m, n, k] = linear_extents(prepare.in);
  return {.m = m,
          .n = n,
          .k = k,
          .trans_b = true,
          .in = prepare.in[0].dtype,
          .out = prepare.out[0].dtype,
          .bias = joined && op.bias,
          .residual = joined && op.residual,
          .relu = joined && op.epilogue == Epilogue::relu,
          .tf32 = prepare.choice.tf32};
}

// So many rows that the card's last cache holds their sums in f32.
std::int64_t rows_at_a_time(std::int64_t columns, const gpu::Card& card) {
  const auto most_sums =
      card.crossovers().product_sum_bytes / static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(64, most_sums / columns);
}

// A product, and after it a kernel for what of the layer the product does not do. Between the two
// the sums are f32: else they would be rounded twice, and where a bias or residual cancels them,
// that shows. Where they have memory of their own, it is that of some rows at a time.
class ProductAndRest {
 public:
  // By the library's plan of this rank; DeviceError if there are fewer.
  ProductAndRest(const Linear& op, const GpuPrepare& prepare, gpu::ProductShape shape,
                 std::size_t rank)
      : gpu_(prepare.gpu), op_(op), m_(shape.m), dtype_(shape.out), rows_(shape.m) {
    finishes_ = (op.epilogue != Epilogue::none && !shape.relu) || op.bias != shape.bias ||
                op.residual != shape.residual;
    if (finishes_) shape.out = DType::f32;
    if (shape.out != dtype_) rows_ = std::min(m_, rows_at_a_time(shape.n, gpu_.card));
    shape_ = shape;
    product_ = product_of_rows(rows_, rank);
    if (m_ % rows_ != 0) last_ = product_of_rows(m_ % rows_, rank);
    const std::size_t own = std::max(product_->workspace(), last_ ? last_->workspace() : 0);
    workspace_ = own;
    if (dtype_ == shape.out) return;
    sums_offset_ = (own + 255) / 256 * 256;
    workspace_ = *sums_offset_ + static_cast<std::size_t>(rows_ * shape_.n) * sizeof(float);
  }

  std::size_t workspace() const { return workspace_; }
  void operator()(const Launch& call) const {
    Pointers o(op_, call);
    for (std::int64_t row = 0; row < m_; row += rows_) {
      run(std::min(rows_, m_ - row), o, call.workspace);
      o.advance(rows_, shape_, dtype_);
    }
  }

 private:
  gpu::ProductPtr product_of_rows(std::int64_t rows, std::size_t rank) const {
    gpu::ProductShape shape = shape_;
    shape.m = rows;
    std::vector<gpu::ProductPtr> products = gpu_.blas->products(shape, rank + 1);
    if (rank >= products.size()) throw DeviceError("the library has no plan {} for it", rank + 1);
    return std::move(products[rank]);
  }

  void run(std::int64_t rows, const Pointers& o, void* workspace) const {
    void* const sums = sums_offset_ ? static_cast<std::byte*>(workspace) + *sums_offset_ : o.y;
    const gpu::ProductTerms terms{shape_.bias ? o.bias : nullptr,
                                  shape_.residual ? o.residual : nullptr};
    (rows == rows_ ? product_ : last_)->run(gpu_.stream, o.x, o.weight, sums, workspace, {}, terms);
    if (finishes_)
      finish_linear(gpu_, dtype_, op_.epilogue, rows, shape_.n, static_cast<const float*>(sums),
                    o.bias, o.residual, o.y);
  }

  const gpu::Context& gpu_;
  Linear op_;
  std::int64_t m_;
  DType dtype_;  // of the layer
  gpu::ProductShape shape_;
  std::int64_t rows_;  // at a time
  gpu::ProductPtr product_, last_;
  bool finishes_ = false;
  std::size_t workspace_ = 0;
  std::optional<std::size_t> sums_offset_;  // in the workspace, unless the sums are y
};

// What candidates are asked about a layer of operands aligned to 16 bytes.
class LinearWork {
 public:
  const Linear& op;
  const GpuPrepare& prepare;
  const gpu::Context& gpu;
  const gpu::LinearProduct product;
  const gpu::LinearTiles tiles;               // expected to be the best
  const gpu::ConvProblem conv;                // the layer as a convolution of images of one pixel
  const std::optional<gpu::ConvTiles> parts;  // of that, expected to be the best

  LinearWork(const Linear& layer, const GpuPrepare& of_all)
      : op(layer),
        prepare(of_all),
        gpu(of_all.gpu),
        product(product_of_layer()),
        tiles(linear_product_sm90_expected_best(gpu.card, product)),
        conv(conv_of_layer()),
        parts(takes_parts() ? conv_sm90_expected_best(gpu, conv) : std::nullopt) {}

  // Whether there are so few results that our tiles leave most of the card idle, where the library
  // cuts sums into parts.
  bool is_small() const {
    const auto rows = (product.m + 127) / 128, columns = (product.n + 127) / 128;
    return gpu.card.crossovers().idle_multiprocessors * rows * columns <= gpu.card.multiprocessors;
  }

  // How many of the library's plans there are that leave nothing to do. Of 16 bits and rows that do
  // not begin at multiples of 16 bytes its kernels round the product before they add to it.
  std::size_t joined_plans() const {
    if (!joined_plans_) joined_plans_ = count_joined_plans();
    return *joined_plans_;
  }

  bool takes_parts() const { return Conv2d::takes(op.epilogue); }

  std::string key() const { return fmt::format("{} {} in f32 sums", gpu.blas->version(), work()); }
  std::string work() const {
    return fmt::format("{} {}[{} x {} x {}]{}{}{} {}", Linear::name, name_of(product.dtype),
                       product.m, product.k, product.n, op.bias ? " + bias" : "",
                       op.residual ? " + residual" : "", prepare.choice.tf32 ? " tf32" : "",
                       name_of(op.epilogue));
  }

 private:
  gpu::LinearProduct product_of_layer() const {
    const auto [m, n, k] = linear_extents(prepare.in);
    return {m, n, k, prepare.in[0].dtype, op.epilogue};
  }
  gpu::ConvProblem conv_of_layer() const {
    return {.geometry = {.layout = ImageLayout::nhwc},
            .x = {product.m, product.k, 1, 1},
            .y = {product.m, product.n, 1, 1},
            .weight = {product.n, product.k, 1, 1},
            .dtype = product.dtype,
            .bias = op.bias,
            .residual = op.residual,
            .epilogue = op.epilogue};
  }
  std::size_t count_joined_plans() const {
    if (op.epilogue != Epilogue::none && op.epilogue != Epilogue::relu) return 0;
    if (size_of(product.dtype) == 2 && (product.n % 8 != 0 || product.k % 8 != 0)) return 0;
    try {
      return gpu.blas->products(product_of(op, prepare, true), most_plans).size();
    } catch (const DeviceError&) {
      return 0;
    }
  }

  mutable std::optional<std::size_t> joined_plans_;  // once it is known
};

KernelPtr library_kernel(const LinearWork& work, GpuPrepare& prepare, bool joined,
                         std::size_t rank) {
  const auto whole = std::make_shared<ProductAndRest>(work.op, prepare,
                                                      product_of(work.op, prepare, joined), rank);
  prepare.workspace = whole->workspace();
  return make_kernel([whole](const Launch& call) { (*whole)(call); });
}

// What is expected of candidates, from the slowest to the fastest.
enum Expected : int {
  parts_of_sums,
  best_parts_of_sums,
  two_kernels,
  further_plans,
  other_tiles,
  best_tiles,
  best_plan_of_few_results
};

using LinearCandidate = gpu::Candidate<LinearWork>;

template <gpu::LinearTiles tiles>
constexpr LinearCandidate in_tiles{
    .name = [](const LinearWork&) { return fmt::format("one kernel, {}", to_string(tiles)); },
    .supports = [](const LinearWork& w) { return linear_product_sm90_supports(w.gpu, w.product); },
    .expectation = [](const LinearWork& w, const gpu::Card&) -> int {
      return w.tiles == tiles ? best_tiles : other_tiles;
    },
    .prepare =
        [](const LinearWork& w, GpuPrepare&) {
          return make_kernel([&gpu = w.gpu, op = w.op, product = w.product](const Launch& call) {
            const Pointers o(op, call);
            linear_product_sm90(gpu, product, tiles, o.x, o.weight, o.bias, o.residual, o.y);
          });
        }};

// The library's product with all that follows it.
template <std::size_t rank>
constexpr LinearCandidate plan{
    .name =
        [](const LinearWork& w) {
          return fmt::format("{}, plan {}", w.gpu.blas->version(), rank + 1);
        },
    .supports = [](const LinearWork& w) { return rank < w.joined_plans(); },
    .expectation = [](const LinearWork& w, const gpu::Card&) -> int {
      return rank == 0 && w.is_small() ? best_plan_of_few_results : further_plans;
    },
    .prepare = [](const LinearWork& w, GpuPrepare& p) { return library_kernel(w, p, true, rank); }};

// As a convolution of images of one pixel: of few rows, in which several thread blocks each sum a
// part of an inner dimension.
template <int columns, int split>
constexpr LinearCandidate in_parts{
    .name =
        [](const LinearWork&) {
          return to_string(gpu::ConvTiles{.rows = 64, .columns = columns, .split = split});
        },
    .supports =
        [](const LinearWork& w) {
          return w.takes_parts() &&
                 conv_sm90_supports(w.gpu, w.conv,
                                    {.rows = 64, .columns = columns, .split = split});
        },
    .expectation = [](const LinearWork& w, const gpu::Card&) -> int {
      const gpu::ConvTiles tiles{.rows = 64, .columns = columns, .split = split};
      return w.parts == tiles ? best_parts_of_sums : parts_of_sums;
    },
    .prepare =
        [](const LinearWork& w, GpuPrepare&) {
          const std::shared_ptr<gpu::FusedConv> kernel =
              conv_sm90(w.gpu, w.conv, {.rows = 64, .columns = columns, .split = split});
          return make_kernel([&gpu = w.gpu, op = w.op, kernel](const Launch& call) {
            const Pointers o(op, call);
            kernel->run(gpu.stream, {o.x, o.weight, o.y, o.bias, o.residual}, nullptr);
          });
        }};

constexpr LinearCandidate product_and_rest{
    .name = [](const LinearWork&) -> std::string { return "a product and the rest"; },
    .supports = [](const LinearWork&) { return true; },
    .expectation = [](const LinearWork&, const gpu::Card&) -> int { return two_kernels; },
    .prepare = [](const LinearWork& w, GpuPrepare& p) { return library_kernel(w, p, false, 0); }};

constexpr auto candidates = gpu::joined_rows(
    gpu::numbered_rows<LinearWork, std::size(gpu::linear_tiles)>(
        []<std::size_t i>() { return in_tiles<gpu::linear_tiles[i]>; }),
    gpu::numbered_rows<LinearWork, most_plans>([]<std::size_t rank>() { return plan<rank>; }),
    std::array{product_and_rest, in_parts<64, 2>, in_parts<64, 4>, in_parts<64, 8>, in_parts<32, 2>,
               in_parts<32, 4>, in_parts<32, 8>});

// The kernel for operands aligned to their elements only: slices may begin anywhere.
KernelPtr unaligned_kernel(const Linear& op, GpuPrepare& prepare) {
  gpu::ProductShape shape = product_of(op, prepare, false);
  shape.alignment = static_cast<std::uint32_t>(size_of(shape.in));
  const auto whole = std::make_shared<ProductAndRest>(op, prepare, shape, 0);
  prepare.workspace = whole->workspace();
  return make_kernel([whole](const Launch& call) { (*whole)(call); });
}

}  // namespace

KernelPtr Linear::gpu(GpuPrepare& prepare) const {
  GpuPrepare of_aligned = prepare, of_unaligned = prepare;
  KernelPtr aligned =
      gpu::best_kernel<LinearWork>(of_aligned, LinearWork(*this, prepare), candidates);
  KernelPtr unaligned = unaligned_kernel(*this, of_unaligned);
  prepare.workspace = std::max(of_aligned.workspace, of_unaligned.workspace);
  return make_kernel([op = *this, aligned = std::move(aligned),
                      unaligned = std::move(unaligned)](const Launch& call) {
    (Pointers(op, call).aligned() ? aligned : unaligned)->launch(call);
  });
}

}  // namespace ridge
