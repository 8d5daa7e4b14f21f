#include "ridge/ops/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/device/tuner.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/trial.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/ops/scaled_matmul.h"

namespace ridge {
namespace {

constexpr std::size_t most_candidates = 12;
// The floating-point operations of a product that leaves room for others on any card.
constexpr std::int64_t most_beside = 8'000'000'000;

bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// The way to compute `shape` that the tuner finds fastest.
gpu::ProductPtr tuned_product(const gpu::Context& gpu, const gpu::ProductShape& shape, Tuner& tuner,
                              bool in_pieces) {
  std::vector<gpu::ProductPtr> ways = gpu.blas->products(shape, most_candidates);
  if (gpu::ProductPtr own = gpu::product90(gpu, shape)) ways.push_back(std::move(own));
  const std::size_t usual_ways = ways.size();
  if (in_pieces)
    if (gpu::ProductPtr pieces = gpu::piece_product90(gpu, shape))
      ways.push_back(std::move(pieces));
  std::size_t workspace = 0;
  for (const auto& way : ways) workspace = std::max(workspace, way->workspace());
  std::optional<gpu::Trial> trial;  // made if there is anything to time
  // The gradient of a weight runs beside what the next gradients wait for: it should take little of
  // the card rather than little time. Such is the only use of this form.
  const auto runs = shape.trans_a && 2 * shape.batch * shape.m * shape.n * shape.k < most_beside
                        ? gpu::Trial::Runs::at_once
                        : gpu::Trial::Runs::in_turn;
  const bool has_pieces = ways.size() > usual_ways;
  const std::string key = fmt::format("{} product {}{}{}", gpu.blas->version(), to_string(shape),
                                      runs == gpu::Trial::Runs::at_once ? " beside others" : "",
                                      has_pieces ? " or in pieces" : "");
  const std::size_t choice = tuner.choose(key, ways.size(), [&](std::size_t i) {
    if (!trial)
      trial.emplace(
          gpu,
          std::vector{gpu::bytes_of(shape.in, shape.batch * shape.m * shape.k),
                      gpu::bytes_of(shape.in_b.value_or(shape.in), shape.batch * shape.k * shape.n),
                      gpu::bytes_of(shape.out, shape.batch * shape.m * shape.n), workspace,
                      sizeof(float), sizeof(float)},
          runs);
    trial->run(i, [&](const gpu::Trial::Operands& o) {
      gpu::OperandScales scales;
      if (shape.scaled) scales = {static_cast<const float*>(o[4]), static_cast<const float*>(o[5])};
      ways[i]->run(gpu.stream, o[0], o[1], o[2], o[3], scales);
    });
  });
  if (has_pieces)
    tuner.tell(fmt::format("product {}", to_string(shape)),
               choice < usual_ways ? gpu.blas->version() : "three bf16 pieces of each operand");
  return std::move(ways[choice]);
}

// Of ways that are rarely taken: memory is set aside for them at every launch, and memory that is
// used again makes kernels wait for each other.
gpu::ProductPtr least_workspace(std::vector<gpu::ProductPtr> ways) {
  return std::move(*std::ranges::min_element(ways, {}, &gpu::Product::workspace));
}

// The way that the tuner finds fastest, or the library believes to be.
gpu::ProductPtr best_product(const GpuPrepare& prepare, const gpu::ProductShape& shape) {
  const KernelChoice& choice = prepare.choice;
  if (choice.products == Products::tuned && choice.tuner)
    return tuned_product(prepare.gpu, shape, *choice.tuner, choice.in_pieces && !choice.tf32);
  return std::move(prepare.gpu.blas->products(shape, 1).front());
}

}  // namespace

KernelPtr MatMul::gpu(GpuPrepare& prepare) const {
  const Shape &a = prepare.in[0].shape, &c = prepare.out[0].shape;
  gpu::ProductShape shape{.batch = c.rows(2),
                          .m = c[-2],
                          .n = c[-1],
                          .k = trans_a ? a[-2] : a[-1],
                          .trans_a = trans_a,
                          .trans_b = trans_b,
                          .in = prepare.in[0].dtype,
                          .out = prepare.out[0].dtype,
                          .accumulate = prepare.in.size() == 3,
                          .tf32 = prepare.choice.tf32};
  gpu::ProductPtr product = best_product(prepare, shape);
  // For slices, which may begin anywhere.
  shape.alignment = static_cast<std::uint32_t>(std::min(size_of(shape.in), size_of(shape.out)));
  gpu::ProductPtr unaligned = least_workspace(prepare.gpu.blas->products(shape, most_candidates));
  prepare.workspace = std::max(product->workspace(), unaligned->workspace());
  return make_kernel([&gpu = prepare.gpu, product = std::move(product),
                      unaligned = std::move(unaligned)](const Launch& call) {
    const void *lhs = call.inputs[0], *rhs = call.inputs[1];
    void* result = call.outputs[0];
    const bool aligned = is_aligned(lhs) && is_aligned(rhs) && is_aligned(result);
    (aligned ? product : unaligned)->run(gpu.stream, lhs, rhs, result, call.workspace);
  });
}

KernelPtr ScaledMatMul::gpu(GpuPrepare& prepare) const {
  const Shape &a = prepare.in[0].shape, &c = prepare.out[0].shape;
  const gpu::ProductShape shape{.batch = c.rows(2),
                                .m = c[-2],
                                .n = c[-1],
                                .k = trans_a ? a[-2] : a[-1],
                                .trans_a = trans_a,
                                .trans_b = trans_b,
                                .in = prepare.in[0].dtype,
                                .out = prepare.out[0].dtype,
                                .accumulate = prepare.in.size() > 4,
                                .in_b = prepare.in[1].dtype,
                                .scaled = true,
                                .fast_accumulation = fast_accumulation};
  if (is_float8(shape.in))
    for (const std::int64_t extent : {shape.m, shape.n, shape.k})
      if (extent % extent_multiple != 0)
        throw DeviceError(
            "the GPU multiplies no 8-bit operands of which an extent is {}: {} x {} x {}", extent,
            shape.m, shape.k, shape.n);
  gpu::ProductPtr product = best_product(prepare, shape);
  prepare.workspace = product->workspace();
  return make_kernel([&gpu = prepare.gpu, product = std::move(product)](const Launch& call) {
    product->run(gpu.stream, call.inputs[0], call.inputs[1], call.outputs[0], call.workspace,
                 {call.in<float>(2), call.in<float>(3)});
  });
}

}  // namespace ridge
