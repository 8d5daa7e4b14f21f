#pragma once

#include <cstdint>
#include <string>

#include "ridge/device/activity.h"

namespace ridge {

// The resource of a multiprocessor that lets no more of a kernel's thread blocks onto it.
enum class OccupancyLimit : std::uint8_t {
  none,           // the limits are unknown, or the kernel has no threads
  threads,        // the warps that it holds at most, of blocks of this size
  blocks,         // the thread blocks that it holds at most
  registers,      // those of all threads
  shared_memory,  // that of all blocks
  grid            // there are not enough blocks to fill all multiprocessors
};
std::string_view name_of(OccupancyLimit limit);  // "registers", "shared memory", "block size"

// How many thread blocks of a kernel a multiprocessor can hold at a time, by each of its resources.
// Registers are handed out to warps in units of 256, from 4 files; shared memory in units of 128
// bytes (CUDA C++ programming guide, compute capabilities 7.0 and up).
struct Occupancy {
  static constexpr std::int64_t unbounded = -1;  // the kernel uses none of it

  std::int64_t warps = 0;  // of a block
  std::int64_t by_threads = 0, by_blocks = 0, by_registers = unbounded,
               by_shared_memory = unbounded;
  std::int64_t blocks = 0;  // the least of these
  double part = 0;          // of the warps that it holds of any kernel
  // The grid's blocks over those that all multiprocessors hold at a time.
  double waves = 0;
  OccupancyLimit limit = OccupancyLimit::none;
};
Occupancy occupancy_of(const ProcessorLimits& limits, const Activity& kernel);

// The arithmetic behind the limit: "168 registers a thread are 5,376 a warp: 12 warps fit into
// 65,536, which is 1 block of 8". Empty if there is no limit.
std::string explanation_of(const Occupancy& occupancy, const ProcessorLimits& limits,
                           const Activity& kernel);

}  // namespace ridge
