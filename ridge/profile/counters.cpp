#include "ridge/profile/counters.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

constexpr int not_there = -2;
constexpr std::size_t max_group = 8;  // events

int perf_event_paranoid() {
  std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
  int value = not_there;
  file >> value;
  return file ? value : not_there;
}

// User space only: that is where kernels run, and it needs fewer rights.
int open_event(const CounterEvent& event, pid_t thread, int leader) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.disabled = leader < 0;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.read_format =
      PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(
      ::syscall(SYS_perf_event_open, &attributes, thread, -1, leader, PERF_FLAG_FD_CLOEXEC));
}

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string name = entry.path().filename();
    pid_t id = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), id).ec == std::errc())
      threads.push_back(id);
  }
  return threads;
}

// The events that the calling thread can count; `error` is why the last of the others was refused.
std::vector<CounterEvent> available(const std::vector<CounterEvent>& events, int& error) {
  std::vector<CounterEvent> possible;
  for (const CounterEvent& event : events) {
    const int descriptor = open_event(event, 0, -1);
    if (descriptor < 0) {
      error = errno;
      continue;
    }
    ::close(descriptor);
    possible.push_back(event);
  }
  return possible;
}

std::string cpuinfo_value(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto end = line.find_last_not_of(" \t", colon - 1);
    if (std::string_view(line).substr(0, end + 1) != key) continue;
    return colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return "";
}

std::uint64_t raw(std::uint64_t event, std::uint64_t mask) { return event | mask << 8; }

// Retired floating-point operations; a multiply-add counts two. Both makers' events do so.
std::vector<CounterEvent> flop_events(const CpuModel& cpu) {
  constexpr int group = 1;
  const auto event = [](std::uint64_t config, double scale) {
    return CounterEvent{"flops", PERF_TYPE_RAW, config, scale, group};
  };
  if (cpu.vendor == "AuthenticAMD") {
    const bool zen4 = cpu.family == 25 && ((cpu.model >= 0x10 && cpu.model <= 0x1f) ||
                                           (cpu.model >= 0x60 && cpu.model <= 0xaf));
    const bool zen2_to_5 = (cpu.family == 23 && cpu.model >= 0x30) || cpu.family == 25 ||
                           (cpu.family == 26 && cpu.model <= 0x4f);
    if (zen2_to_5) return {event(raw(0x03, zen4 ? 0x1f : 0x0f), 1)};
  }
  if (cpu.vendor == "GenuineIntel" && cpu.family == 6) {
    constexpr std::array models{0x3d, 0x47, 0x4f, 0x56, 0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6,
                                0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, 0x8f, 0xcf, 0xad, 0xae};
    if (std::ranges::find(models, cpu.model) != models.end())
      return {event(raw(0xc7, 0x02), 1), event(raw(0xc7, 0x08), 4), event(raw(0xc7, 0x20), 8),
              event(raw(0xc7, 0x80), 16)};
  }
  return {};
}

std::optional<double> ratio(const CounterReport& report, const OperatorCounts& row,
                            std::string_view above, std::string_view below) {
  const auto a = std::ranges::find(report.names, above);
  const auto b = std::ranges::find(report.names, below);
  if (a == report.names.end() || b == report.names.end()) return std::nullopt;
  const double divisor = row.counts[static_cast<std::size_t>(b - report.names.begin())];
  if (divisor <= 0) return std::nullopt;
  return row.counts[static_cast<std::size_t>(a - report.names.begin())] / divisor;
}

}  // namespace

