#include "ridge/profile/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/memory_answers.h"
#include "ridge/profile/module_tree.h"

namespace ridge {
namespace {

using Change = Recording::MemoryChange;

constexpr std::string_view rule = "==========================================\n";

// The level of live bytes over time, between two moments: a step function, 0 before the first
// change.
class LevelBetween {
 public:
  LevelBetween(const std::vector<Change>& changes, std::int64_t begin_ns, std::int64_t end_ns)
      : begin_ns_(begin_ns), end_ns_(end_ns) {
    const auto until = [&](std::int64_t ns) {
      return std::ranges::partition_point(changes,
                                          [=](const Change& c) { return c.time_ns <= ns; });
    };
    first_ = until(begin_ns);
    last_ = until(end_ns);
    at_begin_ = first_ == changes.begin() ? 0 : std::prev(first_)->live;
  }

  std::uint64_t peak() const {
    std::uint64_t peak = at_begin_;
    for (auto c = first_; c != last_; ++c) peak = std::max(peak, c->live);
    return peak;
  }

  double byte_ns() const {
    double sum = 0;
    std::uint64_t live = at_begin_;
    std::int64_t since = begin_ns_;
    for (auto c = first_; c != last_; ++c) {
      sum += static_cast<double>(live) * static_cast<double>(c->time_ns - since);
      live = c->live;
      since = c->time_ns;
    }
    return sum + static_cast<double>(live) * static_cast<double>(end_ns_ - since);
  }

  std::uint64_t at_end() const { return first_ == last_ ? at_begin_ : std::prev(last_)->live; }
  std::int64_t allocations() const {
    return std::count_if(first_, last_, [](const Change& c) { return c.bytes > 0; });
  }

