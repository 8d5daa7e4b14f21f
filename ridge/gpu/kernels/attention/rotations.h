#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/memory.h"

namespace ridge::gpu {

// The rotary embedding's angles s * theta^(-i / pairs), as cos and sin side by side in f32:
// [positions, pairs, 2].
struct Rotations {
  float theta;
  std::int64_t pairs, positions;
  DeviceMemory table;
};

// The tables of one card: all kernels of the same angles share one, as long as one of them lives.
class RotationTables {
 public:
  // Enqueues the filling of a new table.
  std::shared_ptr<const Rotations> get(const Context& gpu, float theta, std::int64_t pairs,
                                       std::int64_t positions);

 private:
  std::vector<std::weak_ptr<const Rotations>> tables_;
};

}  // namespace ridge::gpu
