#pragma once

// What the files say by which Linux tells of the machine and its processes: proc(5), and the
// kernel's documentation of cgroups, pressure stall information and the power capping framework.
// Functions take the text of a file; what a text does not say is left out or 0.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

double ticks_per_second();  // in which Linux counts the time of processors

// Since boot, in ticks.
struct CoreTicks {
  double busy = 0;     // user, nice, system, interrupts
  double waiting = 0;  // idle while a disk was awaited
  double stolen = 0;   // by other guests of the machine
};
// /proc/stat: the cores by number, after all of them together. One that is switched off has zeros.
struct StatText {
  CoreTicks all;
  std::vector<CoreTicks> cores;
  double context_switches = 0;
};
std::optional<StatText> parse_stat(std::string_view text);

// "MHz" of each processor, in /proc/cpuinfo.
std::vector<double> parse_cpuinfo_mhz(std::string_view text);

// The number behind a word that begins a line: "MemTotal:  16384 kB", "pgfault 12",
// "read_bytes: 4096", "throttled_usec 0".
std::optional<double> number_behind(std::string_view text, std::string_view word);

// /proc/PID/stat.
struct ProcessText {
  std::int64_t id = 0, parent = 0;
  std::string name;
  char state = '?';
  double ticks = 0, ticks_of_children = 0;  // the latter of those that ended and were waited for
  double faults = 0, disk_faults = 0;       // with those of such children
  double own_faults = 0, own_disk_faults = 0;
  std::uint64_t started = 0;  // ticks after boot
  std::uint64_t resident_pages = 0;
};
std::optional<ProcessText> parse_process(std::string_view text);

// /proc/diskstats: the sums over disks, whose partitions are no disks.
struct DiskText {
  double read_bytes = 0, written_bytes = 0;
  double busy_ms = 0;
};
DiskText parse_diskstats(std::string_view text, const std::vector<std::string>& disks);

// /proc/net/dev: the sums over interfaces, but for the one to oneself.
struct NetworkText {
  double received_bytes = 0, sent_bytes = 0;
};
NetworkText parse_net_dev(std::string_view text);

// /proc/pressure/*: microseconds in which some task waited.
std::optional<double> parse_pressure(std::string_view text);

// A file that is read again and again, as those of /proc are. One that is missing reads as empty.
class RereadFile {
 public:
  explicit RereadFile(const std::filesystem::path& path);
  RereadFile(RereadFile&& other) noexcept;
  RereadFile& operator=(RereadFile&& other) noexcept;
  ~RereadFile();

  bool is_open() const { return descriptor_ >= 0; }
  int error() const { return error_; }  // errno of opening it; 0
  std::string_view read();              // valid until the next
 private:
  int descriptor_ = -1, error_ = 0;
  std::string text_;
};

}  // namespace ridge
