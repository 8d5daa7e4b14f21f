#include "ridge/trace/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/trace/read_rocprof.h"

namespace ridge::trace {
namespace {

nlohmann::json property(const Trace& trace, const std::string& name) {
  const auto found = trace.properties.find(name);
  if (found == trace.properties.end()) return nullptr;
  nlohmann::json value = nlohmann::json::parse(found->second, nullptr, false);
  return value.is_discarded() ? nullptr : value;
}

// A number of the member distributedInfo.
std::optional<std::int64_t> distributed(const Trace& trace, const char* name) {
  const nlohmann::json info = property(trace, "distributedInfo");
  if (!info.is_object() || !info.contains(name) || !info[name].is_number_integer())
    return std::nullopt;
  return info[name].get<std::int64_t>();
}

// The properties of the card on which anything ran; null if the trace has none.
nlohmann::json device_properties(const Trace& trace) {
  const nlohmann::json devices = property(trace, "deviceProperties");
  if (!devices.is_array()) return nullptr;
  for (const Track& track : trace.tracks) {
    if (!track.device) continue;
    for (const nlohmann::json& device : devices)
      if (device.is_object() && device.contains("id") && device["id"].dump() == track.process)
        return device;
  }
  return nullptr;
}

std::int64_t multiprocessors_of(const Trace& trace) {
  const nlohmann::json device = device_properties(trace);
  if (!device.is_object() || !device.contains("numSms") || !device["numSms"].is_number_integer())
    return 0;
  return device["numSms"].get<std::int64_t>();
}

// A collective of no group is one of all ranks.
std::vector<CollectiveWork> collectives_of(const Trace& trace, const Work& work,
                                           const HostNesting& nesting) {
  std::vector<CollectiveWork> collectives = collective_work(trace, work, nesting);
  const std::int64_t ranks = distributed(trace, "world_size").value_or(0);
  for (CollectiveWork& one : collectives)
    if (one.group_size == 0 && one.group.empty()) one.group_size = ranks;
  return collectives;
}

std::vector<MemoryUse> memory_of(const Trace& trace) {
  std::map<std::int32_t, MemoryUse> devices;
  std::int64_t begin = 0, last = 0;
  for (std::size_t i = 0; i < trace.memory.size(); ++i)
    begin = i == 0 ? trace.memory[i].time_ns : std::min(begin, trace.memory[i].time_ns);
  std::map<std::int32_t, std::int64_t> last_at;
  for (const MemoryInstant& instant : trace.memory) {
    MemoryUse& use = devices[instant.device];
    use.device = instant.device;
    use.peak_reserved = std::max(use.peak_reserved, instant.reserved);
    if (instant.allocated > use.peak_allocated) {
      use.peak_allocated = instant.allocated;
      use.peak_at_us = static_cast<double>(instant.time_ns - begin) * 1e-3;
    }
    last = instant.time_ns;
    if (const auto at = last_at.try_emplace(instant.device, last); at.first->second <= last) {
      at.first->second = last;
      use.final_allocated = instant.allocated;
    }
    if (instant.bytes > 0) ++use.allocations;
  }
  std::vector<MemoryUse> uses;
  for (const auto& [_, use] : devices) uses.push_back(use);
  return uses;
}

}  // namespace

std::optional<std::int64_t> rank_of(const Trace& trace) { return distributed(trace, "rank"); }

std::string device_of(const Trace& trace) {
  const nlohmann::json device = device_properties(trace);
  if (!device.is_object() || !device.contains("name") || !device["name"].is_string()) return "";
  return device["name"].get<std::string>();
}

Report report_of(const Trace& trace) {
  const HostNesting nesting(trace);
  return report_of(trace, work_of(trace, nesting), nesting);
}

Report report_of(const Trace& trace, const Work& work, const HostNesting& nesting) {
  const std::string device = device_of(trace);
  const DataSheet* const card = data_sheet_of(device);
  const std::vector<Row> operators =
      work.of_host ? std::vector<Row>() : operators_of_work(trace, work, nesting);
  Report report{.file = trace.file,
                .rank = rank_of(trace),
                .device = device,
                .of_host = work.of_host,
                .events = trace.event_count,
                .damage = trace.damage,
                .use = time_use(trace, work),
                .steps = time_use_of_steps(trace, work),
                .phases = phase_uses(trace, work, nesting),
                .idle = idle_time(trace, work, nesting),
                .kernels = kernel_sums(trace, work),
                .operators = operator_sums(trace, work, nesting, operators, card),
                .modules = module_uses(trace, work),
                .copies = copy_sums(trace, work),
                .launches = launch_statistics(trace, work),
                .memory = memory_of(trace),
                .collectives = collectives_of(trace, work, nesting),
                .counters = counter_sums(trace),
                .findings = {}};
  report.findings =
      findings_of({trace, work, nesting, report.use, report.idle, report.kernels, report.operators,
                   operators, report.launches, card, multiprocessors_of(trace)});
  return report;
}

RunReport report_ranks(std::vector<Report> reports) {
  std::ranges::stable_sort(reports, {}, &Report::rank);
  std::vector<std::vector<CollectiveWork>> work;
  for (const Report& report : reports) work.push_back(report.collectives);
  RunReport run{.ranks = std::move(reports), .together = ranks_together(work), .left_out = {}};
  if (!run.together) return run;
  const Arrivals& arrivals = run.together->arrivals;
  const std::size_t late = latest_of(arrivals);
  const double collectives = static_cast<double>(arrivals.collectives);
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const Arrivals::OfRank& of = arrivals.ranks[r];
    const std::int64_t waited = r == late ? of.caused_ns : of.waited_ns;
    add_late_rank(run.ranks[r].findings,
                  {.name = run.ranks[late].name(),
                   .last_part = static_cast<double>(arrivals.ranks[late].last) / collectives,
                   .waited_us = static_cast<double>(waited) * 1e-3,
                   .is_this_one = r == late},
                  run.ranks[r].use.span);
  }
  return run;
}

std::string Report::name() const { return rank ? fmt::format("{}", *rank) : file; }

std::vector<std::filesystem::path> traces_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> all, of_pytorch, tables;
  std::set<std::filesystem::path> with_json;  // folders
  const auto ends = [](const std::string& name, std::string_view ending) {
    return name.ends_with(ending) || name.ends_with(std::string(ending) + ".gz");
  };
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           directory, std::filesystem::directory_options::skip_permission_denied)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().filename().string();
    if (ends(name, ".json")) with_json.insert(entry.path().parent_path());
    if (ends(name, ".json") || ends(name, ".sqlite")) all.push_back(entry.path());
    if (ends(name, ".pt.trace.json")) of_pytorch.push_back(entry.path());
    if (is_named_as_kernel_table(entry.path())) tables.push_back(entry.path());
  }
  for (std::filesystem::path& table : tables)
    if (!with_json.contains(table.parent_path())) all.push_back(std::move(table));
  std::vector<std::filesystem::path>& chosen = of_pytorch.empty() ? all : of_pytorch;
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace ridge::trace
