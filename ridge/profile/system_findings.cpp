#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ridge/base/units.h"
#include "ridge/profile/system_report.h"

namespace ridge {
namespace {

namespace names = system_names;

// From here on something is worth a sentence.
constexpr double busy_others = 0.25;       // cores
constexpr double stolen_percent = 2;       // of the cores' time
constexpr double held_back_percent = 1;    // of the time
constexpr double waiting_percent = 5;      // of the time
constexpr double swapped_bytes = 1 << 20;  // in all
constexpr double little_memory = 0.05;     // of the machine's
constexpr double fault_rate = 5;           // a second
constexpr double frequency_drop = 0.15;    // of the highest
constexpr double core_is_busy = 80;        // percent

class Findings {
 public:
  explicit Findings(const SystemSamples& samples)
      : samples_(samples), rows_(system_rows(samples)) {}

  std::vector<SystemFinding> all() {
    other_load();
    stolen();
    held_back();
    heat();
    frequency();
    swapping();
    little_memory_left();
    disk_faults();
    disk_waits();
    return std::move(found_);
  }

 private:
  const SystemRow* row(std::string_view name) const {
    const auto found = std::ranges::find(
        rows_, name, [](const SystemRow& r) -> std::string_view { return r.series.name; });
    return found == rows_.end() ? nullptr : &*found;
  }
  std::string when(const SystemRow& row) const { return when_text(samples_, row.max_at_ns); }
  // By how much a rate adds up in all.
  double sum_of(const SystemRow& rate) const { return rate.mean * samples_.seconds(); }
  void add(std::string rule, std::string what, std::string remedy) {
    found_.push_back({std::move(rule), std::move(what), std::move(remedy)});
  }

  void other_load() {
    if (!(samples_.others_cores >= busy_others)) return;
    std::string who;
    for (const ProcessUse& process : samples_.others)
      who += fmt::format("{}{} (process {}) {:.2f}", who.empty() ? "" : ", ", process.name,
                         process.id, process.seconds / samples_.seconds());
    if (who.empty())
      who =
          "none that can be seen from here, as those of another container or that ended meanwhile";
    std::string what = fmt::format("Other processes kept {:.2f} of {} busy: {}.",
                                   samples_.others_cores, counted(samples_.cores, "core"), who);
    if (const SystemRow* const waited = row(names::waited_core);
        waited && waited->mean >= waiting_percent)
      what += fmt::format(" Some task waited for a core {:.0f} % of the time.", waited->mean);
    add("other-load", what,
        "Stop them, or keep them to other cores (taskset -c): times are else not the program's "
        "alone.");
  }

  void stolen() {
    const SystemRow* const found = row(names::stolen);
    if (!found || found->mean < stolen_percent) return;
    add("stolen",
        fmt::format(
            "The machine is virtual, and its host gave {:.1f} % of the cores' time to other "
            "guests, most at {} ({:.1f} %).",
            found->mean, when(*found), found->max),
        "Measure again, or on a machine of one's own.");
  }

  void held_back() {
    const SystemRow* const found = row(names::group_limit);
    if (!found || found->mean < held_back_percent) return;
    add("container-limit",
        fmt::format(
            "The container's limit on processors held threads back, {:.1f} % of the time of "
            "one, most at {}.",
            found->mean, when(*found)),
        "Raise it (docker run --cpus), or use as many threads as it allows.");
  }

  void heat() {
    const SystemRow* const found = row(names::heat);
    if (!found || found->max == 0) return;
    add("heat",
        fmt::format("Heat throttled cores {:.0f} times, first or most at {}.", sum_of(*found),
                    when(*found)),
        "Cool the machine, or compare times of its cool state only.");
  }

