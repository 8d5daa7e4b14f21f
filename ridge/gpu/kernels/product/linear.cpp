#include "ridge/ops/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/gpu/device/kernel_ways.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/conv/conv_sm90.h"
#include "ridge/gpu/kernels/product/linear_finish.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge {
namespace {

constexpr std::size_t most_vendor_ways = 8;

bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Operands of one launch; bias and residual are null where the layer has none.
struct Operands {
  const void *x, *weight, *bias, *residual;
  void* y;

  Operands(const Linear& op, const Launch& call)
      : x(call.inputs[0]),
        weight(call.inputs[1]),
        bias(op.bias ? call.inputs[2] : nullptr),
        residual(op.residual ? call.inputs[op.residual_operand()] : nullptr),
        y(call.outputs[0]) {}
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

// So many rows that their sums in f32 take some 32 MiB: the last cache of large cards holds them.
std::int64_t rows_at_a_time(std::int64_t columns) {
  constexpr std::int64_t most_sums = 8 << 20;
  return std::max<std::int64_t>(64, most_sums / columns);
}

// A product, and after it a kernel for what of the layer the product does not do. Between the two
// the sums are f32: else they would be rounded twice, and where a bias or residual cancels them,
// that shows. Where they have memory of their own, it is that of some rows at a time.
class ProductAndRest {
 public:
  // Of the product's ways that with this number; DeviceError if there are fewer.
  ProductAndRest(const Linear& op, const GpuPrepare& prepare, gpu::ProductShape shape,
                 std::size_t way)
      : gpu_(prepare.gpu), op_(op), m_(shape.m), dtype_(shape.out), rows_(shape.m) {
    finishes_ = (op.epilogue != Epilogue::none && !shape.relu) || op.bias != shape.bias ||
                op.residual != shape.residual;
    if (finishes_) shape.out = DType::f32;
    if (shape.out != dtype_) rows_ = std::min(m_, rows_at_a_time(shape.n));
    shape_ = shape;
    product_ = product_of_rows(rows_, way);
    if (m_ % rows_ != 0) last_ = product_of_rows(m_ % rows_, way);
    const std::size_t own = std::max(product_->workspace(), last_ ? last_->workspace() : 0);
    workspace_ = own;
    if (dtype_ == shape.out) return;
    sums_offset_ = (own + 255) / 256 * 256;
    workspace_ = *sums_offset_ + static_cast<std::size_t>(rows_ * shape_.n) * sizeof(float);
  }

  std::size_t workspace() const { return workspace_; }
  void operator()(const Launch& call) const {
    Operands o(op_, call);
    for (std::int64_t row = 0; row < m_; row += rows_) {
      run(std::min(rows_, m_ - row), o, call.workspace);
      o.advance(rows_, shape_, dtype_);
    }
  }

 private:
  gpu::ProductPtr product_of_rows(std::int64_t rows, std::size_t way) const {
    gpu::ProductShape shape = shape_;
    shape.m = rows;
    std::vector<gpu::ProductPtr> products = gpu_.blas->products(shape, way + 1);
    if (way >= products.size()) throw DeviceError("there is no way {} to compute it", way);
    return std::move(products[way]);
  }

