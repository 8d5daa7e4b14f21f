#include "ridge/base/system.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "ridge/base/digest.h"
#include "ridge/base/file.h"

namespace ridge {

std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string host_name() {
  utsname name{};
  return ::uname(&name) == 0 && name.nodename[0] != '\0' ? name.nodename : "localhost";
}

std::string system_name() {
  utsname name{};
  if (::uname(&name) != 0) return {};
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

std::string processor_name() { return proc_value("/proc/cpuinfo", "model name"); }

std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::string program_digest() {
  static const std::string digest = [] {
    const MappedFile file("/proc/self/exe");
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                                 file.bytes().size());
    return fmt::format("{:016x}", fnv1a(bytes));
  }();
  return digest;
}

std::string utc_timestamp() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

std::uint64_t peak_resident_bytes() {
  const std::string kib = proc_value("/proc/self/status", "VmHWM");
  return kib.empty() ? 0 : std::strtoull(kib.c_str(), nullptr, 10) * 1024;
}

}  // namespace ridge