  // The core whose frequency fell furthest while it was busy.
  void frequency() {
    double worst = frequency_drop;
    std::string what;
    for (const SystemRow& of : rows_) {
      if (of.series.group != SystemGroup::frequency || of.series.core < 0 || of.max <= 0) continue;
      const auto lowest = lowest_while_busy(of);
      if (!lowest || 1 - lowest->value / of.max < worst) continue;
      worst = 1 - lowest->value / of.max;
      what = fmt::format("Core {} was busy and slower: {:.0f} MHz at {}, after {:.0f} MHz at {}.",
                         of.series.core, lowest->value, when_text(samples_, lowest->begin_ns),
                         of.max, when(of));
    }
    if (!what.empty())
      add("frequency", what,
          "Heat, a power limit or a frequency governor lower it: see cpupower frequency-info.");
  }

  std::optional<SystemPoint> lowest_while_busy(const SystemRow& of) const {
    const std::size_t busy = samples_.find(fmt::format("core {} busy", of.series.core));
    if (busy == samples_.series.size()) return std::nullopt;
    const std::vector<SystemPoint> use = points_of(samples_, busy);
    std::optional<SystemPoint> lowest;
    for (const SystemPoint& point : points_of(samples_, samples_.find(of.series.name))) {
      const auto now = std::ranges::lower_bound(use, point.begin_ns, {}, &SystemPoint::end_ns);
      if (now == use.end() || now->value < core_is_busy) continue;
      if (!lowest || point.value < lowest->value) lowest = point;
    }
    return lowest;
  }

  void swapping() {
    const SystemRow *const in = row(names::swapped_in), *const out = row(names::swapped_out);
    if (!in || !out) return;
    const double in_bytes = sum_of(*in), out_bytes = sum_of(*out);
    if (in_bytes + out_bytes < swapped_bytes) return;
    add("swapping",
        fmt::format("The machine swapped: {} in, {} out, most at {}.",
                    format_bytes(static_cast<std::uint64_t>(in_bytes)),
                    format_bytes(static_cast<std::uint64_t>(out_bytes)),
                    when(in_bytes > out_bytes ? *in : *out)),
        "Use less memory (a smaller batch), or stop what else uses it.");
  }

  void little_memory_left() {
    const SystemRow* const found = row(names::available);
    const auto all = static_cast<double>(samples_.memory_bytes);
    if (!found || all <= 0 || found->min >= little_memory * all) return;
    add("little-memory",
        fmt::format("The machine had only {} of {} left.",
                    format_bytes(static_cast<std::uint64_t>(found->min)),
                    format_bytes(samples_.memory_bytes)),
        "What needs more is killed, or swaps.");
  }

  void disk_faults() {
    const SystemRow* const found = row(names::disk_faults);
    if (!found || found->mean < fault_rate) return;
    add("disk-faults",
        fmt::format("{:.0f} page faults a second had to read a disk, most at {} ({:.0f} a second).",
                    found->mean, when(*found), found->max),
        "Files that are mapped are read for the first time, or were dropped for want of memory.");
  }

  void disk_waits() {
    const SystemRow* found = row(names::waited_disk);
    if (!found) found = row(names::disk_idle);
    if (!found || found->mean < waiting_percent) return;
    const SystemRow *const read = row(names::disk_read), *const written = row(names::disk_written);
    std::string rates;
    if (read && written)
      rates = fmt::format(" Disks read {} and wrote {} on average.",
                          value_text(read->series.unit, read->mean),
                          value_text(written->series.unit, written->mean));
    add("disk-wait",
        fmt::format("Some task waited for a disk {:.1f} % of the time, most at {} ({:.1f} %).{}",
                    found->mean, when(*found), found->max, rates),
        "Read ahead, keep the data in memory, or save checkpoints more rarely.");
  }

  const SystemSamples& samples_;
  std::vector<SystemRow> rows_;
  std::vector<SystemFinding> found_;
};

}  // namespace

std::vector<SystemFinding> system_findings(const SystemSamples& samples) {
  constexpr double ticks_say_something = 0.1;  // seconds
  if (samples.seconds() < ticks_say_something) return {};
  return Findings(samples).all();
}

}  // namespace ridge
