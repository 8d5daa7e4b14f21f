#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/trace/report.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

constexpr std::size_t name_width = 60;

std::string count(std::uint64_t number) { return format_count(static_cast<std::int64_t>(number)); }

// A table without the columns in which no row has a value, as those of a card where none ran.
std::string titled(std::string_view title, std::span<const TextColumn> columns,
                   std::span<const TextRow> rows) {
  if (rows.empty()) return "";
  std::vector<TextColumn> with_values;
  std::vector<TextRow> cells(rows.size());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (std::ranges::all_of(rows,
                            [&](const TextRow& row) { return c < row.size() && row[c] == "-"; }))
      continue;
    with_values.push_back(columns[c]);
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (c < rows[r].size()) cells[r].push_back(rows[r][c]);
  }
  return fmt::format("\n{}\n{}", title, text_table(with_values, cells));
}

std::string head_text(const Report& report) {
  std::string head = printable(report.file);
  if (report.rank) head += fmt::format(", rank {}", *report.rank);
  if (!report.device.empty()) head += ", " + printable(report.device);
  head += ", " + counted(static_cast<std::int64_t>(report.events), "event");
  if (report.is_of_counters())
    head += "; nothing ran on a card or in an operator, so there are counters alone";
  else if (report.of_host)
    head += "; nothing ran on a card, so the times are of the host's operators";
  return wrapped(head, sentence_width, "  ") + "\n" + damage_text(report.damage);
}

TextRow use_row(std::string name, const TimeUse& use) {
  return {std::move(name),
          time(use.span),
          part_of(use.busy, use.span),
          part_of(use.compute, use.span),
          part_of(use.communication, use.span),
          part_of(use.exposed_communication, use.span),
          part_of(use.copy, use.span),
          part_of(use.idle, use.span),
          count(use.kernels)};
}

std::string use_text(const Report& report, std::size_t top) {
  const TextColumn columns[] = {
      {"Step", true}, {"Span"},          {"Busy"},
      {"Computing"},  {"Communicating"}, {"exposed"},
      {"Copying"},    {"Idle"},          {report.of_host ? "Operators" : "Kernels"}};
  std::vector<TextRow> rows = {use_row("all", report.use)};
  const std::size_t shown = std::min(top, report.steps.size());
  for (std::size_t i = 0; i < shown; ++i)
    rows.push_back(use_row(fmt::format("{}", report.steps[i].number), report.steps[i].use));
  if (shown < report.steps.size())
    rows.push_back({fmt::format("{} more", report.steps.size() - shown)});
  return titled("Where the time went, in parts of the span", columns, rows);
}

std::string phases_text(const Report& report) {
  const bool with_memory = std::ranges::any_of(
      report.phases, [](const PhaseUse& phase) { return phase.peak_allocated > 0; });
  std::vector<TextColumn> columns = {{"Part of the step", true},
                                     {"Busy"},
                                     {"of the span"},
                                     {report.of_host ? "Operators" : "Kernels"}};
  if (with_memory) columns.push_back({"Peak allocated"});
  std::vector<TextRow> rows;
  for (const PhaseUse& phase : report.phases) {
    rows.push_back({phase_name(phase.phase), time(phase.busy_us),
                    part_of(phase.busy_us, report.use.span), count(phase.kernels)});
    if (with_memory)
      rows.back().push_back(phase.peak_allocated > 0
                                ? format_bytes(static_cast<std::uint64_t>(phase.peak_allocated))
                                : "-");
  }
  return titled("Forward, backward and the rest", columns, rows);
}

