#include "ridge/ops/linear_swiglu.h"

#include <fmt/format.h>

#include <string>

#include "ridge/device/linear_swiglu_parts.h"
#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge {
namespace {

using gpu::Candidate;
using gpu::Card;
using gpu::GateProduct;
using gpu::GradBuffers;

// What candidates are asked about LinearSwiGlu or its gradient.
template <class Op>
struct GateWork {
  const gpu::Context& gpu;
  const Op& op;
  GateProduct shape;
  std::size_t results;

  std::string key() const { return fmt::format("{} {} in f32 sums", gpu.blas->version(), work()); }
  std::string work() const {
    return fmt::format("{} {}[{} x {} x {}] -> {}", Op::name, name_of(shape.dtype), shape.m,
                       shape.k, shape.intermediate, results);
  }
};
using ForwardWork = GateWork<LinearSwiGlu>;
using GradWork = GateWork<LinearSwiGluGrad>;

template <class Op>
bool supports_gate(const GateWork<Op>& w) {
  return gate_products_sm90_support(w.gpu, w.shape);
}

// A product, and the gate in a kernel behind it.
template <class Op>
constexpr Candidate<GateWork<Op>> two_kernels{
    .name = [](const GateWork<Op>&) -> std::string { return "a product and a gate"; },
    .supports = [](const GateWork<Op>&) { return true; },
    .expectation = [](const GateWork<Op>&, const Card&) { return 0; },
    .prepare =
        [](const GateWork<Op>& w, GpuPrepare& prepare) {
          return in_parts(w.op, prepare,
                          [](const auto& part, GpuPrepare& p) { return part.gpu(p); });
        }};

constexpr Candidate<ForwardWork> one_kernel{
    .name = [](const ForwardWork&) -> std::string { return "one kernel"; },
    .supports = supports_gate,
    .expectation = [](const ForwardWork&, const Card&) { return 1; },
    .prepare =
        [](const ForwardWork& w, GpuPrepare&) {
          return make_kernel([&gpu = w.gpu, shape = w.shape](const Launch& call) {
            swiglu_product_sm90(gpu, shape, call.inputs[0], call.inputs[1], call.outputs[0],
                                call.outputs[1]);
          });
        }};

template <GradBuffers buffers>
constexpr Candidate<GradWork> one_grad_kernel{
    .name = [](const GradWork&) -> std::string {
      return buffers == GradBuffers::more_ahead ? "one kernel" : "one kernel with more stages";
    },
    .supports = supports_gate,
    .expectation = [](const GradWork&,
                      const Card&) { return buffers == GradBuffers::more_ahead ? 2 : 1; },
    .prepare =
        [](const GradWork& w, GpuPrepare&) {
          return make_kernel(
              [&gpu = w.gpu, shape = w.shape, with_result = w.op.result](const Launch& call) {
                swiglu_grad_product_sm90(gpu, shape, buffers, call.inputs[0], call.inputs[1],
                                         call.inputs[2], call.outputs[0],
                                         with_result ? call.outputs[1] : nullptr);
              });
        }};

constexpr Candidate<ForwardWork> candidates[] = {one_kernel, two_kernels<LinearSwiGlu>};
constexpr Candidate<GradWork> grad_candidates[] = {one_grad_kernel<GradBuffers::more_ahead>,
                                                   one_grad_kernel<GradBuffers::more_stages>,
                                                   two_kernels<LinearSwiGluGrad>};

template <class Op>
GateWork<Op> work_of(const Op& op, const GpuPrepare& prepare, std::int64_t intermediate) {
  const TensorType& rows = prepare.in[0];
  return {prepare.gpu,
          op,
          {rows.shape[0], intermediate, rows.shape[1], rows.dtype},
          prepare.out.size()};
}

}  // namespace

KernelPtr LinearSwiGlu::gpu(GpuPrepare& prepare) const {
  return gpu::best_kernel<ForwardWork>(prepare, work_of(*this, prepare, prepare.out[1].shape[1]),
                                       candidates);
}

KernelPtr LinearSwiGluGrad::gpu(GpuPrepare& prepare) const {
  return gpu::best_kernel<GradWork>(prepare, work_of(*this, prepare, prepare.in[1].shape[1]),
                                    grad_candidates);
}

}  // namespace ridge
