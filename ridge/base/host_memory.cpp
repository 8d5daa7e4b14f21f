#include "ridge/base/host_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The number behind `key` in lines of "key number" or "key: number kB".
std::optional<std::uint64_t> number_after(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t number = 0;
  for (std::string line; std::getline(file, line);)
    if (std::istringstream words(line); words >> name >> number && name == key) return number;
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // "max" is no limit
  return number;
}

HostMemory memory_of_system(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  const auto total = number_after(meminfo, "MemTotal:");
  const auto available = number_after(meminfo, "MemAvailable:");
  if (total && available) return {*total * 1024, *available * 1024};
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return {};
  const std::uint64_t unit = info.mem_unit;
  return {info.totalram * unit, (info.freeram + info.bufferram) * unit};
}

// A version of control groups: where they are, and the files of each.
struct GroupFiles {
  fs::path mount;
  const char *limit, *used, *droppable;
};

void apply_limits(HostMemory& memory, const GroupFiles& files, const fs::path& group) {
  // Where a container sees its own group as the root, or not by the name that /proc tells, its
  // limit is in a directory above.
  for (fs::path path = group.relative_path();; path = path.parent_path()) {
    const fs::path directory = files.mount / path;
    const auto limit = number_in(directory / files.limit);
    const auto used = number_in(directory / files.used);
    if (limit && used) {
      memory.total = std::min(memory.total, *limit);
      const std::uint64_t droppable =
          number_after(directory / "memory.stat", files.droppable).value_or(0);
      const std::uint64_t held = *used - std::min(*used, droppable);
      memory.available = std::min(memory.available, *limit - std::min(*limit, held));
    }
    if (path.empty()) return;
  }
}

}  // namespace

HostMemory host_memory(const fs::path& root) {
  HostMemory memory = memory_of_system(root);
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "number:controllers:path"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,")
      apply_limits(memory, {groups, "memory.max", "memory.current", "inactive_file"}, group);
    else if (controllers.find(",memory,") != std::string::npos)
      apply_limits(memory,
                   {groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                    "total_inactive_file"},
                   group);
  }
  return memory;
}

}  // namespace ridge
