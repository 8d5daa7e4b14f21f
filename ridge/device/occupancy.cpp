#include "ridge/device/occupancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ridge/base/ceil_div.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

constexpr std::int64_t register_unit = 256, register_files = 4, shared_unit = 128;

std::int64_t product(const std::array<std::uint32_t, 3>& sizes) {
  return std::int64_t{sizes[0]} * sizes[1] * sizes[2];
}

std::int64_t registers_of_warp(const ProcessorLimits& limits, const Activity& kernel) {
  return ceil_div(std::int64_t{kernel.registers} * limits.warp_size, register_unit) * register_unit;
}

// Warps whose registers fit into the files, each of which has a quarter of them.
std::int64_t warps_by_registers(const ProcessorLimits& limits, const Activity& kernel) {
  return limits.registers / register_files / registers_of_warp(limits, kernel) * register_files;
}

std::int64_t shared_of_block(const ProcessorLimits& limits, const Activity& kernel) {
  const std::int64_t used =
      std::int64_t{kernel.static_shared} + kernel.dynamic_shared + limits.shared_memory_reserved;
  return ceil_div(used, shared_unit) * shared_unit;
}

}  // namespace

std::string_view name_of(OccupancyLimit limit) {
  constexpr std::string_view names[] = {"-",         "block size",    "blocks",
                                        "registers", "shared memory", "grid"};
  return names[static_cast<std::size_t>(limit)];
}

Occupancy occupancy_of(const ProcessorLimits& limits, const Activity& kernel) {
  Occupancy result;
  const std::int64_t threads = product(kernel.block);
  if (limits.count == 0 || limits.warps == 0 || threads == 0) return result;
  result.warps = ceil_div(threads, limits.warp_size);
  result.by_threads = limits.warps / result.warps;
  result.by_blocks = limits.blocks;
  if (kernel.registers > 0) result.by_registers = warps_by_registers(limits, kernel) / result.warps;
  if (shared_of_block(limits, kernel) > 0 && limits.shared_memory > 0)
    result.by_shared_memory = limits.shared_memory / shared_of_block(limits, kernel);
  // The first of equal ones counts: what the kernel cannot change without another block comes
  // first.
  result.blocks = result.by_threads;
  result.limit = OccupancyLimit::threads;
  for (const auto& [bound, limit] :
       {std::pair{result.by_blocks, OccupancyLimit::blocks},
        std::pair{result.by_registers, OccupancyLimit::registers},
        std::pair{result.by_shared_memory, OccupancyLimit::shared_memory}}) {
    if (bound == Occupancy::unbounded || bound >= result.blocks) continue;
    result.blocks = bound;
    result.limit = limit;
  }
  result.part =
      static_cast<double>(result.blocks * result.warps) / static_cast<double>(limits.warps);
  if (result.blocks > 0)
    result.waves = static_cast<double>(product(kernel.grid)) /
                   static_cast<double>(result.blocks * limits.count);
  if (result.blocks > 0 && result.waves < 1) result.limit = OccupancyLimit::grid;
  return result;
}

std::string explanation_of(const Occupancy& occupancy, const ProcessorLimits& limits,
                           const Activity& kernel) {
  const std::string blocks = counted(occupancy.blocks, "block");
  switch (occupancy.limit) {
    case OccupancyLimit::none:
      return "";
    case OccupancyLimit::threads:
      return fmt::format("a block of {} threads is {}: {} fit into {} warps",
                         format_count(product(kernel.block)), counted(occupancy.warps, "warp"),
                         occupancy.blocks, limits.warps);
    case OccupancyLimit::blocks:
      return fmt::format("a multiprocessor holds {} at most, of {} each", blocks,
                         counted(occupancy.warps, "warp"));
    case OccupancyLimit::registers:
      return fmt::format("{} registers a thread are {} a warp: {} fit into {}, which is {} of {}",
                         kernel.registers, format_count(registers_of_warp(limits, kernel)),
                         counted(warps_by_registers(limits, kernel), "warp"),
                         format_count(limits.registers), blocks, occupancy.warps);
    case OccupancyLimit::shared_memory:
      return fmt::format("{} of shared memory a block, {} of it the system's: {} fit into {}",
                         format_bytes(static_cast<std::uint64_t>(shared_of_block(limits, kernel))),
                         format_bytes(static_cast<std::uint64_t>(limits.shared_memory_reserved)),
                         occupancy.blocks,
                         format_bytes(static_cast<std::uint64_t>(limits.shared_memory)));
    case OccupancyLimit::grid:
      return fmt::format("the grid has {}, and {} multiprocessors hold {} at a time",
                         counted(product(kernel.grid), "block"), limits.count,
                         format_count(occupancy.blocks * limits.count));
  }
  return "";
}

}  // namespace ridge
