#include "ridge/device/activity.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace ridge {
namespace {

constexpr std::int64_t register_unit = 256, register_files = 4, shared_unit = 128;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

double theoretical_occupancy(const ProcessorLimits& limits, const Activity& kernel) {
  const std::int64_t threads =
      std::int64_t{kernel.block[0]} * kernel.block[1] * std::int64_t{kernel.block[2]};
  if (limits.count == 0 || limits.warps == 0 || threads == 0) return 0;
  const std::int64_t warps = ceil_div(threads, limits.warp_size);
  std::int64_t blocks = std::min<std::int64_t>(limits.blocks, limits.warps / warps);
  if (kernel.registers > 0) {
    const std::int64_t of_warp =
        ceil_div(std::int64_t{kernel.registers} * limits.warp_size, register_unit) * register_unit;
    const std::int64_t resident = limits.registers / register_files / of_warp * register_files;
    blocks = std::min(blocks, resident / warps);
  }
  const std::int64_t used =
      std::int64_t{kernel.static_shared} + kernel.dynamic_shared + limits.shared_memory_reserved;
  if (used > 0 && limits.shared_memory > 0)
    blocks = std::min(blocks, limits.shared_memory / (ceil_div(used, shared_unit) * shared_unit));
  return static_cast<double>(blocks * warps) / static_cast<double>(limits.warps);
}

}  // namespace ridge
