#include "ridge/ops/relu.h"

#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr Relu::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    // Written so that NaN stays NaN.
    return map_elements<T, T>(prepare, [](float x) { return x < 0.0f ? 0.0f : x; });
  });
}

KernelPtr ReluGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return map_pairs<T>(prepare, [](float dy, float y) { return y > 0.0f ? dy : 0.0f; });
  });
}

}  // namespace ridge
