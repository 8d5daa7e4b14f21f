#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/profile/process_list.h"
#include "ridge/profile/system_samples.h"

namespace ridge {

// What of a machine is read beside a program.
struct SystemSources {
  std::filesystem::path root = "/";  // where /proc and /sys are found
  // Whose processes are followed, this one's but itself: for those that start a program and wait
  // for it. None: this process is the program.
  std::optional<std::int64_t> family;
};

// Reads the counters that this system has: /proc/stat, meminfo, vmstat, diskstats, net/dev and
// pressure; /proc/self or the family's processes; the cores' frequency and throttling and RAPL
// below /sys; the CPU limit of the control group. What it has not, missing() says.
class SystemReader {
 public:
  explicit SystemReader(const SystemSources& sources);

  const std::vector<SystemSeries>& series() const { return series_; }
  const std::vector<std::string>& missing() const { return missing_; }
  // Reads a row, which has a place for each series. What is slow to read (frequencies, the
  // machine's memory, lists of processes) is left unread unless asked for.
  void read(std::span<double> row, bool with_slow);
  // What the family's processes were, so far.
  std::vector<ProcessUse> processes() const;

 private:
  struct Source {
    std::function<void(std::span<double> row)> read;
    bool slow = false;
  };

  std::size_t add(SystemSeries series);
  void add_source(std::function<void(std::span<double>)> read, bool slow = false);
  void add_cores();
  void add_frequencies();
  void add_cpuinfo_frequencies();
  void add_throttling();
  void add_memory();
  // The columns of one process or of a family, called `who`.
  struct ProcessColumns {
    std::size_t busy, others, resident, faults, disk_faults;
  };
  ProcessColumns add_columns_of(const std::string& who, std::int64_t faults_window_ns);

  void add_process();
  void add_family(std::int64_t ancestor);
  void add_disks();
  void add_network();
  void add_pressure();
  void add_group_limit();
  void add_power();

  std::filesystem::path root_;
  std::vector<SystemSeries> series_;
  std::vector<std::string> missing_;
  std::vector<Source> sources_;
  std::size_t cores_ = 0;
  std::optional<std::size_t> busy_ticks_;  // the column of all cores' busy time
  std::shared_ptr<FamilyWatch> family_;
};

}  // namespace ridge
