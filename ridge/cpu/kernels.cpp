// The entry points of the kernels, compiled with each copy of them under the name
// RIDGE_CPU_KERNELS.

#include "ridge/cpu/kernels.h"

#include "ridge/ops/op.h"

namespace ridge {
namespace {

KernelPtr prepare_kernel(const Op& op, CpuPrepare& prepare) {
  return std::visit([&](const auto& o) { return o.cpu(prepare); }, op.variant());
}

// As wide as any register; the compiler splits it where registers are narrower.
typedef float Wide __attribute__((vector_size(64), may_alias));
constexpr std::size_t lanes = 16;

void read(const Wide* a, std::size_t vectors) {
  Wide sums[8] = {};
  for (std::size_t i = 0; i < vectors; i += 8)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) sums[j] += a[i + j];
  Wide sum = sums[0];
  for (std::size_t j = 1; j < 8; ++j) sum += sums[j];
  asm volatile("" : "+m"(sum));
}

void copy(const Wide* a, Wide* b, std::size_t vectors) {
  for (std::size_t i = 0; i < vectors; i += 8)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) b[i + j] = a[i + j];
}

void triad(const Wide* a, const Wide* b, Wide* c, std::size_t vectors) {
  for (std::size_t i = 0; i < vectors; i += 8)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) c[i + j] = a[i + j] + 0.5f * b[i + j];
}

void sweep(AccessPattern access, float* a, std::size_t distance, std::size_t floats) {
  const auto array = [&](std::size_t i) { return reinterpret_cast<Wide*>(a + i * distance); };
  const std::size_t vectors = floats / lanes;
  switch (access) {
    case AccessPattern::read:
      return read(array(0), vectors);
    case AccessPattern::copy:
      return copy(array(0), array(1), vectors);
    case AccessPattern::triad:
      return triad(array(0), array(1), array(2), vectors);
  }
}

}  // namespace

extern "C" const CpuKernels RIDGE_CPU_KERNELS;
const CpuKernels RIDGE_CPU_KERNELS{compiled_instructions, prepare_kernel, sweep};

}  // namespace ridge
