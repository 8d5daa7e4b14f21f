#include "ridge/ops/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/device/tuner.h"
#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/ops/scaled_matmul.h"

namespace ridge {
namespace {

constexpr std::size_t most_plans = 12;  // of the library's, that are timed

// What candidates are asked about a product.
class ProductWork {
 public:
  const gpu::Context& gpu;
  const gpu::ProductShape shape;
  std::shared_ptr<gpu::Product> own, split;  // null where there is none

  ProductWork(const gpu::Context& context, const gpu::ProductShape& product, bool tuned,
              bool may_split)
      : gpu(context), shape(product), most_(tuned ? most_plans : 1) {
    if (tuned) own = product_sm90(gpu, shape);
    if (tuned && may_split) split = split_product_sm90(gpu, shape);
  }

  // The library's plans, from the one that it expects to be the fastest; of them all, or the best
  // alone where nothing is timed.
  const std::vector<std::shared_ptr<gpu::Product>>& plans() const {
    if (plans_.empty())
      for (gpu::ProductPtr& plan : gpu.blas->products(shape, most_))
        plans_.push_back(std::move(plan));
    return plans_;
  }

  // The gradient of a weight runs beside what the next gradients wait for: if it is small, it
  // should take little of the card rather than little time. Such is the only use of this form.
  gpu::Trial::Runs runs() const {
    const bool beside = shape.trans_a && 2 * shape.batch * shape.m * shape.n * shape.k <
                                             gpu.card.crossovers().sharing_flops;
    return beside ? gpu::Trial::Runs::at_once : gpu::Trial::Runs::in_turn;
  }

  std::string key() const {
    return fmt::format("{} product {} in f32 sums{}{}", gpu.blas->version(), to_string(shape),
                       runs() == gpu::Trial::Runs::at_once ? " beside others" : "",
                       split ? " or in split bf16" : "");
  }
  // Users are told only where it may be multiplied otherwise than as it is.
  std::string work() const {
    return split ? fmt::format("product {}", to_string(shape)) : std::string();
  }

