#include "ridge/profile/device_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

using Kind = Activity::Kind;

constexpr std::size_t gaps_kept = 20, gaps_shown = 5, kernels_shown = 20;
constexpr std::size_t kernel_width = 60;
constexpr double clock_tolerance = 0.03;

// The length of a union of intervals that come by begin.
class Covered {
 public:
  void add(std::int64_t begin_ns, std::int64_t end_ns) {
    begin_ns = std::max(begin_ns, until_ns_);
    if (end_ns <= begin_ns) return;
    ns_ += end_ns - begin_ns;
    until_ns_ = end_ns;
  }
  std::int64_t ns() const { return ns_; }
  std::int64_t until_ns() const { return until_ns_; }

 private:
  std::int64_t ns_ = 0, until_ns_ = std::numeric_limits<std::int64_t>::min();
};

std::string op_name(const Recording& recording, NodeId node) {
  return node == no_node ? std::string() : std::string(name_of(*recording.graph->nodes()[node].op));
}

std::string node_text(const Recording& recording, NodeId node) {
  if (node == no_node) return "no node";
  const Node& n = recording.graph->nodes()[node];
  const std::string& scope = recording.graph->scope_name(n.scope);
  return printable(fmt::format("{}{}{} ({})", scope, scope.empty() ? "" : ": ", name_of(*n.op),
                               name_of(n.phase)));
}

std::vector<DeviceReport::Kernel> kernels_by_time(const Recording& recording) {
  std::map<std::uint32_t, DeviceReport::Kernel> by_name;
  std::map<std::uint32_t, std::map<std::string, std::int64_t>> operators;
  for (const Activity& activity : recording.activities) {
    if (activity.kind != Kind::kernel) continue;
    DeviceReport::Kernel& kernel = by_name[activity.name];
    const std::int64_t ns = activity.end_ns - activity.begin_ns;
    if (kernel.calls++ == 0 || ns > kernel.longest.end_ns - kernel.longest.begin_ns)
      kernel.longest = activity;
    kernel.total_ns += ns;
    operators[activity.name][op_name(recording, activity.node)] += ns;
  }
  std::vector<DeviceReport::Kernel> kernels;
  for (auto& [name, kernel] : by_name) {
    kernel.name = demangled(recording.activity_names[name]);
    kernel.op = std::ranges::max_element(operators[name], {}, [](const auto& entry) {
                  return entry.second;
                })->first;
    kernel.occupancy = theoretical_occupancy(recording.processor, kernel.longest);
    kernels.push_back(std::move(kernel));
  }
  std::ranges::stable_sort(kernels, std::greater{}, &DeviceReport::Kernel::total_ns);
  return kernels;
}

std::string extents(const std::array<std::uint32_t, 3>& of) {
  if (of[2] > 1) return fmt::format("{}x{}x{}", of[0], of[1], of[2]);
  return of[1] > 1 ? fmt::format("{}x{}", of[0], of[1]) : fmt::format("{}", of[0]);
}

std::string duration(std::int64_t ns) { return format_duration(static_cast<double>(ns) * 1e-9); }

}  // namespace

double DeviceReport::idle_fraction() const {
  if (step_ns <= 0) return 0;
  return std::max(0.0, 1 - static_cast<double>(kernel_ns) / static_cast<double>(step_ns));
}

double DeviceReport::unattributed_fraction() const {
  return busy_ns > 0 ? static_cast<double>(unattributed_ns) / static_cast<double>(busy_ns) : 0;
}

