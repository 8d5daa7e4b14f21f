#pragma once

#include <cstdint>
#include <filesystem>

namespace ridge {

struct HostMemory {
  std::uint64_t total = 0, available = 0;  // bytes
};

// What this process may use of the system's memory: MemTotal and MemAvailable of /proc/meminfo,
// within the limits of the control groups that it is in, as containers have them (memory.max of
// version 2, memory.limit_in_bytes of version 1, of each group up to the root). Pages of files that
// a group could drop count as available. A system without /proc is asked by sysinfo(2).
// `root` is where /proc and /sys/fs/cgroup are found.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace ridge
