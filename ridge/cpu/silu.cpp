#include "ridge/ops/silu.h"

#include "ridge/cpu/activation.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr Silu::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return map_elements<T, T>(prepare, [](float x) { return x * sigmoid(x); });
  });
}

KernelPtr SiluGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return map_pairs<T>(prepare, [](float dy, float x) { return silu_grad(dy, x); });
  });
}

}  // namespace ridge
