#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/base/shape.h"
#include "ridge/base/thread_pool.h"
#include "ridge/cpu/rotations.h"
#include "ridge/device/communicator.h"
#include "ridge/device/kernel.h"
#include "ridge/device/tuner.h"

namespace ridge {

// What an operator sees while it prepares its CPU kernel.
struct CpuPrepare {
  ThreadPool& pool;  // outlives the kernel
  Types in;          // valid only while preparing
  Types out;
  RotationTables& rotations;
  // Bytes that the kernel wants at Launch::workspace, aligned to 64 bytes; not kept between
  // launches.
  std::size_t workspace = 0;
  KernelChoice choice = {};
  Communicator* communicator = nullptr;  // outlives the kernel; null if there is one rank alone
};

}  // namespace ridge
