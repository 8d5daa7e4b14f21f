#include "ridge/gpu/kernels/attention/rotations.h"

#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {
namespace {

// In double and then rounded, because a float angle of thousands of radians would be off by as much
// as 1e-4.
__global__ void fill_rotations_kernel(double theta, std::int64_t pairs, std::int64_t n,
                                      float2* table) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double frequency = pow(theta, -static_cast<double>(i % pairs) / static_cast<double>(pairs));
  const double angle = static_cast<double>(i / pairs) * frequency;
  table[i] = make_float2(static_cast<float>(cos(angle)), static_cast<float>(sin(angle)));
}

}  // namespace

std::shared_ptr<const Rotations> RotationTables::get(const Context& gpu, float theta,
                                                     std::int64_t pairs, std::int64_t positions) {
  std::erase_if(tables_, [](const auto& entry) { return entry.expired(); });
  for (const auto& entry : tables_) {
    auto known = entry.lock();
    if (known->theta == theta && known->pairs == pairs && known->positions == positions)
      return known;
  }
  constexpr int threads = 256;
  const std::int64_t n = pairs * positions;
  const std::shared_ptr<const Rotations> made(new Rotations{
      theta, pairs, positions, DeviceMemory(static_cast<std::size_t>(n) * sizeof(float2))});
  launch(gpu, fill_rotations_kernel, dim3(blocks_for(n, threads)), dim3(threads), 0,
         static_cast<double>(theta), pairs, n, made->table.data<float2>());
  tables_.push_back(made);
  return made;
}

std::shared_ptr<RotationTables> make_rotation_tables() {
  return std::make_shared<RotationTables>();
}

}  // namespace ridge::gpu