CpuModel this_cpu() {
  const auto number = [](std::string_view key) {
    const std::string text = cpuinfo_value(key);
    int value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  return {cpuinfo_value("vendor_id"), number("cpu family"), number("model")};
}

std::vector<CounterEvent> hardware_events(const CpuModel& cpu) {
  std::vector<CounterEvent> events{
      {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
      {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
      {"cache references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
      {"cache misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}};
  for (CounterEvent& event : flop_events(cpu)) events.push_back(std::move(event));
  return events;
}

std::string explain_refusal(int error, int paranoid) {
  constexpr int user_space_allowed = 2;
  switch (error) {
    case EACCES:
    case EPERM:
      if (paranoid > user_space_allowed)
        return fmt::format(
            "no hardware counters: kernel.perf_event_paranoid is {}; allow them with sudo sysctl "
            "kernel.perf_event_paranoid=2",
            paranoid);
      return "no hardware counters: this process may not count events; in a container, allow the "
             "system call perf_event_open (docker run --cap-add PERFMON)";
    case ENOSYS:
      return "no hardware counters: this system has no perf_event_open; use a kernel with "
             "CONFIG_PERF_EVENTS, outside of a sandbox";
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
      return "no hardware counters: the processor shows none, as in most virtual machines; turn on "
             "the virtual PMU of the machine (in QEMU -cpu host,pmu=on) or run outside of it";
    case EMFILE:
      return "no hardware counters: too many files are open; raise the limit with ulimit -n";
    default:
      return fmt::format("no hardware counters: {}; see man perf_event_open",
                         std::generic_category().message(error));
  }
}

double extrapolate(std::uint64_t count, std::uint64_t enabled_ns, std::uint64_t running_ns) {
  if (running_ns == 0) return 0;
  if (running_ns >= enabled_ns) return static_cast<double>(count);
  return static_cast<double>(count) * static_cast<double>(enabled_ns) /
         static_cast<double>(running_ns);
}

class HardwareCounters::Group {
 public:
  // Opens and starts the events on a thread. DeviceError if one is refused.
  Group(std::span<const CounterEvent> events, std::size_t first_event, std::size_t time_index,
        pid_t thread)
      : first_event_(first_event), time_index_(time_index) {
    try {
      for (const CounterEvent& event : events) add(event, thread);
      if (::ioctl(descriptors_.front(), PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP) != 0)
        throw DeviceError("{}", explain_refusal(errno, perf_event_paranoid()));
    } catch (...) {
      close();
      throw;
    }
  }
  ~Group() { close(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void add_to(Sums& sums) const {
    // The number of events, the two times, and a count for each event.
    std::array<std::uint64_t, 3 + max_group> values{};
    const auto wanted = static_cast<ssize_t>((3 + descriptors_.size()) * sizeof(std::uint64_t));
    if (::read(descriptors_.front(), values.data(), sizeof values) != wanted)
      throw DeviceError("hardware counters cannot be read: {}",
                        std::generic_category().message(errno));
    sums[time_index_] += values[1];
    sums[time_index_ + 1] += values[2];
    for (std::size_t i = 0; i < descriptors_.size(); ++i) sums[first_event_ + i] += values[3 + i];
  }

 private:
  void add(const CounterEvent& event, pid_t thread) {
    const int leader = descriptors_.empty() ? -1 : descriptors_.front();
    const int descriptor = open_event(event, thread, leader);
    if (descriptor < 0) throw DeviceError("{}", explain_refusal(errno, perf_event_paranoid()));
    descriptors_.push_back(descriptor);
  }

  void close() {
    for (const int descriptor : descriptors_) ::close(descriptor);
  }

  std::vector<int> descriptors_;  // of the leader first
  std::size_t first_event_, time_index_;
};

HardwareCounters::HardwareCounters(const std::vector<CounterEvent>& events) {
  int error = ENOENT;
  events_ = available(events, error);
  if (events_.empty()) throw DeviceError("{}", explain_refusal(error, perf_event_paranoid()));
  std::ranges::stable_sort(events_, {}, &CounterEvent::group);
  for (const CounterEvent& event : events_)
    if (std::ranges::find(names_, event.name) == names_.end()) names_.push_back(event.name);
  const std::vector<pid_t> threads = threads_of_this_process();
  for (std::size_t first = 0, end = 0; first < events_.size(); first = end, ++group_count_) {
    const int group = events_[first].group;
    for (end = first; end < events_.size() && events_[end].group == group; ++end)
      events_[end].group = static_cast<int>(group_count_);
    if (end - first > max_group)
      throw UsageError("a group of {} events is too large: at most {}", end - first, max_group);
    for (const pid_t thread : threads)
      groups_.push_back(std::make_unique<Group>(std::span(events_).subspan(first, end - first),
                                                first, events_.size() + 2 * group_count_, thread));
  }
}

HardwareCounters::~HardwareCounters() = default;

void HardwareCounters::attach(Executor& executor) {
  by_node_.resize(executor.graph().nodes().size());
  executor.observe(*this);
}

void HardwareCounters::detach(Executor& executor) { executor.forget(*this); }

HardwareCounters::Sums HardwareCounters::read() const {
  Sums sums(events_.size() + 2 * group_count_);
  for (const auto& group : groups_) group->add_to(sums);
  return sums;
}

void HardwareCounters::on_node_begin(const Graph&, NodeId) { before_ = read(); }

void HardwareCounters::on_node(const Graph&, NodeId node, Clock::time_point, Clock::time_point) {
  const Sums after = read();
  NodeSums& counted = by_node_[node];
  counted.sums.resize(after.size());
  ++counted.calls;
  for (std::size_t i = 0; i < after.size(); ++i) counted.sums[i] += after[i] - before_[i];
}

std::vector<double> HardwareCounters::counts_of(const Sums& sums) const {
  std::vector<double> counts(names_.size());
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const std::size_t time = events_.size() + 2 * static_cast<std::size_t>(events_[i].group);
    const auto name = std::ranges::find(names_, events_[i].name) - names_.begin();
    counts[static_cast<std::size_t>(name)] +=
        events_[i].scale * extrapolate(sums[i], sums[time], sums[time + 1]);
  }
  return counts;
}

std::vector<HardwareCounters::NodeCounts> HardwareCounters::node_counts() const {
  std::vector<NodeCounts> ran;
  for (NodeId n = 0; n < by_node_.size(); ++n)
    if (by_node_[n].calls > 0) ran.push_back({n, by_node_[n].calls, counts_of(by_node_[n].sums)});
  return ran;
}

double HardwareCounters::counted_fraction() const {
  double least = 1;
  for (std::size_t time = events_.size(); time < events_.size() + 2 * group_count_; time += 2) {
    std::uint64_t enabled = 0, running = 0;
    for (const NodeSums& node : by_node_)
      if (node.calls > 0) enabled += node.sums[time], running += node.sums[time + 1];
    if (enabled > 0)
      least = std::min(least, static_cast<double>(running) / static_cast<double>(enabled));
  }
  return least;
}

CounterReport report_counters(const Graph& graph, const HardwareCounters& counters) {
  return report_counters(graph, counters.names(), counters.node_counts(),
                         counters.counted_fraction());
}

CounterReport report_counters(const Graph& graph, std::vector<std::string> names,
                              std::span<const HardwareCounters::NodeCounts> nodes,
                              double counted_fraction) {
  std::map<std::pair<std::string_view, Phase>, OperatorCounts> rows;
  for (const HardwareCounters::NodeCounts& counts : nodes) {
    const Node& node = graph.nodes()[counts.node];
    OperatorCounts& row = rows[{name_of(*node.op), node.phase}];
    row.op = name_of(*node.op);
    row.phase = node.phase;
    row.calls += counts.calls;
    row.counts.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) row.counts[i] += counts.counts[i];
  }
  CounterReport report{std::move(names), counted_fraction, {}};
  for (auto& [key, row] : rows) report.rows.push_back(std::move(row));
  std::ranges::stable_sort(report.rows, std::greater{},
                           [](const OperatorCounts& row) { return row.counts.front(); });
  return report;
}

std::string counters_text(const CounterReport& report) {
  const auto percent_or_dash = [](std::optional<double> part) {
    return part ? fmt::format("{:.1f} %", 100 * *part) : std::string("-");
  };
  std::string text = fmt::format("{:<20}{:<11}{:>8}", "Operator", "Phase", "Calls");
  for (const std::string& name : report.names) text += fmt::format("{:>18}", name);
  text += fmt::format("{:>12}{:>10}\n", "instr/cycle", "missed");
  for (const OperatorCounts& row : report.rows) {
    text += fmt::format("{:<20}{:<11}{:>8}", row.op, name_of(row.phase), row.calls);
    for (const double count : row.counts) text += fmt::format("{:>18}", format_si(count));
    const auto per_cycle = ratio(report, row, "instructions", "cycles");
    text += fmt::format("{:>12}{:>10}\n", per_cycle ? fmt::format("{:.2f}", *per_cycle) : "-",
                        percent_or_dash(ratio(report, row, "cache misses", "cache references")));
  }
  if (report.counted_fraction < 0.999)
    text += fmt::format(
        "The processor has too few counters for all events at once: one was counted for {:.0f} % "
        "of the time, and the rest extrapolated.\n",
        100 * report.counted_fraction);
  return text;
}

std::string counters_json(const CounterReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const OperatorCounts& row : report.rows) {
    nlohmann::ordered_json json = {
        {"operator", row.op}, {"phase", name_of(row.phase)}, {"calls", row.calls}};
    for (std::size_t i = 0; i < report.names.size(); ++i) {
      std::string key = report.names[i];
      std::ranges::replace(key, ' ', '_');
      json[key] = row.counts[i];
    }
    rows.push_back(std::move(json));
  }
  const nlohmann::ordered_json json = {{"counted_fraction", report.counted_fraction},
                                       {"operators", std::move(rows)}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
