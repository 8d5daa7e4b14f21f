#include "ridge/profile/system_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

namespace ridge {
namespace {

namespace fs = std::filesystem;
namespace names = system_names;
using Group = SystemGroup;
using Unit = SystemUnit;

constexpr double kibibyte = 1024;
// What is counted in ticks or pages changes in jumps; over so long a mean says something.
constexpr std::int64_t tick_window_ns = 100'000'000;

double page_bytes() { return static_cast<double>(::sysconf(_SC_PAGESIZE)); }

// std::function copies what it calls.
std::shared_ptr<RereadFile> open_shared(const fs::path& path) {
  return std::make_shared<RereadFile>(path);
}

SystemSeries level(std::string_view name, Group group, Unit unit, int core = -1) {
  return {.name = std::string(name), .group = group, .unit = unit, .core = core};
}

SystemSeries total(std::string_view name, Group group, Unit unit, double scale = 1,
                   std::int64_t window_ns = 0, int core = -1) {
  return {.name = std::string(name),
          .group = group,
          .unit = unit,
          .is_total = true,
          .scale = scale,
          .window_ns = window_ns,
          .core = core};
}

// A total that no more than `most` of its unit can grow by.
SystemSeries at_most(double most, SystemSeries series) {
  if (most > 0) series.most = most;
  return series;
}

double or_unread(const std::optional<double>& number, double scale = 1) {
  return number ? *number * scale : SystemSamples::unread;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code fault;
  for (fs::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Disks, without those that are made of others or of memory.
std::vector<std::string> disks_in(const fs::path& directory) {
  std::vector<std::string> disks = names_in(directory);
  std::erase_if(disks, [](const std::string& name) {
    return std::ranges::any_of(
        std::initializer_list<std::string_view>{"loop", "ram", "zram", "dm-", "md", "sr", "fd"},
        [&](std::string_view kind) { return name.starts_with(kind); });
  });
  return disks;
}

std::string first_line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A counter of energy in microjoules that begins again at 0 when it is full.
struct EnergyCounter {
  RereadFile file;
  double full = 0, before = 0, past = 0;

  double read() {
    const double now = std::strtod(std::string(file.read()).c_str(), nullptr);
    if (now < before) past += full;
    before = now;
    return past + now;
  }
};

// The directory of the control group that limits this process's processors; empty without one.
fs::path cpu_group_of(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  const fs::path groups = root / "sys/fs/cgroup";
  for (std::string line; std::getline(file, line);) {  // "number:controllers:path"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    const fs::path mount = unified ? groups : groups / "cpu";
    // A container may see its own group as the root.
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();;
         path = path.parent_path()) {
      if (fs::exists(mount / path / "cpu.stat")) return mount / path / "cpu.stat";
      if (path.empty()) break;
    }
  }
  return {};
}

}  // namespace

SystemReader::SystemReader(const SystemSources& sources) : root_(sources.root) {
  add_cores();
  if (sources.family)
    add_family(*sources.family);
  else
    add_process();
  add_pressure();
  add_group_limit();
  add_frequencies();
  add_throttling();
  add_memory();
  add_disks();
  add_network();
  add_power();
}

std::size_t SystemReader::add(SystemSeries series) {
  series_.push_back(std::move(series));
  return series_.size() - 1;
}

void SystemReader::add_source(std::function<void(std::span<double>)> read, bool slow) {
  sources_.push_back({std::move(read), slow});
}

void SystemReader::read(std::span<double> row, bool with_slow) {
  std::ranges::fill(row, SystemSamples::unread);
  for (const Source& source : sources_)
    if (with_slow || !source.slow) source.read(row);
}

std::vector<ProcessUse> SystemReader::processes() const {
  return family_ ? family_->seen() : std::vector<ProcessUse>{};
}

void SystemReader::add_cores() {
  const auto file = open_shared(root_ / "proc/stat");
  const auto stat = parse_stat(file->read());
  if (!stat) {
    missing_.push_back("The use of cores: /proc/stat cannot be read.");
    return;
  }
  cores_ = stat->cores.size();
  const double tick = 1 / ticks_per_second(), percent = 100 * tick,
               of_all = percent / static_cast<double>(std::max<std::size_t>(cores_, 1));
  const auto all = static_cast<double>(cores_);
  busy_ticks_ =
      add(at_most(all, total(names::all_busy, Group::cores, Unit::cores, tick, tick_window_ns)));
  const std::size_t waiting = add(
      at_most(100, total(names::disk_idle, Group::cores, Unit::percent, of_all, tick_window_ns)));
  const std::size_t stolen =
      add(at_most(100, total(names::stolen, Group::cores, Unit::percent, of_all, tick_window_ns)));
  const std::size_t switches =
      add(total("context switches", Group::cores, Unit::per_second, 1, tick_window_ns));
  const std::size_t first = series_.size(), cores = cores_, busy = *busy_ticks_;
  for (std::size_t core = 0; core < cores; ++core)
    add(at_most(100, total(fmt::format("core {} busy", core), Group::cores, Unit::percent, percent,
                           tick_window_ns, static_cast<int>(core))));
  add_source([=](std::span<double> row) {
    const auto now = parse_stat(file->read());
    if (!now) return;
    row[busy] = now->all.busy;
    row[waiting] = now->all.waiting;
    row[stolen] = now->all.stolen;
    row[switches] = now->context_switches;
    for (std::size_t core = 0; core < std::min(cores, now->cores.size()); ++core)
      row[first + core] = now->cores[core].busy;
  });
}

SystemReader::ProcessColumns SystemReader::add_columns_of(const std::string& who,
                                                          std::int64_t faults_window_ns) {
  const double tick = 1 / ticks_per_second(), all_cores = static_cast<double>(cores_);
  const auto busy = [&](const std::string& whose) {
    return add(at_most(all_cores,
                       total(whose + " busy", Group::cores, Unit::cores, tick, tick_window_ns)));
  };
  const auto faults = [&](std::string_view name) {
    return add(total(name, Group::faults, Unit::per_second, 1, faults_window_ns));
  };
  // A list of initializers is worked out in its order.
  return {.busy = busy(who),
          .others = busy("other processes"),
          .resident = add(level(who + ", resident", Group::memory, Unit::bytes)),
          .faults = faults("page faults"),
          .disk_faults = faults(names::disk_faults)};
}

void SystemReader::add_process() {
  const auto file = open_shared(root_ / "proc/self/stat");
  if (!parse_process(file->read())) {
    missing_.push_back("What the process itself takes: /proc/self/stat cannot be read.");
    return;
  }
  const ProcessColumns columns = add_columns_of("this process", 0);
  add_source([=, all = busy_ticks_](std::span<double> row) {
    const auto now = parse_process(file->read());
    if (!now) return;
    row[columns.busy] = now->ticks;
    if (all) row[columns.others] = row[*all] - now->ticks - now->ticks_of_children;
    row[columns.resident] = static_cast<double>(now->resident_pages) * page_bytes();
    row[columns.faults] = now->own_faults;
    row[columns.disk_faults] = now->own_disk_faults;
  });
  const auto io = open_shared(root_ / "proc/self/io");
  if (!number_behind(io->read(), "read_bytes:")) return;
  const std::size_t read = add(total("read by this process", Group::disk, Unit::bytes_per_second));
  const std::size_t written =
      add(total("written by this process", Group::disk, Unit::bytes_per_second));
  add_source([=](std::span<double> row) {
    const std::string_view text = io->read();
    row[read] = or_unread(number_behind(text, "read_bytes:"));
    row[written] = or_unread(number_behind(text, "write_bytes:"));
  });
}

void SystemReader::add_family(std::int64_t ancestor) {
  family_ = std::make_shared<FamilyWatch>(ancestor);
  const ProcessColumns columns = add_columns_of("the command", tick_window_ns);
  const std::size_t count = add(level("processes of the command", Group::cores, Unit::count));
  const auto look = [=, all = busy_ticks_, family = family_, root = root_](std::span<double> row) {
    const std::vector<ProcessText> processes = list_processes(root);
    const FamilyWatch::Sums& sums =
        family->look(processes, std::chrono::steady_clock::now().time_since_epoch().count());
    row[columns.busy] = sums.ticks;
    if (all) row[columns.others] = row[*all] - sums.ticks;
    if (sums.count > 0) row[count] = sums.count, row[columns.resident] = sums.resident_bytes;
    row[columns.faults] = sums.faults;
    row[columns.disk_faults] = sums.disk_faults;
  };
  add_source(look, true);
}

void SystemReader::add_pressure() {
  struct Kind {
    const char* file;
    std::string_view name;
    Group group;
  };
  static constexpr Kind kinds[] = {{"cpu", names::waited_core, Group::cores},
                                   {"memory", "some task waited for memory", Group::memory},
                                   {"io", names::waited_disk, Group::disk}};
  for (const Kind& kind : kinds) {
    const auto file = open_shared(root_ / "proc/pressure" / kind.file);
    if (!parse_pressure(file->read())) {
      missing_.push_back(fmt::format(
          "How long tasks waited: this kernel has no /proc/pressure/{} that can be read.",
          kind.file));
      return;
    }
    constexpr double percent_of_us = 1e-4;
    const std::size_t column = add(
        at_most(100, total(kind.name, kind.group, Unit::percent, percent_of_us, tick_window_ns)));
    add_source(
        [=](std::span<double> row) { row[column] = or_unread(parse_pressure(file->read())); });
  }
}

void SystemReader::add_group_limit() {
  const fs::path path = cpu_group_of(root_);
  if (path.empty()) return;
  const auto file = open_shared(path);
  // Version 2 has microseconds, version 1 nanoseconds.
  const bool is_new = number_behind(file->read(), "throttled_usec").has_value();
  const char* const word = is_new ? "throttled_usec" : "throttled_time";
  if (!number_behind(file->read(), word)) return;
  const std::size_t column = add(
      total(names::group_limit, Group::cores, Unit::percent, is_new ? 1e-4 : 1e-7, tick_window_ns));
  add_source(
      [=](std::span<double> row) { row[column] = or_unread(number_behind(file->read(), word)); });
}

void SystemReader::add_frequencies() {
  const fs::path cores = root_ / "sys/devices/system/cpu";
  std::vector<std::pair<std::size_t, std::shared_ptr<RereadFile>>> files;  // columns
  for (std::size_t core = 0; core < cores_; ++core) {
    const auto file = open_shared(cores / fmt::format("cpu{}", core) / "cpufreq/scaling_cur_freq");
    if (!file->is_open()) continue;
    files.emplace_back(add(level(fmt::format("core {} frequency", core), Group::frequency,
                                 Unit::megahertz, static_cast<int>(core))),
                       file);
  }
  if (files.empty()) {
    add_cpuinfo_frequencies();
    return;
  }
  add_source(
      [files](std::span<double> row) {
        constexpr double mhz_of_khz = 1e-3;
        for (const auto& [column, file] : files)
          if (const std::string text(file->read()); !text.empty())
            row[column] = mhz_of_khz * std::strtod(text.c_str(), nullptr);
      },
      true);
}

void SystemReader::add_cpuinfo_frequencies() {
  const auto file = open_shared(root_ / "proc/cpuinfo");
  const std::vector<double> mhz = parse_cpuinfo_mhz(file->read());
  if (mhz.empty()) {
    missing_.push_back(
        "The cores' frequency: there is neither cpufreq below /sys nor \"cpu MHz\" in "
        "/proc/cpuinfo.");
    return;
  }
  missing_.push_back(
      "How the cores' frequency changes: there is no cpufreq below /sys, as in most virtual "
      "machines; what /proc/cpuinfo says may be one number for ever.");
  const std::size_t first = series_.size();
  for (std::size_t core = 0; core < mhz.size(); ++core)
    add(level(fmt::format("core {} frequency", core), Group::frequency, Unit::megahertz,
              static_cast<int>(core)));
  add_source(
      [=, count = mhz.size()](std::span<double> row) {
        const std::vector<double> now = parse_cpuinfo_mhz(file->read());
        for (std::size_t core = 0; core < std::min(count, now.size()); ++core)
          row[first + core] = now[core];
      },
      true);
}

void SystemReader::add_throttling() {
  std::vector<std::shared_ptr<RereadFile>> files;
  for (std::size_t core = 0; core < cores_; ++core) {
    const auto file = open_shared(root_ / "sys/devices/system/cpu" / fmt::format("cpu{}", core) /
                                  "thermal_throttle/core_throttle_count");
    if (file->is_open()) files.push_back(file);
  }
  if (files.empty()) return;
  const std::size_t column =
      add(total(names::heat, Group::frequency, Unit::per_second, 1, tick_window_ns));
  add_source(
      [=](std::span<double> row) {
        row[column] = 0;
        for (const auto& file : files)
          row[column] += std::strtod(std::string(file->read()).c_str(), nullptr);
      },
      true);
}

void SystemReader::add_memory() {
  const auto meminfo = open_shared(root_ / "proc/meminfo");
  if (number_behind(meminfo->read(), "MemAvailable:")) {
    const std::size_t used = add(level(names::memory_used, Group::memory, Unit::bytes));
    const std::size_t free = add(level(names::available, Group::memory, Unit::bytes));
    const std::size_t swap = add(level("swap, used", Group::memory, Unit::bytes));
    add_source(
        [=](std::span<double> row) {
          const std::string_view text = meminfo->read();
          const auto all = number_behind(text, "MemTotal:"),
                     rest = number_behind(text, "MemAvailable:");
          if (all && rest) row[used] = (*all - *rest) * kibibyte;
          row[free] = or_unread(rest, kibibyte);
          const auto swap_all = number_behind(text, "SwapTotal:");
          const auto swap_free = number_behind(text, "SwapFree:");
          if (swap_all && swap_free) row[swap] = (*swap_all - *swap_free) * kibibyte;
        },
        true);
  } else {
    missing_.push_back("The machine's memory: /proc/meminfo cannot be read.");
  }
  const auto vmstat = open_shared(root_ / "proc/vmstat");
  if (!number_behind(vmstat->read(), "pgmajfault")) return;
  const std::size_t faults =
      add(total("page faults that read a disk, machine", Group::faults, Unit::per_second));
  const std::size_t in =
      add(total(names::swapped_in, Group::memory, Unit::bytes_per_second, page_bytes()));
  const std::size_t out =
      add(total(names::swapped_out, Group::memory, Unit::bytes_per_second, page_bytes()));
  add_source(
      [=](std::span<double> row) {
        const std::string_view text = vmstat->read();
        row[faults] = or_unread(number_behind(text, "pgmajfault"));
        row[in] = or_unread(number_behind(text, "pswpin"));
        row[out] = or_unread(number_behind(text, "pswpout"));
      },
      true);
}

void SystemReader::add_disks() {
  const auto file = open_shared(root_ / "proc/diskstats");
  const std::vector<std::string> disks = disks_in(root_ / "sys/block");
  if (!file->is_open() || disks.empty()) {
    missing_.push_back("The disks: /proc/diskstats or /sys/block cannot be read, or has no disk.");
    return;
  }
  constexpr double percent_of_ms = 0.1;
  const std::size_t read = add(total(names::disk_read, Group::disk, Unit::bytes_per_second));
  const std::size_t written = add(total(names::disk_written, Group::disk, Unit::bytes_per_second));
  const std::size_t busy = add(total(fmt::format("{} busy", fmt::join(disks, " + ")), Group::disk,
                                     Unit::percent, percent_of_ms, tick_window_ns));
  add_source([=](std::span<double> row) {
    const DiskText now = parse_diskstats(file->read(), disks);
    row[read] = now.read_bytes;
    row[written] = now.written_bytes;
    row[busy] = now.busy_ms;
  });
}

void SystemReader::add_network() {
  const auto file = open_shared(root_ / "proc/net/dev");
  if (!file->is_open()) {
    missing_.push_back("The network: /proc/net/dev cannot be read.");
    return;
  }
  const std::size_t received = add(total("received", Group::network, Unit::bytes_per_second));
  const std::size_t sent = add(total("sent", Group::network, Unit::bytes_per_second));
  add_source([=](std::span<double> row) {
    const NetworkText now = parse_net_dev(file->read());
    row[received] = now.received_bytes;
    row[sent] = now.sent_bytes;
  });
}

void SystemReader::add_power() {
  const fs::path zones = root_ / "sys/class/powercap";
  std::size_t found = 0;
  std::string refused;
  for (const std::string& zone : names_in(zones)) {
    // "intel-rapl:0" is a package, "intel-rapl:0:1" a part of one; AMD's have the same names. What
    // intel-rapl-mmio tells is the package again.
    if (!zone.starts_with("intel-rapl:")) continue;
    const fs::path energy = zones / zone / "energy_uj";
    auto counter = std::make_shared<EnergyCounter>(EnergyCounter{RereadFile(energy)});
    if (!counter->file.is_open()) {
      refused = std::strerror(counter->file.error());
      continue;
    }
    counter->full =
        std::strtod(first_line_of(zones / zone / "max_energy_range_uj").c_str(), nullptr);
    constexpr double watts_of_uj = 1e-6;
    const std::size_t column = add(total(first_line_of(zones / zone / "name"), Group::power,
                                         Unit::watts, watts_of_uj, tick_window_ns));
    add_source([=](std::span<double> row) { row[column] = counter->read(); });
    ++found;
  }
  if (found > 0) return;
  missing_.push_back(
      refused.empty()
          ? "The processor's power: there is no RAPL counter below /sys/class/powercap, as in "
            "most virtual machines."
          : fmt::format("The processor's power: the RAPL counters below /sys/class/powercap say "
                        "\"{}\"; root may read them, or whom root lets (chmod a+r energy_uj).",
                        refused));
}

}  // namespace ridge
