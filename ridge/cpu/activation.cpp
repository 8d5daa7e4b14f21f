#include "ridge/cpu/activation.h"

#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr Activation::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return with_activation(kind, [&](auto f) { return map_elements<T, T>(prepare, f); });
  });
}

KernelPtr ActivationGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return with_activation_derivative(kind, [&](auto f) {
      return map_pairs<T>(prepare, [f](float dy, float x) { return dy * f(x); });
    });
  });
}

}  // namespace ridge
