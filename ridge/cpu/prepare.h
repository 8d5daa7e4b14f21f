#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/base/shape.h"
#include "ridge/cpu/rotations.h"
#include "ridge/cpu/thread_pool.h"
#include "ridge/ops/kernel.h"

namespace ridge {

class Tuner;  // ops/tuner.h

// Who multiplies matrices.
enum class Products : std::uint8_t {
  vendor,  // oneDNN
  packed,  // we ourselves, by the plan that a model of costs likes best
  tuned,   // whichever the tuner finds faster; without a tuner the same as packed
};

// What an operator sees while it prepares its CPU kernel.
struct CpuPrepare {
  ThreadPool& pool;  // outlives the kernel
  Types in;          // valid only while preparing
  Types out;
  RotationTables& rotations;
  // Bytes that the kernel wants at Launch::workspace, aligned to 64 bytes; not kept between
  // launches.
  std::size_t workspace = 0;
  Products products = Products::vendor;
  Tuner* tuner = nullptr;  // null if nothing is to be timed
};

}  // namespace ridge
