#pragma once

// What a machine did beside a program: counters that a sampler read at an interval, in columns.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

enum class SystemUnit : std::uint8_t {
  percent,
  cores,  // processors' worth of time: 1 is one of them, all the time
  megahertz,
  bytes,
  bytes_per_second,
  per_second,
  watts,
  celsius,
  count
};
std::string_view name_of(SystemUnit unit);  // "%", "cores", "MHz", "B", "B/s", "1/s", "W", "C", ""

// Which counters stand together in tables and plots.
enum class SystemGroup : std::uint8_t { cores, frequency, memory, faults, disk, network, power };
std::string_view name_of(SystemGroup group);  // "cores", "frequency", ...

struct SystemSeries {
  std::string name;  // "core 3 busy"
  SystemGroup group = SystemGroup::cores;
  SystemUnit unit = SystemUnit::percent;
  // A level is shown as it was read. A total only grows, as the bytes that a disk has read; its
  // growth in a second times `scale` is shown.
  bool is_total = false;
  double scale = 1;
  // The growth of a total is taken over at least so long: what the system counts in ticks of 10 ms
  // says nothing over 20.
  std::int64_t window_ns = 0;
  int core = -1;  // whose it is; -1: of all
  // What is counted in ticks can seem to grow faster than time: no point is above this.
  double most = std::numeric_limits<double>::infinity();
};

// A process, as far as it was seen.
struct ProcessUse {
  std::int64_t id = 0;
  std::uint64_t started = 0;              // ticks after boot; tells apart those of one id
  std::string name;                       // at most 15 bytes, as Linux keeps it
  double seconds = 0;                     // of processors' time
  std::int64_t begin_ns = 0, end_ns = 0;  // when it was seen first and last
  std::uint64_t peak_bytes = 0;           // most that was resident, of those that were followed
};

// Columns: values[i * series.size() + s] is what series s was at time_ns[i].
struct SystemSamples {
  static constexpr double unread = std::numeric_limits<double>::quiet_NaN();

  // A step of the run beside which it was sampled.
  struct Step {
    std::int64_t step, begin_ns, end_ns;
  };

  std::vector<SystemSeries> series;
  std::vector<std::int64_t> time_ns;  // rising
  std::vector<double> values;         // unread: not at this time, because that is slow

  std::vector<Step> steps;
  std::vector<ProcessUse> others;     // that are none of the program's, the busiest first
  std::vector<ProcessUse> processes;  // of the program, in the order in which they were seen
  std::vector<std::string> missing;   // what could not be read, and why: a sentence each
  double others_cores = unread;       // processors that these kept busy, on average
  int cores = 0;                      // of the machine
  std::uint64_t memory_bytes = 0;     // of the machine
  double interval_seconds = 0;        // asked for
  double sampling_seconds = 0;        // of a processor, that the sampler itself took

  double at(std::size_t sample, std::size_t of) const {
    return values[sample * series.size() + of];
  }
  double seconds() const {
    return time_ns.empty() ? 0 : 1e-9 * static_cast<double>(time_ns.back() - time_ns.front());
  }
  // The series of that name; series.size() without one.
  std::size_t find(std::string_view name) const;
  void shift(std::int64_t ns);  // all times by so much
};

// Series that findings look at, by name.
namespace system_names {
inline constexpr std::string_view all_busy = "all cores busy",
                                  disk_idle = "idle, waiting for a disk",
                                  stolen = "taken by other guests",
                                  group_limit = "held back by the container's limit",
                                  heat = "throttled by heat",
                                  waited_core = "some task waited for a core",
                                  waited_disk = "some task waited for a disk",
                                  memory_used = "machine, used", available = "machine, available",
                                  swapped_in = "swapped in", swapped_out = "swapped out",
                                  disk_faults = "page faults that read a disk",
                                  disk_read = "read from disks", disk_written = "written to disks";
}  // namespace system_names

// A value of a series from one time to another.
struct SystemPoint {
  std::int64_t begin_ns, end_ns;
  double value;
};
// The points of a series, by time and without gaps: what was not read at a time is as it was
// before. Empty unless it was read, and of a total read twice.
std::vector<SystemPoint> points_of(const SystemSamples& samples, std::size_t series);

}  // namespace ridge
