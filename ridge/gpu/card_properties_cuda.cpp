#include "ridge/gpu/card_properties.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/target.h"
#include "ridge/gpu/vendor/nvml.h"

namespace ridge::gpu {
namespace {

DeviceInfo info_of(int index, const cudaDeviceProp& properties, const Card& card) {
  std::array<char, 32> bus_id{};
  check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index),
        "asking for the GPU's place");
  return {
      .name = "cuda",
      .hardware = properties.name,
      .description =
          fmt::format("{}, {} multiprocessors, {}", properties.name, properties.multiProcessorCount,
                      format_bytes(properties.totalGlobalMem)),
      .total_memory = properties.totalGlobalMem,
      .cache_bytes = static_cast<std::size_t>(properties.l2CacheSize),
      .limits = {.count = properties.multiProcessorCount,
                 .warp_size = properties.warpSize,
                 .warps = properties.maxThreadsPerMultiProcessor / properties.warpSize,
                 .blocks = properties.maxBlocksPerMultiProcessor,
                 .registers = properties.regsPerMultiprocessor,
                 .shared_memory = static_cast<int>(properties.sharedMemPerMultiprocessor),
                 .shared_memory_reserved = static_cast<int>(properties.reservedSharedMemPerBlock)},
      .bus_id = bus_id.data(),
      .target = target_of(card, properties.name)};
}

}  // namespace

CardProperties properties_of(int index) {
  cudaDeviceProp properties{};
  check(cudaSetDevice(index), "choosing the GPU");
  check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  const Card card{.compute_capability = properties.major * 10 + properties.minor,
                  .multiprocessors = properties.multiProcessorCount,
                  .shared_per_block = properties.sharedMemPerBlockOptin,
                  .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize)};
  CardProperties found{.card = card, .info = info_of(index, properties, card)};
  std::memcpy(found.id.data(), properties.uuid.bytes, sizeof properties.uuid.bytes);
  return found;
}

std::string driver_text() {
  try {
    return "driver " + Nvml().driver_version();
  } catch (const DeviceError&) {  // where only the runtime of CUDA was brought along
    int version = 0;
    check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    return fmt::format("driver of CUDA {}.{}", version / 1000, version % 1000 / 10);
  }
}

}  // namespace ridge::gpu