  void run(std::int64_t rows, const Operands& o, void* workspace) const {
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

KernelPtr vendor_kernel(const Linear& op, GpuPrepare& prepare, bool joined, std::size_t way) {
  const auto whole =
      std::make_shared<ProductAndRest>(op, prepare, product_of(op, prepare, joined), way);
  prepare.workspace = whole->workspace();
  return make_kernel([whole](const Launch& call) { (*whole)(call); });
}

// How many of the library's ways there are that leave nothing to do. Of 16 bits and rows that do
// not begin at multiples of 16 bytes its kernels round the product before they add to it.
std::size_t joined_ways(const Linear& op, const GpuPrepare& prepare) {
  if (op.epilogue != Epilogue::none && op.epilogue != Epilogue::relu) return 0;
  const auto [m, n, k] = linear_extents(prepare.in);
  if (size_of(prepare.in[0].dtype) == 2 && (n % 8 != 0 || k % 8 != 0)) return 0;
  try {
    return prepare.gpu.blas->products(product_of(op, prepare, true), most_vendor_ways).size();
  } catch (const DeviceError&) {
    return 0;
  }
}

// The layer as a convolution of images of one pixel: of few rows, in which several blocks each sum
// a part of an inner dimension.
void add_ways_in_parts(const Linear& op, const GpuPrepare& prepare,
                       std::vector<gpu::KernelWay>& ways) {
  if (!Conv2d::takes(op.epilogue)) return;
  const auto [m, n, k] = linear_extents(prepare.in);
  const gpu::ConvProblem problem{.geometry = {.layout = ImageLayout::nhwc},
                                 .x = {m, k, 1, 1},
                                 .y = {m, n, 1, 1},
                                 .weight = {n, k, 1, 1},
                                 .dtype = prepare.in[0].dtype,
                                 .bias = op.bias,
                                 .residual = op.residual,
                                 .epilogue = op.epilogue};
  for (const gpu::ConvTiles& tiles : gpu::conv90_ways(prepare.gpu, problem)) {
    if (tiles.split == 1) continue;
    ways.push_back({gpu::to_string(tiles), [=](GpuPrepare& p) {
                      const std::shared_ptr<gpu::FusedConv> conv =
                          gpu::conv90(p.gpu, problem, tiles);
                      return make_kernel([=, &gpu = p.gpu](const Launch& call) {
                        const Operands o(op, call);
                        conv->run(gpu.stream, {o.x, o.weight, o.y, o.bias, o.residual}, nullptr);
                      });
                    }});
  }
}

// Of operands aligned to 16 bytes.
KernelPtr fastest_aligned(const Linear& op, GpuPrepare& prepare) {
  const auto [m, n, k] = linear_extents(prepare.in);
  const gpu::LinearProduct own{m, n, k, prepare.in[0].dtype, op.epilogue};
  std::vector<gpu::KernelWay> ways;
  if (linear_product90_supports(prepare.gpu, own))
    for (int way = 0; way < gpu::linear_product90_ways; ++way)
      ways.push_back({fmt::format("one kernel, tiles {}", way + 1), [=](GpuPrepare& p) {
                        return make_kernel([=, &gpu = p.gpu](const Launch& call) {
                          const Operands o(op, call);
                          linear_product90(gpu, own, way, o.x, o.weight, o.bias, o.residual, o.y);
                        });
                      }});
  const bool tunes = prepare.choice.tuner != nullptr;
  const std::size_t own_ways = ways.size();
  // The library cuts the sums of few results into parts; ours would leave most of the card idle.
  const bool is_small = 2 * ((m + 127) / 128) * ((n + 127) / 128) <= prepare.gpu.multiprocessors;
  std::size_t expected_best = 0;
  if (!ways.empty())
    expected_best = static_cast<std::size_t>(gpu::linear_product90_expected_best(prepare.gpu, own));
  if (tunes || ways.empty() || is_small) {
    const std::size_t vendors = joined_ways(op, prepare);
    if (is_small && vendors > 0) expected_best = own_ways;
    for (std::size_t way = 0; way < vendors; ++way)
      ways.push_back({fmt::format("{}, way {}", prepare.gpu.blas->version(), way + 1),
                      [=](GpuPrepare& p) { return vendor_kernel(op, p, true, way); }});
    ways.push_back(
        {"a product and the rest", [=](GpuPrepare& p) { return vendor_kernel(op, p, false, 0); }});
    add_ways_in_parts(op, prepare, ways);
  }
  if (!tunes) return ways[expected_best].prepare(prepare);
  const std::string work =
      fmt::format("{} {}[{} x {} x {}]{}{}{} {}", Linear::name, name_of(own.dtype), m, k, n,
                  op.bias ? " + bias" : "", op.residual ? " + residual" : "",
                  prepare.choice.tf32 ? " tf32" : "", name_of(op.epilogue));
  return fastest_kernel(prepare, fmt::format("{} {}", prepare.gpu.blas->version(), work), work,
                        ways);
}

// Of operands aligned to their elements only: slices may begin anywhere.
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
  KernelPtr aligned = fastest_aligned(*this, of_aligned);
  KernelPtr unaligned = unaligned_kernel(*this, of_unaligned);
  prepare.workspace = std::max(of_aligned.workspace, of_unaligned.workspace);
  return make_kernel([op = *this, aligned = std::move(aligned),
                      unaligned = std::move(unaligned)](const Launch& call) {
    (Operands(op, call).aligned() ? aligned : unaligned)->launch(call);
  });
}

}  // namespace ridge
