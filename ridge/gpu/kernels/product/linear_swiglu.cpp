#include "ridge/ops/linear_swiglu.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ridge/device/linear_swiglu_parts.h"
#include "ridge/gpu/device/kernel_ways.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge {
namespace {

using gpu::GateProduct;

// In one kernel where the card and the operands allow it and that is not slower, else by the
// kernels of the parts. kernel_of(way) is the one kernel in one of its `most_ways` ways.
template <class Op, class KernelOf>
KernelPtr joined(const Op& op, GpuPrepare& prepare, const GateProduct& shape, int most_ways,
                 const KernelOf& kernel_of) {
  const auto parts = [&op](GpuPrepare& of_all) {
    return in_parts(op, of_all,
                    [](const auto& part, GpuPrepare& of_part) { return part.gpu(of_part); });
  };
  if (!gate_products90_support(prepare.gpu, shape)) return parts(prepare);
  std::vector<gpu::KernelWay> ways;
  for (int way = 0; way < most_ways; ++way)
    ways.push_back({way == 0 ? "one kernel" : fmt::format("one kernel, way {}", way + 1),
                    [=](GpuPrepare&) { return kernel_of(way); }});
  ways.push_back({"a product and a gate", parts});
  const std::string work = fmt::format("{} {}[{} x {} x {}] -> {}", Op::name, name_of(shape.dtype),
                                       shape.m, shape.k, shape.intermediate, prepare.out.size());
  return fastest_kernel(prepare, fmt::format("{} {}", prepare.gpu.blas->version(), work), work,
                        ways);
}

}  // namespace

KernelPtr LinearSwiGlu::gpu(GpuPrepare& prepare) const {
  const GateProduct shape{.m = prepare.in[0].shape[0],
                          .intermediate = prepare.out[1].shape[1],
                          .k = prepare.in[0].shape[1],
                          .dtype = prepare.in[0].dtype};
  return joined(*this, prepare, shape, 1, [&, &gpu = prepare.gpu](int) {
    return make_kernel([=, &gpu](const Launch& call) {
      swiglu_product90(gpu, shape, call.inputs[0], call.inputs[1], call.outputs[0],
                       call.outputs[1]);
    });
  });
}

KernelPtr LinearSwiGluGrad::gpu(GpuPrepare& prepare) const {
  const GateProduct shape{.m = prepare.in[0].shape[0],
                          .intermediate = prepare.in[1].shape[1],
                          .k = prepare.in[0].shape[1],
                          .dtype = prepare.in[0].dtype};
  const auto kernel_of = [&, &gpu = prepare.gpu](int way) {
    return make_kernel([=, &gpu, with_result = result](const Launch& call) {
      swiglu_grad_product90(gpu, shape, way, call.inputs[0], call.inputs[1], call.inputs[2],
                            call.outputs[0], with_result ? call.outputs[1] : nullptr);
    });
  };
  return joined(*this, prepare, shape, gpu::swiglu_grad_product90_ways, kernel_of);
}

}  // namespace ridge