std::optional<DeviceReport> device_report(const Recording& recording) {
  if (recording.activities.empty()) return std::nullopt;
  DeviceReport report;
  report.steps = static_cast<std::int64_t>(recording.steps.size());
  report.replays = static_cast<std::int64_t>(recording.replays.size());
  report.dropped = recording.activities_dropped;
  report.out_of_order = recording.activities_out_of_order;
  for (const Recording::Step& step : recording.steps) report.step_ns += step.end_ns - step.begin_ns;
  Covered busy, kernels, attributed;
  NodeId last = no_node;
  for (const Activity& a : recording.activities) {
    report.kernels += a.kind == Kind::kernel;
    report.copies += a.kind == Kind::copy;
    report.fills += a.kind == Kind::fill;
    report.calls += a.kind == Kind::call;
    if (a.kind == Kind::copy) report.bytes_copied += a.bytes;
    if (a.kind == Kind::overhead) report.overhead_ns += a.end_ns - a.begin_ns;
    if (!a.on_device()) continue;
    if (busy.ns() > 0 && a.begin_ns > busy.until_ns())
      report.longest_gaps.push_back({busy.until_ns(), a.begin_ns, last, a.node});
    if (a.end_ns > busy.until_ns()) last = a.node;
    busy.add(a.begin_ns, a.end_ns);
    if (a.kind == Kind::kernel) kernels.add(a.begin_ns, a.end_ns);
    if (a.node != no_node) attributed.add(a.begin_ns, a.end_ns);
  }
  report.busy_ns = busy.ns();
  report.kernel_ns = kernels.ns();
  report.unattributed_ns = busy.ns() - attributed.ns();
  std::ranges::stable_sort(report.longest_gaps, std::greater{},
                           [](const DeviceReport::Gap& gap) { return gap.end_ns - gap.begin_ns; });
  if (report.longest_gaps.size() > gaps_kept) report.longest_gaps.resize(gaps_kept);
  report.kernels_by_time = kernels_by_time(recording);
  return report;
}

bool ClockReport::dropped() const {
  return samples > 1 && min_mhz < (1 - clock_tolerance) * max_mhz;
}

ClockReport clock_report(std::span<const CardState> samples) {
  ClockReport report;
  for (const CardState& state : samples) {
    if (state.throttle & CardState::idle || state.sm_mhz == 0) continue;
    if (report.samples++ == 0) report.first_mhz = report.min_mhz = state.sm_mhz;
    report.last_mhz = state.sm_mhz;
    report.min_mhz = std::min(report.min_mhz, state.sm_mhz);
    report.max_mhz = std::max(report.max_mhz, state.sm_mhz);
    report.reasons |= state.throttle;
  }
  return report;
}

std::string clock_reasons(const ClockReport& report) {
  struct Reason {
    std::uint64_t bits;
    std::string_view text;
  };
  constexpr Reason reasons[] = {
      {CardState::power_cap, "its power limit"},
      {CardState::thermal | CardState::hardware_thermal, "heat"},
      {CardState::power_brake | CardState::hardware_slowdown,
       "the server's power supply or cooling"},
      {CardState::application_setting, "a clock that was set for applications"},
      {CardState::sync_boost, "the slowest card of a group"}};
  std::string because;
  for (const auto& [bits, text] : reasons)
    if (report.reasons & bits) because += fmt::format("{}{}", because.empty() ? "" : ", ", text);
  return because.empty() ? "the driver gives no reason" : because;
}

std::string clock_warning(const ClockReport& report) {
  if (!report.dropped()) return "";
  return fmt::format(
      "The GPU's clock fell during the measurement, from {} to {} MHz ({}): times of its parts do "
      "not compare; the limit that nvidia-smi -q -d PERFORMANCE shows is the cause",
      report.max_mhz, report.min_mhz, clock_reasons(report));
}

std::string card_use_text(std::span<const CardState> samples) {
  if (samples.empty()) return "";
  double busy = 0, memory = 0, power = 0;
  int hottest = 0;
  for (const CardState& state : samples) {
    busy += state.busy_percent;
    memory += state.memory_busy_percent;
    power += state.power_w;
    hottest = std::max(hottest, state.temperature_c);
  }
  const auto n = static_cast<double>(samples.size());
  return fmt::format(
      "While it ran, the card was {:.0f} % busy, its memory {:.0f} %, at {:.0f} W and up to {} C "
      "(means of {} samples of the driver)",
      busy / n, memory / n, power / n, hottest, samples.size());
}

