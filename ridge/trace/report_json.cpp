#include <nlohmann/json.hpp>

#include "ridge/trace/report.h"

namespace ridge::trace {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TimeUse& use) {
  return {{"span_us", use.span},
          {"busy_us", use.busy},
          {"compute_us", use.compute},
          {"communication_us", use.communication},
          {"exposed_communication_us", use.exposed_communication},
          {"copy_us", use.copy},
          {"idle_us", use.idle},
          {"kernels", use.kernels}};
}

Json json_of(const IdleTime& idle) {
  Json causes = Json::object(), host = Json::array();
  for (std::size_t i = 0; i < idle_causes; ++i)
    causes[idle_cause_name(static_cast<IdleCause>(i))] = {
        {"us", idle.by_cause[i].us}, {"stretches", idle.by_cause[i].stretches}};
  for (const IdleTime::HostShare& share : idle.host)
    host.push_back({{"name", share.name}, {"us", share.us}, {"stretches", share.stretches}});
  return {{"causes", causes}, {"host_meanwhile", host}};
}

Json json_of(const KernelSum& kernel) {
  return {{"name", kernel.name},
          {"short_name", short_kernel_name(kernel.name)},
          {"class", name_of(kernel.work)},
          {"count", kernel.count},
          {"us", kernel.us},
          {"min_us", kernel.min_us},
          {"max_us", kernel.max_us}};
}

Json json_of(const OperatorSum& sum) {
  Json json = {{"name", sum.name},           {"count", sum.count},
               {"host_us", sum.host_us},     {"self_host_us", sum.self_host_us},
               {"device_us", sum.device_us}, {"kernels", sum.kernels}};
  if (!sum.shape.empty()) json["input_dims"] = Json::parse(sum.shape, nullptr, false);
  if (!sum.types.empty()) json["input_types"] = Json::parse(sum.types, nullptr, false);
  if (sum.flops > 0) json["flops"] = sum.flops;
  if (sum.bytes > 0) json["bytes"] = sum.bytes;
  if (sum.floor_us > 0) json["floor_us"] = sum.floor_us;
  return json;
}

Json json_of(const CopySum& copy) {
  return {{"name", copy.name}, {"count", copy.count}, {"us", copy.us}, {"bytes", copy.bytes}};
}

Json json_of(const LaunchStatistics& launches) {
  Json calls = Json::array();
  for (const LaunchSum& call : launches.calls)
    calls.push_back({{"call", call.call}, {"count", call.count}, {"host_us", call.host_us}});
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return {{"calls", calls},
          {"median_delay_us", or_null(launches.median_delay_us)},
          {"p90_delay_us", or_null(launches.p90_delay_us)},
          {"short_kernels", launches.short_kernels},
          {"short_kernels_us", launches.short_us},
          {"mean_queue", launches.mean_queue},
          {"longest_queue", launches.longest_queue}};
}

Json json_of(const MemoryUse& memory) {
  return {{"device", memory.device < 0 ? Json("host") : Json(memory.device)},
          {"peak_allocated_bytes", memory.peak_allocated},
          {"peak_reserved_bytes", memory.peak_reserved},
          {"final_allocated_bytes", memory.final_allocated},
          {"peak_at_us", memory.peak_at_us},
          {"allocations", memory.allocations}};
}

Json json_of(const CounterSum& counter) {
  return {{"process", counter.process},   {"name", counter.name},
          {"category", counter.category}, {"points", counter.points},
          {"mean", counter.mean},         {"min", counter.min},
          {"max", counter.max},           {"max_at_us", counter.max_at_us}};
}

Json json_of(const Finding& finding) {
  return {{"rule", finding.rule}, {"what", finding.what},       {"remedy", finding.remedy},
          {"see", finding.see},   {"gain_us", finding.gain_us}, {"gain_part", finding.gain_part}};
}

Json json_of(const Damage& damage) {
  return {{"lost_bytes", damage.lost_bytes},
          {"first_at", damage.lost_bytes > 0 ? Json(damage.first_at) : Json(nullptr)},
          {"repaired_bytes", damage.repaired_bytes},
          {"cut_short", damage.cut_short},
          {"unpacking", damage.unpacking}};
}

Json json_of(const PhaseUse& phase) {
  return {
      {"phase", phase_name(phase.phase)},
      {"busy_us", phase.busy_us},
      {"kernels", phase.kernels},
      {"peak_allocated_bytes", phase.peak_allocated > 0 ? Json(phase.peak_allocated) : nullptr}};
}

Json json_of(const ModuleUse& module) {
  return {{"name", module.name},           {"depth", module.depth},
          {"calls", module.calls},         {"host_us", module.host_us},
          {"device_us", module.device_us}, {"kernels", module.kernels}};
}

Json json_of(const StepUse& step) {
  Json json = {{"step", step.number}};
  json.update(json_of(step.use));
  return json;
}

Json json_of(const Report& report);

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

Json json_of(const Report& report) {
  Json json = {{"file", report.file},
               {"rank", report.rank ? Json(*report.rank) : Json(nullptr)},
               {"device", report.device},
               {"of_host", report.of_host},
               {"events", report.events}};
  json.update(json_of(report.use));
  json["steps"] = list_of(report.steps);
  json["phases"] = list_of(report.phases);
  json["idle"] = json_of(report.idle);
  json["kernels_by_name"] = list_of(report.kernels);
  json["operators"] = list_of(report.operators);
  json["modules"] = list_of(report.modules);
  json["copies"] = list_of(report.copies);
  json["launches"] = json_of(report.launches);
  json["memory"] = list_of(report.memory);
  json["counters"] = list_of(report.counters);
  json["findings"] = list_of(report.findings);
  json["damage"] = json_of(report.damage);
  return json;
}

Json json_of(const RanksTogether& together, const std::vector<Report>& reports) {
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  Json ranks = Json::array(), collectives = Json::array();
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const Arrivals::OfRank& came = together.arrivals.ranks[r];
    ranks.push_back({{"file", reports[r].file},
                     {"rank", reports[r].rank ? Json(*reports[r].rank) : Json(nullptr)},
                     {"waited_us", us(came.waited_ns)},
                     {"came_last", came.last},
                     {"others_waited_us", us(came.caused_ns)},
                     {"clock_ahead_us", us(together.arrivals.ahead_ns[r])}});
  }
  for (const RanksTogether::Collective& sum : together.collectives)
    collectives.push_back({{"name", sum.name},
                           {"bytes", sum.bytes},
                           {"group_size", sum.group_size},
                           {"count", sum.count},
                           {"median_us", sum.median_us},
                           {"bus_bytes_per_second", sum.bus_bandwidth},
                           {"first_waited_us", sum.waited_us}});
  return {{"collectives_compared", together.arrivals.collectives},
          {"collectives_left_out", together.unmatched},
          {"ranks", ranks},
          {"collectives", collectives}};
}

}  // namespace

std::string report_json(const RunReport& run) {
  Json json = {{"schema", "ridge-trace-report/1"}, {"ranks", list_of(run.ranks)}};
  if (!run.left_out.empty()) json["left_out"] = run.left_out;
  if (run.together) json["together"] = json_of(*run.together, run.ranks);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge::trace
