#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "ridge/base/error.h"
#include "ridge/cpu/kernels.h"

namespace ridge {

// The copies of the kernels that there may be; RIDGE_CPU_COPIES lists the addresses of those that
// this build has.
extern "C" {
extern const CpuKernels ridge_cpu_native, ridge_cpu_baseline, ridge_cpu_avx2, ridge_cpu_avx512,
    ridge_cpu_avx512_bf16;
}

std::string_view name_of(Instructions instructions) {
  switch (instructions) {
    case Instructions::baseline:
      return "baseline";
    case Instructions::avx2:
      return "avx2";
    case Instructions::avx512:
      return "avx512";
    case Instructions::avx512_bf16:
      return "avx512+bf16";
  }
  return "unknown";
}

Instructions processor_instructions() {
#if defined(__x86_64__)
  // What the copies are compiled with: see CMakeLists.txt.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
    return Instructions::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return Instructions::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Instructions::avx512_bf16 : Instructions::avx512;
#else
  return Instructions::baseline;
#endif
}

std::span<const CpuKernels* const> compiled_kernels() {
  static constexpr const CpuKernels* all[] = {RIDGE_CPU_COPIES};
  return all;
}

const CpuKernels& choose_kernels(std::span<const CpuKernels* const> kernels, Instructions processor,
                                 std::string_view wanted) {
  const CpuKernels* chosen = nullptr;
  std::string names;
  for (const CpuKernels* one : kernels) {
    const std::string_view name = name_of(one->instructions);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    if (wanted.empty() ? !chosen || one->instructions <= processor : name == wanted) chosen = one;
  }
  if (!chosen)
    throw UsageError("RIDGE_CPU_INSTRUCTIONS={}: the CPU kernels of this program are for {}",
                     wanted, names);
  if (chosen->instructions <= processor) return *chosen;
  if (!wanted.empty())
    throw DeviceError("RIDGE_CPU_INSTRUCTIONS={}: this processor lacks {}", wanted, wanted);
  throw DeviceError("the CPU kernels of this program need {}, which this processor lacks: {}",
                    name_of(chosen->instructions),
                    chosen->instructions > Instructions::avx2
                        ? "build Ridge on this machine, or anywhere with -DRIDGE_CPU=portable"
                        : "build Ridge on this machine");
}

const CpuKernels& cpu_kernels() {
  static const CpuKernels& chosen = []() -> const CpuKernels& {
    const char* wanted = std::getenv("RIDGE_CPU_INSTRUCTIONS");
    return choose_kernels(compiled_kernels(), processor_instructions(), wanted ? wanted : "");
  }();
  return chosen;
}

}  // namespace ridge
