#include "ridge/ops/unary.h"

#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr Scale::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return map_elements<T, T>(prepare, [f = factor](float x) { return f * x; });
  });
}

KernelPtr Cast::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class From>() {
    return dispatch_floating(prepare.out[0].dtype, [&]<class To>() {
      return map_elements<From, To>(prepare, [](float x) { return x; });
    });
  });
}

}  // namespace ridge