std::string device_report_text(const Recording& recording, const DeviceReport& report) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(report.steps, 1));
  const auto per_step = [&](std::int64_t count) {
    return fmt::format("{:.1f}", static_cast<double>(count) / steps);
  };
  std::string text = fmt::format(
      "Device activity of {} steps: {} kernels, {} copies ({}), {} fills a step; {} calls of the "
      "driver and {} replays of captured graphs a step\n"
      "No kernel ran for {} of the time; {} of the busy time belongs to no node\n",
      report.steps, per_step(report.kernels), per_step(report.copies),
      format_bytes(static_cast<std::uint64_t>(static_cast<double>(report.bytes_copied) / steps)),
      per_step(report.fills), per_step(report.calls), per_step(report.replays),
      format_percent(report.idle_fraction()), format_percent(report.unattributed_fraction()));
  if (report.dropped > 0)
    text += fmt::format("{} activities are missing: the buffers had no room for them\n",
                        report.dropped);
  if (report.out_of_order > 0)
    text += fmt::format(
        "{} activities seem to precede their launch: the device's clock was converted badly, so "
        "compare times on the device with each other only\n",
        report.out_of_order);
  const std::vector<TextColumn> columns{{"Kernel", true, kernel_width},
                                        {"Operator", true},
                                        {"Calls"},
                                        {"Total"},
                                        {"Share"},
                                        {"Longest"},
                                        {"Grid"},
                                        {"Block"},
                                        {"Regs"},
                                        {"Shared"},
                                        {"Occupancy"}};
  std::vector<TextRow> rows;
  for (const DeviceReport::Kernel& kernel : report.kernels_by_time) {
    if (rows.size() == kernels_shown) break;
    const Activity& a = kernel.longest;
    rows.push_back(
        {kernel.name, kernel.op, format_count(kernel.calls), duration(kernel.total_ns),
         format_percent(static_cast<double>(kernel.total_ns) /
                        static_cast<double>(std::max<std::int64_t>(report.kernel_ns, 1))),
         duration(a.end_ns - a.begin_ns), extents(a.grid), extents(a.block),
         std::to_string(a.registers), format_bytes(a.static_shared + a.dynamic_shared),
         kernel.occupancy > 0 ? format_percent(kernel.occupancy) : "-"});
  }
  text += text_table(columns, rows);
  if (report.kernels_by_time.size() > rows.size())
    text += fmt::format("and {} more kernels\n", report.kernels_by_time.size() - rows.size());
  if (!report.longest_gaps.empty()) text += "Longest times without work:\n";
  for (std::size_t i = 0; i < std::min(gaps_shown, report.longest_gaps.size()); ++i) {
    const DeviceReport::Gap& gap = report.longest_gaps[i];
    text += fmt::format("  {:>10}  between {} and {}\n", duration(gap.end_ns - gap.begin_ns),
                        node_text(recording, gap.after), node_text(recording, gap.before));
  }
  return text;
}

std::string device_report_json(const Recording& recording, const DeviceReport& report) {
  using Json = nlohmann::ordered_json;
  Json kernels = Json::array(), gaps = Json::array();
  for (const DeviceReport::Kernel& kernel : report.kernels_by_time)
    kernels.push_back({{"name", kernel.name},
                       {"operator", kernel.op},
                       {"calls", kernel.calls},
                       {"total_ns", kernel.total_ns},
                       {"longest_ns", kernel.longest.end_ns - kernel.longest.begin_ns},
                       {"grid", kernel.longest.grid},
                       {"block", kernel.longest.block},
                       {"registers", kernel.longest.registers},
                       {"static_shared_bytes", kernel.longest.static_shared},
                       {"dynamic_shared_bytes", kernel.longest.dynamic_shared},
                       {"local_bytes_per_thread", kernel.longest.local_memory},
                       {"theoretical_occupancy", kernel.occupancy}});
  for (const DeviceReport::Gap& gap : report.longest_gaps)
    gaps.push_back({{"begin_ns", gap.begin_ns},
                    {"ns", gap.end_ns - gap.begin_ns},
                    {"after", node_text(recording, gap.after)},
                    {"before", node_text(recording, gap.before)}});
  const Json json = {{"steps", report.steps},
                     {"step_ns", report.step_ns},
                     {"busy_ns", report.busy_ns},
                     {"kernel_ns", report.kernel_ns},
                     {"unattributed_ns", report.unattributed_ns},
                     {"idle_fraction", report.idle_fraction()},
                     {"unattributed_fraction", report.unattributed_fraction()},
                     {"kernels", report.kernels},
                     {"copies", report.copies},
                     {"fills", report.fills},
                     {"bytes_copied", report.bytes_copied},
                     {"calls", report.calls},
                     {"replays", report.replays},
                     {"tracing_overhead_ns", report.overhead_ns},
                     {"dropped", report.dropped},
                     {"out_of_order", report.out_of_order},
                     {"kernels_by_time", std::move(kernels)},
                     {"longest_gaps", std::move(gaps)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
