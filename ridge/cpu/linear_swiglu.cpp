#include "ridge/ops/linear_swiglu.h"

#include "ridge/cpu/prepare.h"
#include "ridge/device/linear_swiglu_parts.h"

namespace ridge {
namespace {

constexpr auto cpu_kernel = [](const auto& op, CpuPrepare& prepare) { return op.cpu(prepare); };

}  // namespace

KernelPtr LinearSwiGlu::cpu(CpuPrepare& prepare) const {
  return in_parts(*this, prepare, cpu_kernel);
}

KernelPtr LinearSwiGluGrad::cpu(CpuPrepare& prepare) const {
  return in_parts(*this, prepare, cpu_kernel);
}

}  // namespace ridge
