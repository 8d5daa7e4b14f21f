#include "ridge/ops/activation.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using Kind = ActivationKind;

// Calls f(function of x, function of dy and x).
template <class F>
KernelPtr with_activation(Kind kind, const F& f) {
  switch (kind) {
    case Kind::relu6:
      return f(gpu::Relu6Of{}, gpu::Relu6GradOf{});
    case Kind::sigmoid:
      return f(gpu::SigmoidOf{}, gpu::SigmoidGradOf{});
    case Kind::hard_sigmoid:
      return f(gpu::HardSigmoidOf{}, gpu::HardSigmoidGradOf{});
    case Kind::hard_swish:
      return f(gpu::HardSwishOf{}, gpu::HardSwishGradOf{});
    case Kind::gelu:
      return f(gpu::GeluOf{}, gpu::GeluGradOf{});
    case Kind::exp:
      return f(gpu::ExpOf{}, gpu::ExpGradOf{});
    case Kind::sqrt:
      return f(gpu::SqrtOf{}, gpu::SqrtGradOf{});
    case Kind::exp_capped:
      return f(gpu::ExpCappedOf{}, gpu::ExpCappedGradOf{});
    default:
      return f(gpu::TanhOf{}, gpu::TanhGradOf{});
  }
}

}  // namespace

KernelPtr Activation::gpu(GpuPrepare& prepare) const {
  return with_activation(kind, [&](auto f, auto) { return gpu::map_elements(prepare, f); });
}

KernelPtr ActivationGrad::gpu(GpuPrepare& prepare) const {
  return with_activation(kind, [&](auto, auto f) { return gpu::map_pairs(prepare, f); });
}

}  // namespace ridge
