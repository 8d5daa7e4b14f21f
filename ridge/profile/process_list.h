#pragma once

// Which processes there are, whose they are and what they take.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <vector>

#include "ridge/profile/system_samples.h"
#include "ridge/profile/system_text.h"

namespace ridge {

// All processes that this one may see, in any order. `root` is where /proc is found.
std::vector<ProcessText> list_processes(const std::filesystem::path& root = "/");

// The ids of a process and of all that descend from it.
std::set<std::int64_t> family_of(std::span<const ProcessText> processes, std::int64_t ancestor);

// What processes outside a family did between two lists, the busiest first: at most `most`, of
// those that took a hundredth of the time or more.
std::vector<ProcessUse> busy_strangers(std::span<const ProcessText> before,
                                       std::span<const ProcessText> after,
                                       const std::set<std::int64_t>& family, double seconds,
                                       std::size_t most = 5);

// Follows the processes of a family, but for the first of it, and adds up what they take. Those
// that begin and end between two looks are seen only in what those take that waited for them.
class FamilyWatch {
 public:
  struct Sums {
    double ticks = 0, faults = 0, disk_faults = 0;  // never fall
    double resident_bytes = 0, count = 0;
  };

  explicit FamilyWatch(std::int64_t ancestor) : ancestor_(ancestor) {}
  const Sums& look(std::span<const ProcessText> processes, std::int64_t now_ns);
  const std::vector<ProcessUse>& seen() const { return seen_; }

 private:
  std::int64_t ancestor_;
  Sums sums_;
  std::vector<ProcessUse> seen_;
};

}  // namespace ridge