// The modules that take most, as a tree: each stands within those around it, which take no less.
std::string modules_text(const Report& report, std::size_t top) {
  const auto time_of = [&](const ModuleUse& module) {
    return report.of_host ? module.host_us : module.device_us;
  };
  std::vector<double> times;
  for (const ModuleUse& module : report.modules) times.push_back(time_of(module));
  std::ranges::sort(times, std::greater());
  const double least = times.size() > top ? times[top] : -1;
  const TextColumn columns[] = {
      {"Module", true, name_width}, {"Calls"}, {"Host"}, {"Card"}, {"of the span"}, {"Kernels"}};
  std::vector<TextRow> rows;
  for (const ModuleUse& module : report.modules) {
    if (time_of(module) <= least) continue;
    rows.push_back({std::string(2 * module.depth, ' ') + module.name, count(module.calls),
                    time(module.host_us), report.of_host ? "-" : time(module.device_us),
                    part_of(time_of(module), report.use.span),
                    report.of_host ? "-" : count(module.kernels)});
  }
  return titled(fmt::format("Modules, forward ({})", report.modules.size()), columns, rows);
}

std::string idle_text(const Report& report, std::size_t top) {
  const TextColumn columns[] = {
      {"Why it was idle", true}, {"Time"}, {"of the span"}, {"Stretches"}};
  std::vector<TextRow> rows;
  for (std::size_t i = 0; i < idle_causes; ++i) {
    const IdleTime::OfCause& cause = report.idle.by_cause[i];
    if (cause.stretches == 0) continue;
    const std::string why =
        report.of_host ? "no operator ran" : idle_cause_sentence(static_cast<IdleCause>(i));
    rows.push_back(
        {why, time(cause.us), part_of(cause.us, report.use.span), count(cause.stretches)});
  }
  std::string text = titled("Idle time", columns, rows);
  const TextColumn host_columns[] = {
      {"What the host did meanwhile", true, name_width}, {"Time"}, {"of the span"}, {"Stretches"}};
  rows.clear();
  for (std::size_t i = 0; i < std::min(top, report.idle.host.size()); ++i) {
    const IdleTime::HostShare& share = report.idle.host[i];
    rows.push_back(
        {share.name.empty() ? "(Python, outside of operators and annotations)" : share.name,
         time(share.us), part_of(share.us, report.use.span), count(share.stretches)});
  }
  return text + titled("The host while the card waited for a launch", host_columns, rows);
}

std::string kernels_text(const Report& report, std::size_t top) {
  if (report.of_host) return "";
  const TextColumn columns[] = {
      {"Kernel", true, name_width}, {"Calls"}, {"Time"}, {"of busy"}, {"Mean"}, {"Min"}, {"Max"}};
  std::vector<TextRow> rows;
  for (std::size_t i = 0; i < std::min(top, report.kernels.size()); ++i) {
    const KernelSum& sum = report.kernels[i];
    rows.push_back({short_kernel_name(sum.name), count(sum.count), time(sum.us),
                    part_of(sum.us, report.use.busy), time(sum.us / static_cast<double>(sum.count)),
                    time(sum.min_us), time(sum.max_us)});
  }
  return titled(fmt::format("Kernels ({} names)", report.kernels.size()), columns, rows);
}

std::string operators_text(const Report& report, std::size_t top) {
  const TextColumn columns[] = {{"Operator", true, 44},
                                {"Input shapes", true, 40},
                                {"Calls"},
                                {"Host self"},
                                {"Card"},
                                {"Kernels"},
                                {"TFLOP/s"},
                                {"GB/s"},
                                {"Floor"}};
  std::vector<TextRow> rows;
  for (std::size_t i = 0; i < std::min(top, report.operators.size()); ++i) {
    const OperatorSum& sum = report.operators[i];
    const double busy = report.of_host ? sum.host_us : sum.device_us;
    const auto rate = [&](double work, double unit) {
      return work > 0 && busy > 0 ? fmt::format("{:.3g}", work / busy * 1e6 / unit) : "-";
    };
    rows.push_back({sum.name, sum.shape, count(sum.count), time(sum.self_host_us),
                    report.of_host ? "-" : time(sum.device_us),
                    report.of_host ? "-" : count(sum.kernels), rate(sum.flops, 1e12),
                    rate(sum.bytes, 1e9),
                    sum.floor_us > 0 && busy > 0 ? format_percent(sum.floor_us / busy) : "-"});
  }
  return titled(fmt::format("Operators by name and shape ({})", report.operators.size()), columns,
                rows);
}

