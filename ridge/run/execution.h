#pragma once

#include "ridge/device/tuner.h"
#include "ridge/passes/schedules.h"

namespace ridge {

// How values find memory and kernels their operands.
struct Execution {
  // All values and workspaces have their places in one arena from the start (plan/arena.h), and
  // what each kernel is launched with is put together once: without observers a phase is a loop
  // over launches. Otherwise memory is taken from a caching allocator as values are born, and
  // returned as they die.
  bool planned = false;
  // A planned graph is launched as one captured graph, where the device can capture.
  bool captured = false;
  // In a captured graph, independent kernels may run at the same time.
  bool concurrent = false;
  KernelChoice kernels = {};
};

// How a schedule wants its graph executed, but for the tuner, which is set by who has it.
Execution execution_of(const Schedule& schedule);

}  // namespace ridge
