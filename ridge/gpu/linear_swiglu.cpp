#include "ridge/ops/linear_swiglu.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "ridge/gpu/blas.h"
#include "ridge/gpu/prepare.h"
#include "ridge/gpu/products90.h"
#include "ridge/gpu/trial.h"
#include "ridge/ops/linear_swiglu_parts.h"

namespace ridge {
namespace {

using gpu::GateProduct;

// Which of the kernels the tuner finds fastest on operands like these; the first if nothing is to
// be timed.
std::size_t fastest(const GpuPrepare& prepare, const std::string& key,
                    const std::vector<KernelPtr>& kernels) {
  Tuner* const tuner = prepare.choice.tuner;
  if (prepare.choice.products != Products::tuned || !tuner) return 0;
  std::vector<std::size_t> bytes;
  for (const Types types : {prepare.in, prepare.out})
    for (const TensorType& type : types) bytes.push_back(gpu::bytes_of(type.dtype, type.numel()));
  bytes.push_back(prepare.workspace);
  std::optional<gpu::Trial> trial;  // made if there is anything to time
  return tuner->choose(key, kernels.size(), [&](std::size_t i) {
    if (!trial) trial.emplace(prepare.gpu, bytes);
    trial->run([&](const gpu::Trial::Operands& operands) {
      const std::vector<const void*> in(operands.begin(), operands.end());
      const std::span<void* const> rest = std::span(operands).subspan(prepare.in.size());
      kernels[i]->launch({std::span(in).first(prepare.in.size()), rest.first(prepare.out.size()),
                          operands.back()});
    });
  });
}

// In one kernel where the card and the operands allow it and that is not slower, else by the
// kernels of the parts. kernel_of(way) is the one kernel in one of its
// `most_ways` ways.
template <class Op, class KernelOf>
KernelPtr joined(const Op& op, GpuPrepare& prepare, const GateProduct& shape, int most_ways,
                 const KernelOf& kernel_of) {
  std::vector<KernelPtr> kernels;
  if (prepare.in[0].dtype == DType::bf16 && gate_products90_support(prepare.gpu, shape))
    for (int way = 0; way < most_ways; ++way) kernels.push_back(kernel_of(way));
  const std::size_t ways = kernels.size();
  kernels.push_back(in_parts(
      op, prepare, [](const auto& part, GpuPrepare& of_part) { return part.gpu(of_part); }));
  if (ways == 0) return std::move(kernels[0]);
  const std::string key =
      fmt::format("{} {}[{} x {} x {}] -> {}", prepare.gpu.blas->version(), Op::name, shape.m,
                  shape.k, shape.intermediate, prepare.out.size());
  const std::size_t choice = fastest(prepare, key, kernels);
  if (choice < ways) prepare.workspace = 0;
  return std::move(kernels[choice]);
}

}  // namespace

KernelPtr LinearSwiGlu::gpu(GpuPrepare& prepare) const {
  const GateProduct shape{.m = prepare.in[0].shape[0],
                          .intermediate = prepare.out[1].shape[1],
                          .k = prepare.in[0].shape[1]};
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
                          .k = prepare.in[0].shape[1]};
  const auto kernel_of = [&, &gpu = prepare.gpu](int way) {
    return make_kernel([=, &gpu, with_result = result](const Launch& call) {
      swiglu_grad_product90(gpu, shape, way, call.inputs[0], call.inputs[1], call.inputs[2],
                            call.outputs[0], with_result ? call.outputs[1] : nullptr);
    });
  };
  return joined(*this, prepare, shape, gpu::swiglu_grad_product90_ways, kernel_of);
}

}  // namespace ridge