 private:
  std::size_t most_;
  mutable std::vector<std::shared_ptr<gpu::Product>> plans_;
};

KernelPtr kernel_of(const ProductWork& work, GpuPrepare& prepare,
                    const std::shared_ptr<gpu::Product>& product) {
  prepare.workspace = product->workspace();
  return make_kernel([&gpu = work.gpu, scaled = work.shape.scaled, product](const Launch& call) {
    gpu::OperandScales scales;
    if (scaled) scales = {call.in<float>(2), call.in<float>(3)};
    product->run(gpu.stream, call.inputs[0], call.inputs[1], call.outputs[0], call.workspace,
                 scales);
  });
}

using ProductCandidate = gpu::Candidate<ProductWork>;

template <std::size_t rank>
constexpr ProductCandidate plan{
    .name = [](const ProductWork& w) { return w.gpu.blas->version(); },
    .supports = [](const ProductWork& w) { return rank < w.plans().size(); },
    .expectation = [](const ProductWork&, const gpu::Card&) { return rank == 0 ? 2 : 1; },
    .prepare = [](const ProductWork& w,
                  GpuPrepare& p) { return kernel_of(w, p, w.plans()[rank]); }};

constexpr ProductCandidate own_product{
    .name = [](const ProductWork&) -> std::string { return "own kernels"; },
    .supports = [](const ProductWork& w) { return w.own != nullptr; },
    .expectation = [](const ProductWork&, const gpu::Card&) { return 0; },
    .prepare = [](const ProductWork& w, GpuPrepare& p) { return kernel_of(w, p, w.own); }};
constexpr ProductCandidate split_product{
    .name = [](const ProductWork&) -> std::string {
      return "split bf16, three components of each operand";
    },
    .supports = [](const ProductWork& w) { return w.split != nullptr; },
    .expectation = [](const ProductWork&, const gpu::Card&) { return 0; },
    .prepare = [](const ProductWork& w, GpuPrepare& p) { return kernel_of(w, p, w.split); }};

constexpr auto candidates = gpu::joined_rows(
    gpu::numbered_rows<ProductWork, most_plans>([]<std::size_t rank>() { return plan<rank>; }),
    std::array{own_product, split_product});

// The library's plan with the least workspace, for kernels that are rarely launched: workspace is
// allocated for every launch, and memory that is used again makes kernels wait for each other.
gpu::ProductPtr least_workspace(const gpu::Context& gpu, const gpu::ProductShape& shape) {
  std::vector<gpu::ProductPtr> plans = gpu.blas->products(shape, most_plans);
  return std::move(*std::ranges::min_element(plans, {}, &gpu::Product::workspace));
}

// The fastest candidate for the product, or the library's plan where products are not tuned.
KernelPtr best_product(GpuPrepare& prepare, const gpu::ProductShape& shape) {
  const KernelChoice& choice = prepare.choice;
  const bool tuned = choice.products == Products::tuned && choice.tuner != nullptr;
  const ProductWork work(prepare.gpu, shape, tuned, choice.split_bf16 && !choice.tf32);
  GpuPrepare product = prepare;
  if (!tuned) product.choice.tuner = nullptr;
  KernelPtr kernel = gpu::best_kernel<ProductWork>(product, work, candidates, work.runs());
  prepare.workspace = product.workspace;
  return kernel;
}

// The product of MatMul or ScaledMatMul.
template <class Op>
gpu::ProductShape shape_of(const Op& op, const GpuPrepare& prepare) {
  const Shape &a = prepare.in[0].shape, &c = prepare.out[0].shape;
  return {.batch = c.rows(2),
          .m = c[-2],
          .n = c[-1],
          .k = op.trans_a ? a[-2] : a[-1],
          .trans_a = op.trans_a,
          .trans_b = op.trans_b,
          .in = prepare.in[0].dtype,
          .out = prepare.out[0].dtype};
}

}  // namespace

KernelPtr MatMul::gpu(GpuPrepare& prepare) const {
  gpu::ProductShape shape = shape_of(*this, prepare);
  shape.accumulate = prepare.in.size() == 3;
  shape.tf32 = prepare.choice.tf32;
  KernelPtr product = best_product(prepare, shape);
  // For slices, which may begin anywhere.
  shape.alignment = static_cast<std::uint32_t>(std::min(size_of(shape.in), size_of(shape.out)));
  gpu::ProductPtr unaligned = least_workspace(prepare.gpu, shape);
  prepare.workspace = std::max(prepare.workspace, unaligned->workspace());
  return make_kernel([&gpu = prepare.gpu, product = std::move(product),
                      unaligned = std::move(unaligned)](const Launch& call) {
    const void *lhs = call.inputs[0], *rhs = call.inputs[1];
    void* result = call.outputs[0];
    if (gpu::is_aligned(lhs, 16) && gpu::is_aligned(rhs, 16) && gpu::is_aligned(result, 16))
      product->launch(call);
    else
      unaligned->run(gpu.stream, lhs, rhs, result, call.workspace);
  });
}

KernelPtr ScaledMatMul::gpu(GpuPrepare& prepare) const {
  const Operands at = operands(prepare.in.size());
  gpu::ProductShape shape = shape_of(*this, prepare);
  shape.accumulate = at.sum < at.count;
  shape.in_b = prepare.in[1].dtype;
  shape.scaled = true;
  shape.fast_accumulation = fast_accumulation;
  if (is_float8(shape.in))
    for (const std::int64_t extent : {shape.m, shape.n, shape.k})
      if (extent % extent_multiple != 0)
        throw DeviceError(
            "the GPU multiplies no 8-bit operands of which an extent is {}: {} x {} x {}", extent,
            shape.m, shape.k, shape.n);
  return best_product(prepare, shape);
}

}  // namespace ridge
