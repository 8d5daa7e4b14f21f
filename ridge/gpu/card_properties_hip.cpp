#include "ridge/gpu/card_properties.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/units.h"
#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/target.h"

namespace ridge::gpu {
namespace {

// "AMD Instinct MI210 (gfx90a)" of a card of AMD, whose architecture has features behind a colon;
// on NVIDIA's platform the name alone.
std::string name_of(const hipDeviceProp_t& properties) {
  std::string name = properties.name;
#if defined(__HIP_PLATFORM_AMD__)
  std::string architecture = properties.gcnArchName;
  architecture.resize(std::min(architecture.find(':'), architecture.size()));
  if (name.find(architecture) == std::string::npos) name += fmt::format(" ({})", architecture);
#endif
  return name;
}

// What a block of a kernel that asks for it is granted: on NVIDIA's platform more than HIP tells.
std::size_t shared_per_block([[maybe_unused]] int index, const hipDeviceProp_t& properties) {
#if defined(__HIP_PLATFORM_NVIDIA__)
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
        "asking for a block's shared memory");
  return std::max(properties.sharedMemPerBlock, static_cast<std::size_t>(bytes));
#else
  return properties.sharedMemPerBlock;
#endif
}

// The limits of a multiprocessor stay unknown: what is computed of them holds for NVIDIA's cards.
DeviceInfo info_of(int index, const hipDeviceProp_t& properties, const Card& card) {
  std::array<char, 32> bus_id{};
  check(hipDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index),
        "asking for the GPU's place");
  const std::string name = name_of(properties);
  return {
      .name = "hip",
      .hardware = name,
      .description = fmt::format("{}, {} multiprocessors, {}", name, properties.multiProcessorCount,
                                 format_bytes(properties.totalGlobalMem)),
      .total_memory = properties.totalGlobalMem,
      .cache_bytes = static_cast<std::size_t>(properties.l2CacheSize),
      .bus_id = bus_id.data(),
      .target = target_of(card, name, "hip")};
}

}  // namespace

CardProperties properties_of(int index) {
  hipDeviceProp_t properties{};
  check(hipSetDevice(index), "choosing the GPU");
  check(hipGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  // HIP's compute capability of an AMD card is none of NVIDIA's, so that it counts as none that
  // kernels are written for.
  const Card card{.compute_capability = 0,
                  .multiprocessors = properties.multiProcessorCount,
                  .shared_per_block = shared_per_block(index, properties),
                  .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize)};
  // Ranks are on one machine, since none are linked but through memory of the host.
  CardProperties found{.card = card, .info = info_of(index, properties, card)};
  const std::string& place = found.info.bus_id;
  std::ranges::copy_n(place.begin(), std::ssize(place), found.id.begin());
  return found;
}

std::string driver_text() {
  int version = 0;
  check(api::driver_get_version(&version), "asking for the driver's version");
#if defined(__HIP_PLATFORM_AMD__)
  return fmt::format("HIP {}.{}.{}", version / 10'000'000, version / 100'000 % 100,
                     version % 100'000);
#else
  return fmt::format("HIP on a driver of CUDA {}.{}", version / 1000, version % 1000 / 10);
#endif
}

}  // namespace ridge::gpu