std::string copies_text(const Report& report, std::size_t top) {
  const TextColumn columns[] = {
      {"Copy or fill", true, name_width}, {"Calls"}, {"Time"}, {"Bytes"}, {"GB/s"}};
  std::vector<TextRow> rows;
  for (std::size_t i = 0; i < std::min(top, report.copies.size()); ++i) {
    const CopySum& sum = report.copies[i];
    const bool known = sum.bytes > 0 && sum.us > 0;
    rows.push_back(
        {sum.name, count(sum.count), time(sum.us),
         known ? format_bytes(static_cast<std::uint64_t>(sum.bytes)) : "-",
         known ? fmt::format("{:.3g}", static_cast<double>(sum.bytes) / sum.us * 1e-3) : "-"});
  }
  return titled("Copies", columns, rows);
}

std::string launches_text(const Report& report, std::size_t top) {
  const LaunchStatistics& launches = report.launches;
  const TextColumn columns[] = {
      {"Launching call", true, name_width}, {"Calls"}, {"Host time"}, {"Mean"}};
  std::vector<TextRow> rows;
  for (std::size_t i = 0; i < std::min(top, launches.calls.size()); ++i) {
    const LaunchSum& sum = launches.calls[i];
    rows.push_back({sum.call, count(sum.count), time(sum.host_us),
                    time(sum.host_us / static_cast<double>(sum.count))});
  }
  std::string text = titled("Launches", columns, rows);
  if (launches.median_delay_us)
    text += wrapped(fmt::format(
                        "From a call's return to its first work: median {}, 90 % within {}. "
                        "At a launch, {:.1f} launches were waiting or running on average, {} at "
                        "most. {} kernels took less than {:.0f} µs, {} in all.",
                        time(*launches.median_delay_us), time(*launches.p90_delay_us),
                        launches.mean_queue, launches.longest_queue, count(launches.short_kernels),
                        LaunchStatistics::short_kernel_us, time(launches.short_us)),
                    sentence_width) +
            "\n";
  return text;
}

std::string memory_text(const Report& report) {
  const TextColumn columns[] = {{"Memory", true},  {"Peak allocated"}, {"at"},
                                {"Peak reserved"}, {"At the end"},     {"Allocations"}};
  std::vector<TextRow> rows;
  const auto bytes = [](std::int64_t size) {
    return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 0)));
  };
  for (const MemoryUse& use : report.memory)
    rows.push_back({use.device < 0 ? "host" : fmt::format("card {}", use.device),
                    bytes(use.peak_allocated), time(use.peak_at_us), bytes(use.peak_reserved),
                    bytes(use.final_allocated), count(use.allocations)});
  return titled("Memory", columns, rows);
}

std::string findings_text(const Report& report) {
  std::string text = "\nWhat would help\n";
  if (report.findings.empty())
    return text + "Nothing that this report knows of is worth a hundredth of the time.\n";
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    text += wrapped(fmt::format("{}. {} Up to {} of the time. {} {} [{}]", i + 1, finding.what,
                                format_percent(finding.gain_part), finding.remedy, finding.see,
                                finding.rule),
                    sentence_width, "   ") +
            "\n";
  }
  return text;
}