 private:
  std::int64_t begin_ns_, end_ns_;
  std::vector<Change>::const_iterator first_, last_;
  std::uint64_t at_begin_ = 0;
};

void add_levels(const Recording& recording, MemoryReport& report) {
  double byte_ns = 0, ns = 0;
  std::vector<TimeSpan> spans;
  for (const Recording::Step& step : recording.steps) spans.push_back({step.begin_ns, step.end_ns});
  if (spans.empty()) spans.push_back(recorded_span(recording));
  for (const TimeSpan& span : spans) {
    const LevelBetween level(recording.memory, span.begin_ns, span.end_ns);
    byte_ns += level.byte_ns();
    ns += static_cast<double>(span.end_ns - span.begin_ns);
    report.allocations += level.allocations();
    report.released_to = level.at_end();
  }
  report.average = ns > 0 ? byte_ns / ns : 0;
  for (const Recording::PhaseRun& run : recording.phases) {
    std::uint64_t& peak = report.peak_by_phase[static_cast<int>(run.phase)];
    peak = std::max(peak, LevelBetween(recording.memory, run.begin_ns, run.end_ns).peak());
  }
}

// What was allocated by the first `count` changes and not released again.
std::vector<Change> alive_after(const std::vector<Change>& changes, std::size_t count) {
  std::map<std::uint64_t, Change> by_address;
  for (std::size_t i = 0; i < count; ++i) {
    if (changes[i].bytes > 0)
      by_address.insert_or_assign(changes[i].address, changes[i]);
    else
      by_address.erase(changes[i].address);
  }
  std::vector<Change> alive;
  for (const auto& [address, change] : by_address) alive.push_back(change);
  return alive;
}

std::vector<TensorMemory> tensors_of(const Recording& recording, const MemoryOwners& owners,
                                     const std::vector<Change>& at_peak) {
  const std::int64_t begin = recorded_span(recording).begin_ns;
  std::map<std::pair<bool, std::uint32_t>, TensorMemory> by_owner;
  for (const Change& c : recording.memory) {
    if (c.bytes < 0) continue;
    TensorMemory& tensor = by_owner[{c.workspace, c.owner}];
    if (tensor.bytes == 0) {
      tensor.name = owners.name_of(c);
      tensor.group = owners.group_of(c);
      if (!c.workspace) tensor.type = recording.graph->info(c.owner).type.to_string();
    }
    tensor.bytes = std::max(tensor.bytes, allocated_for(c.bytes));
    tensor.times_allocated += c.time_ns > begin;
  }
  for (const Change& c : at_peak) by_owner[{c.workspace, c.owner}].alive_at_peak = true;
  std::vector<TensorMemory> tensors;
  for (auto& [owner, tensor] : by_owner) tensors.push_back(std::move(tensor));
  std::ranges::stable_sort(tensors, std::greater{}, &TensorMemory::bytes);
  return tensors;
}

// Tensors of one kind, type, group and size, such as the same activation of every layer.
struct TensorKind {
  const TensorMemory* example;
  std::int64_t count = 0, at_peak = 0;
};

// In the order of the tensors, which is that of size; of one size, most together first.
std::vector<TensorKind> kinds_of(const std::vector<TensorMemory>& tensors) {
  std::map<std::tuple<std::string, std::string, MemoryGroup, std::uint64_t>, std::size_t> known;
  std::vector<TensorKind> kinds;
  for (const TensorMemory& t : tensors) {
    const auto [it, added] =
        known.try_emplace({kind_of(t.name), t.type, t.group, t.bytes}, kinds.size());
    if (added) kinds.push_back({&t});
    ++kinds[it->second].count;
    kinds[it->second].at_peak += t.alive_at_peak;
  }
  std::ranges::stable_sort(kinds, std::greater{}, [](const TensorKind& k) {
    return std::pair(k.example->bytes, k.count);
  });
  return kinds;
}

std::string when(const MemoryReport& r) {
  if (r.peak_step == 0) return "before the first step";
  return fmt::format("step {}, {} phase, when {} was allocated", r.peak_step, name_of(r.peak_phase),
                     shortened(printable(r.peak_owner), 60));
}

std::string summary_lines(const MemoryReport& r) {
  std::string text;
  const auto line = [&](std::string_view label, std::string_view value) {
    text += fmt::format("{}: {}\n", label, value);
  };
  line("Peak Memory Usage", memory_text(r.peak));
  line("Average Memory Usage", memory_text(r.average));
  line("Memory at Forward Pass", memory_text(r.peak_by_phase[0]));
  line("Memory at Backward Pass", memory_text(r.peak_by_phase[1]));
  line("Memory at Optimizer Step", memory_text(r.peak_by_phase[2]));
  line("Memory after the Last Step", memory_text(r.released_to));
  line("Number of Allocations",
       r.steps > 1
           ? fmt::format("{} in {} steps ({:.0f} a step)", format_count(r.allocations), r.steps,
                         static_cast<double>(r.allocations) / static_cast<double>(r.steps))
           : format_count(r.allocations));
  if (!r.tensors.empty()) {
    const TensorMemory& t = r.tensors.front();
    line("Largest Tensor",
         fmt::format("{} ({})", memory_text(t.bytes), shortened(printable(t.name), 60)));
  }
  line("Peak-to-Average Ratio", fmt::format("{:.2f}", r.peak_to_average()));
  line("Reserved from the System",
       fmt::format("{} at the peak, {} at most", memory_text(r.reserved_at_peak),
                   memory_text(r.peak_reserved)));
  line("Fragmentation at the Peak", fmt::format("{:.1f} %", 100 * r.fragmentation()));
  line("Peak Occurs", when(r));
  return text;
}

}  // namespace

std::string memory_text(double bytes) { return format_megabytes(bytes, 2); }

MemoryReport memory_report(const Recording& recording) {
  MemoryReport report{.steps = static_cast<std::int64_t>(recording.steps.size())};
  report.dropped = recording.dropped;
  if (recording.memory.empty()) return report;
  const MemoryOwners owners(*recording.graph);
  const auto peak = std::ranges::max_element(recording.memory, {}, &Change::live);
  for (const Change& c : recording.memory)
    report.peak_reserved = std::max(report.peak_reserved, c.reserved);
  report.peak = peak->live;
  report.peak_ns = peak->time_ns;
  report.peak_step = peak->step;
  report.peak_phase = peak->phase;
  report.peak_owner = owners.name_of(*peak);
  report.reserved_at_peak = peak->reserved;
  add_levels(recording, report);

  const std::vector<Change> alive =
      alive_after(recording.memory, static_cast<std::size_t>(peak - recording.memory.begin()) + 1);
  std::uint64_t known = 0;
  for (const Change& c : alive) {
    report.at_peak[static_cast<std::size_t>(owners.group_of(c))] += allocated_for(c.bytes);
    report.at_peak_by_module[owners.module_of(c)] += allocated_for(c.bytes);
    known += allocated_for(c.bytes);
  }
  if (known < report.peak)
    report.at_peak[static_cast<std::size_t>(MemoryGroup::unknown)] = report.peak - known;
  report.tensors = tensors_of(recording, owners, alive);
  report.questions = memory_answers(recording, report);
  return report;
}

std::string memory_report_text(const MemoryReport& report, std::size_t top) {
  std::string text = fmt::format("{}Memory Analysis Summary:\n{}", rule, rule);
  if (report.peak == 0) return text + "no memory was recorded\n" + std::string(rule);
  text += summary_lines(report);

  std::vector<TextRow> rows;
  for (std::size_t g = 0; g < memory_groups; ++g) {
    const std::uint64_t bytes = report.at_peak[g];
    const double share = static_cast<double>(bytes) / static_cast<double>(report.peak);
    if (bytes > 0 || static_cast<MemoryGroup>(g) != MemoryGroup::unknown)
      rows.push_back({std::string(name_of(static_cast<MemoryGroup>(g))), memory_text(bytes),
                      fmt::format("{:.1f} %", 100 * share)});
  }
  rows.insert(rows.end(), {{}, {"all", memory_text(report.peak), "100.0 %"}});
  text +=
      "\n" +
      text_table(std::vector<TextColumn>{{"Alive at the peak", true}, {"Memory"}, {"Share"}}, rows);

  if (report.at_peak[static_cast<std::size_t>(MemoryGroup::temporaries)] > 0)
    text += "temporaries: what backward computes on its way to the parameters' gradients\n";

  rows.clear();
  const std::vector<TensorKind> kinds = kinds_of(report.tensors);
  for (std::size_t i = 0; i < std::min(top, kinds.size()); ++i) {
    const TensorMemory& t = *kinds[i].example;
    rows.push_back({kinds[i].count > 1 ? kind_of(t.name) : t.name, std::string(name_of(t.group)),
                    t.type, memory_text(t.bytes), fmt::format("{}", kinds[i].count),
                    fmt::format("{}", kinds[i].at_peak)});
  }
  text += "\n" + text_table(std::vector<TextColumn>{{"Largest tensors", true, 48},
                                                    {"What", true},
                                                    {"Type", true, 36},
                                                    {"Each"},
                                                    {"Count"},
                                                    {"At the peak"}},
                            rows);
  if (report.dropped > 0)
    text += fmt::format("Records that had no room: {}; peaks after them are missing.\n",
                        format_count(static_cast<std::int64_t>(report.dropped)));
  if (!report.questions.empty()) text += "\nQuestions on memory:\n";
  for (const auto& [question, answer] : report.questions)
    text += fmt::format("  {}\n    {}\n", question, answer);
  return text + std::string(rule);
}

std::string memory_report_json(const MemoryReport& r, std::size_t top) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::object(), tensors = Json::array();
  for (std::size_t g = 0; g < memory_groups; ++g)
    groups[std::string(name_of(static_cast<MemoryGroup>(g)))] = r.at_peak[g];
  for (std::size_t i = 0; i < std::min(top, r.tensors.size()); ++i) {
    const TensorMemory& t = r.tensors[i];
    tensors.push_back({{"name", t.name},
                       {"type", t.type},
                       {"group", name_of(t.group)},
                       {"bytes", t.bytes},
                       {"times_allocated", t.times_allocated},
                       {"alive_at_peak", t.alive_at_peak}});
  }
  Json questions = Json::array();
  for (const auto& [question, answer] : r.questions)
    questions.push_back({{"question", question}, {"answer", answer}});
  const Json json{{"peak_bytes", r.peak},
                  {"average_bytes", r.average},
                  {"peak_to_average", r.peak_to_average()},
                  {"forward_peak_bytes", r.peak_by_phase[0]},
                  {"backward_peak_bytes", r.peak_by_phase[1]},
                  {"optimizer_peak_bytes", r.peak_by_phase[2]},
                  {"bytes_after_last_step", r.released_to},
                  {"steps", r.steps},
                  {"allocations", r.allocations},
                  {"peak_reserved_bytes", r.peak_reserved},
                  {"peak",
                   {{"step", r.peak_step},
                    {"phase", name_of(r.peak_phase)},
                    {"allocated", r.peak_owner},
                    {"time_ns", r.peak_ns},
                    {"reserved_bytes", r.reserved_at_peak},
                    {"fragmentation", r.fragmentation()},
                    {"bytes_by_group", groups},
                    {"bytes_by_module", r.at_peak_by_module}}},
                  {"dropped_records", r.dropped},
                  {"tensor_count", r.tensors.size()},
                  {"largest_tensors", tensors},
                  {"questions", questions}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
