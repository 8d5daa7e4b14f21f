// Which copy of the kernels a process runs.

#include "ridge/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

constexpr CpuKernels avx2{Instructions::avx2, nullptr, nullptr};
constexpr CpuKernels avx512{Instructions::avx512, nullptr, nullptr};
constexpr CpuKernels pairs{Instructions::avx512_bf16, nullptr, nullptr};
constexpr const CpuKernels* portable[] = {&avx2, &avx512, &pairs};
constexpr const CpuKernels* native[] = {&avx512};

const CpuKernels* chosen(std::span<const CpuKernels* const> kernels, Instructions processor,
                         std::string_view wanted = "") {
  return &choose_kernels(kernels, processor, wanted);
}

template <class Error>
std::string refusal(std::span<const CpuKernels* const> kernels, Instructions processor,
                    std::string_view wanted = "") {
  return message_of<Error>([&] { choose_kernels(kernels, processor, wanted); });
}

TEST(CpuKernels, AreTheBestThatTheProcessorRuns) {
  EXPECT_EQ(chosen(portable, Instructions::avx2), &avx2);
  EXPECT_EQ(chosen(portable, Instructions::avx512), &avx512);
  EXPECT_EQ(chosen(portable, Instructions::avx512_bf16), &pairs);
  EXPECT_EQ(chosen(native, Instructions::avx512_bf16), &avx512);
}

TEST(CpuKernels, AreThoseAskedFor) {
  EXPECT_EQ(chosen(portable, Instructions::avx512_bf16, "avx2"), &avx2);
  EXPECT_EQ(chosen(portable, Instructions::avx512_bf16, "avx512"), &avx512);
  EXPECT_EQ(chosen(portable, Instructions::avx512_bf16, "avx512+bf16"), &pairs);
}

TEST(CpuKernels, AreRefusedWithWhatToDo) {
  EXPECT_EQ(refusal<DeviceError>(native, Instructions::avx2),
            "the CPU kernels of this program need avx512, which this processor lacks: build Ridge "
            "on this machine, or anywhere with -DRIDGE_CPU=portable");
  EXPECT_EQ(refusal<DeviceError>(portable, Instructions::baseline),
            "the CPU kernels of this program need avx2, which this processor lacks: build Ridge "
            "on this machine");
  EXPECT_EQ(refusal<DeviceError>(portable, Instructions::avx2, "avx512"),
            "RIDGE_CPU_INSTRUCTIONS=avx512: this processor lacks avx512");
  EXPECT_EQ(refusal<UsageError>(portable, Instructions::avx2, "sse"),
            "RIDGE_CPU_INSTRUCTIONS=sse: the CPU kernels of this program are for avx2, avx512, "
            "avx512+bf16");
}

// This program is linked with one copy's objects and asks for that copy.
TEST(CpuKernels, AreThoseThisTestWasCompiledWith) {
  EXPECT_EQ(cpu_kernels().instructions, compiled_instructions);
  EXPECT_LE(compiled_instructions, processor_instructions());
  EXPECT_TRUE(std::ranges::is_sorted(compiled_kernels(), {}, &CpuKernels::instructions));
}

}  // namespace
}  // namespace ridge
