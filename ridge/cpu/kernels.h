#pragma once

// The kernels of ridge/cpu as the rest of the program sees them. A portable build has them once for
// each instruction set, as objects that share no function with each other or with other code; a
// native build has them once, for the machine that compiled them (CMakeLists.txt).

#include <cstddef>
#include <span>
#include <string_view>

#include "ridge/cpu/instructions.h"
#include "ridge/cpu/peaks.h"
#include "ridge/cpu/prepare.h"
#include "ridge/device/kernel.h"

namespace ridge {

struct Op;  // ops/op.h

// All entry points of the kernels for one instruction set.
struct CpuKernels {
  Instructions instructions;
  KernelPtr (*prepare)(const Op& op, CpuPrepare& prepare);
  // One pass of a loop that measures bandwidth: over so many floats, a multiple of 128, of the
  // arrays a, b and c that the pattern names, which begin `distance` floats apart, aligned to 64
  // bytes.
  void (*sweep)(AccessPattern access, float* a, std::size_t distance, std::size_t floats);
};

// The widest instruction set of this processor.
Instructions processor_instructions();

// The kernels that this program has, the least instructions first.
std::span<const CpuKernels* const> compiled_kernels();

// Chooses among kernels in that order for a processor with these instructions: the last that it can
// run, or those that `wanted` names if it is not empty. DeviceError if the processor lacks what
// they need, UsageError if none have that name.
const CpuKernels& choose_kernels(std::span<const CpuKernels* const> kernels, Instructions processor,
                                 std::string_view wanted);

// The kernels that this process runs, chosen once: those that the environment variable
// RIDGE_CPU_INSTRUCTIONS names, or the best for this processor. Throws what choose_kernels() does.
const CpuKernels& cpu_kernels();

}  // namespace ridge
