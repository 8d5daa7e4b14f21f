#include "ridge/profile/process_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace ridge {
namespace {

namespace fs = std::filesystem;

}  // namespace

// Plain calls: of a few hundred processes this is most of what a sampler costs.
std::vector<ProcessText> list_processes(const fs::path& root) {
  std::vector<ProcessText> processes;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir((root / "proc").c_str()),
                                                      ::closedir);
  if (!directory) return processes;
  std::array<char, 1024> text;  // the name in it has at most 64 bytes
  while (const dirent* const entry = ::readdir(directory.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const std::string name = std::string(entry->d_name) + "/stat";
    const int file = ::openat(::dirfd(directory.get()), name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;  // it has ended
    const ssize_t size = ::read(file, text.data(), text.size());
    ::close(file);
    if (size <= 0) continue;
    if (auto process = parse_process({text.data(), static_cast<std::size_t>(size)}))
      processes.push_back(std::move(*process));
  }
  return processes;
}

std::set<std::int64_t> family_of(std::span<const ProcessText> processes, std::int64_t ancestor) {
  std::multimap<std::int64_t, std::int64_t> children;
  for (const ProcessText& process : processes) children.emplace(process.parent, process.id);
  std::set<std::int64_t> family{ancestor};
  std::vector<std::int64_t> next{ancestor};
  while (!next.empty()) {
    const auto [begin, end] = children.equal_range(next.back());
    next.pop_back();
    for (auto child = begin; child != end; ++child)
      if (family.insert(child->second).second) next.push_back(child->second);
  }
  return family;
}

std::vector<ProcessUse> busy_strangers(std::span<const ProcessText> before,
                                       std::span<const ProcessText> after,
                                       const std::set<std::int64_t>& family, double seconds,
                                       std::size_t most) {
  // An id may be another process by now, which its start tells.
  std::map<std::pair<std::int64_t, std::uint64_t>, double> ticks;
  for (const ProcessText& process : before) ticks[{process.id, process.started}] = process.ticks;
  std::vector<ProcessUse> strangers;
  for (const ProcessText& process : after) {
    if (family.contains(process.id)) continue;
    const auto known = ticks.find({process.id, process.started});
    const double taken = process.ticks - (known == ticks.end() ? 0 : known->second);
    if (taken / ticks_per_second() < 0.01 * seconds) continue;
    strangers.push_back(
        {.id = process.id, .name = process.name, .seconds = taken / ticks_per_second()});
  }
  std::ranges::stable_sort(strangers, std::greater{}, &ProcessUse::seconds);
  if (strangers.size() > most) strangers.resize(most);
  return strangers;
}

const FamilyWatch::Sums& FamilyWatch::look(std::span<const ProcessText> processes,
                                           std::int64_t now_ns) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::set<std::int64_t> family = family_of(processes, ancestor_);
  Sums now;
  for (const ProcessText& process : processes) {
    if (process.id == ancestor_ || !family.contains(process.id)) continue;
    now.ticks += process.ticks + process.ticks_of_children;
    now.faults += process.faults;
    now.disk_faults += process.disk_faults;
    now.resident_bytes += static_cast<double>(process.resident_pages * page);
    ++now.count;
    auto seen = std::ranges::find_if(seen_, [&](const ProcessUse& one) {
      return one.id == process.id && one.started == process.started;
    });
    if (seen == seen_.end())
      seen = seen_.insert(
          seen, {.id = process.id, .started = process.started, .name = {}, .begin_ns = now_ns});
    seen->name = process.name;  // which exec() changes
    seen->seconds = process.ticks / ticks_per_second();
    seen->end_ns = now_ns;
    seen->peak_bytes = std::max(seen->peak_bytes, process.resident_pages * page);
  }
  // What a process took that nobody waited for is gone with it.
  sums_ = {.ticks = std::max(sums_.ticks, now.ticks),
           .faults = std::max(sums_.faults, now.faults),
           .disk_faults = std::max(sums_.disk_faults, now.disk_faults),
           .resident_bytes = now.resident_bytes,
           .count = now.count};
  return sums_;
}

}  // namespace ridge