std::string together_text(const std::vector<Report>& reports, const RanksTogether& together,
                          std::size_t top) {
  const TextColumn columns[] = {{"Rank", true},    {"Span"},       {"Computing"}, {"Communicating"},
                                {"exposed"},       {"Idle"},       {"Waited"},    {"Came last"},
                                {"Others waited"}, {"Clock ahead"}};
  const Arrivals& arrivals = together.arrivals;
  std::vector<TextRow> rows;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const TimeUse& use = reports[r].use;
    const Arrivals::OfRank& came = arrivals.ranks[r];
    rows.push_back(
        {printable(reports[r].name()), time(use.span), part_of(use.compute, use.span),
         part_of(use.communication, use.span), part_of(use.exposed_communication, use.span),
         part_of(use.idle, use.span), time(us(came.waited_ns)),
         part_of(static_cast<double>(came.last), static_cast<double>(arrivals.collectives)),
         time(us(came.caused_ns)), time(us(arrivals.ahead_ns[r]))});
  }
  std::string text = fmt::format("{} ranks", reports.size());
  text +=
      titled(fmt::format("Ranks, by {} that all have ({} that not all have are left out)",
                         counted(arrivals.collectives, "collective"), count(together.unmatched)),
             columns, rows);
  const Arrivals::OfRank& latest = arrivals.ranks[latest_of(arrivals)];
  text += us(latest.caused_ns) < 0.01 * reports.front().use.span
              ? "No rank keeps the others waiting for a hundredth of the time.\n"
              : fmt::format(
                    "Rank {} comes last to {} of the collectives; the first to come wait {} for "
                    "it.\n",
                    printable(reports[latest_of(arrivals)].name()),
                    part_of(static_cast<double>(latest.last),
                            static_cast<double>(arrivals.collectives)),
                    time(us(latest.caused_ns)));
  const TextColumn sums[] = {{"Collective", true, name_width},
                             {"Bytes"},
                             {"Ranks"},
                             {"Calls"},
                             {"Median"},
                             {"Bus bandwidth"},
                             {"First waited"}};
  rows.clear();
  for (std::size_t i = 0; i < std::min(top, together.collectives.size()); ++i) {
    const RanksTogether::Collective& sum = together.collectives[i];
    rows.push_back(
        {sum.name, sum.bytes > 0 ? format_bytes(static_cast<std::uint64_t>(sum.bytes)) : "-",
         sum.group_size > 0 ? fmt::format("{}", sum.group_size) : "-", count(sum.count),
         time(sum.median_us),
         sum.bus_bandwidth > 0 ? fmt::format("{:.3g} GB/s", sum.bus_bandwidth * 1e-9) : "-",
         time(sum.waited_us)});
  }
  return text + titled("Collectives, from the begin of the last rank to the end", sums, rows);
}

}  // namespace

std::string damage_text(const Damage& damage) {
  std::string text;
  const auto say = [&](const std::string& sentence) {
    text += wrapped("note: " + sentence, sentence_width, "  ") + "\n";
  };
  if (!damage.unpacking.empty())
    say(fmt::format("the gzip file is {}; what could be unpacked is read", damage.unpacking));
  if (damage.cut_short)
    say("the file ends within its list of events, which is read as far as it goes");
  if (damage.lost_bytes > 0)
    say(fmt::format("no event could be read from {} of it, the first at byte {}",
                    format_bytes(damage.lost_bytes), count(damage.first_at)));
  if (damage.repaired_bytes > 0)
    say(fmt::format("{} that no JSON may have stood in it, and were replaced",
                    counted(static_cast<std::int64_t>(damage.repaired_bytes), "byte")));
  return text;
}

std::string report_text(const RunReport& run, std::size_t top) {
  const std::vector<Report>& reports = run.ranks;
  std::string text;
  std::vector<std::size_t> shown = {0};
  if (reports.size() == 2) shown = {0, 1};
  if (run.together) {
    text = together_text(reports, *run.together, top);
    const std::size_t latest = latest_of(run.together->arrivals);
    if (reports.size() > 2 && latest > 0) shown.push_back(latest);
  }
  for (const std::size_t r : shown) {
    const Report& report = reports[r];
    if (!text.empty()) text += "\n\n";
    text += head_text(report);
    if (!report.is_of_counters())
      text += findings_text(report) + use_text(report, top) + phases_text(report) +
              idle_text(report, top) + modules_text(report, top) + kernels_text(report, top) +
              operators_text(report, top) + copies_text(report, top) + launches_text(report, top) +
              memory_text(report);
    text += counters_text(report.counters);
  }
  if (shown.size() < reports.size())
    text += fmt::format("\n{} more are left out: give their files, or --json.\n",
                        counted(static_cast<std::int64_t>(reports.size() - shown.size()), "trace"));
  if (!run.left_out.empty()) text += "\nLeft out of the directory:\n";
  for (const std::string& file : run.left_out) text += "  " + file + "\n";
  return text;
}

}  // namespace ridge::trace
