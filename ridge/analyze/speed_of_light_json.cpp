#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/speed_of_light.h"
#include "ridge/base/error.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const LightRow& row) {
  Json units = Json::object(), levels = Json::object();
  for (const auto& [unit, use] : row.units)
    units[unit] = {{"part", use.part}, {"counted", use.counted}};
  for (const auto& [level, traffic] : row.levels)
    levels[level] = {{"bytes", traffic.bytes}, {"counted", traffic.counted}};
  return {{"name", row.name},   {"seconds", row.seconds},    {"flops", row.flops},
          {"bytes", row.bytes}, {"units", std::move(units)}, {"levels", std::move(levels)},
          {"limit", row.limit}, {"occupancy", row.occupancy}};
}

LightRow row_from(const Json& json) {
  LightRow row{.name = json.at("name").get<std::string>(),
               .seconds = json.at("seconds").get<double>(),
               .flops = json.at("flops").get<double>(),
               .bytes = json.at("bytes").get<double>()};
  for (const auto& [unit, use] : json.at("units").items())
    row.units[unit] = {use.at("part").get<double>(), use.at("counted").get<bool>()};
  for (const auto& [level, traffic] : json.at("levels").items())
    row.levels[level] = {traffic.at("bytes").get<double>(), traffic.at("counted").get<bool>()};
  row.limit = json.at("limit").get<std::string>();
  row.occupancy = json.at("occupancy").get<double>();
  return row;
}

Json json_of(const KernelFit& fit) {
  const Occupancy& o = fit.occupancy;
  return {{"name", fit.name},
          {"operator", fit.op},
          {"calls", fit.calls},
          {"seconds", fit.seconds},
          {"grid", fit.launch.grid},
          {"block", fit.launch.block},
          {"registers", fit.launch.registers},
          {"static_shared_bytes", fit.launch.static_shared},
          {"dynamic_shared_bytes", fit.launch.dynamic_shared},
          {"warps_of_block", o.warps},
          {"blocks_by_threads", o.by_threads},
          {"blocks_by_slots", o.by_blocks},
          {"blocks_by_registers", o.by_registers},
          {"blocks_by_shared_memory", o.by_shared_memory},
          {"blocks", o.blocks},
          {"occupancy", o.part},
          {"waves", o.waves},
          {"limit", name_of(o.limit)},
          {"why", fit.why}};
}

OccupancyLimit limit_named(std::string_view name) {
  for (const OccupancyLimit limit :
       {OccupancyLimit::threads, OccupancyLimit::blocks, OccupancyLimit::registers,
        OccupancyLimit::shared_memory, OccupancyLimit::grid})
    if (name_of(limit) == name) return limit;
  return OccupancyLimit::none;
}

KernelFit fit_from(const Json& json) {
  KernelFit fit{.name = json.at("name").get<std::string>(),
                .op = json.at("operator").get<std::string>(),
                .calls = json.at("calls").get<std::int64_t>(),
                .seconds = json.at("seconds").get<double>()};
  json.at("grid").get_to(fit.launch.grid);
  json.at("block").get_to(fit.launch.block);
  json.at("registers").get_to(fit.launch.registers);
  json.at("static_shared_bytes").get_to(fit.launch.static_shared);
  json.at("dynamic_shared_bytes").get_to(fit.launch.dynamic_shared);
  Occupancy& o = fit.occupancy;
  json.at("warps_of_block").get_to(o.warps);
  json.at("blocks_by_threads").get_to(o.by_threads);
  json.at("blocks_by_slots").get_to(o.by_blocks);
  json.at("blocks_by_registers").get_to(o.by_registers);
  json.at("blocks_by_shared_memory").get_to(o.by_shared_memory);
  json.at("blocks").get_to(o.blocks);
  json.at("occupancy").get_to(o.part);
  json.at("waves").get_to(o.waves);
  o.limit = limit_named(json.at("limit").get<std::string>());
  json.at("why").get_to(fit.why);
  return fit;
}

// As json_of(const Roof&) writes it.
Roof roof_from(const Json& json) {
  Roof roof;
  json.at("device").get_to(roof.device);
  json.at("hardware").get_to(roof.hardware);
  json.at("threads").get_to(roof.threads);
  roof.kind = device_kind_named(roof.device);
  constexpr std::string_view end = "_flops_per_second";
  for (const auto& [key, value] : json.items()) {
    if (!key.ends_with(end)) continue;
    if (const auto kind = product_kind_named(key.substr(0, key.size() - end.size())))
      roof.peaks.push_back({*kind, value.get<double>()});
  }
  for (const Json& level : json.at("levels"))
    roof.levels.push_back({level.at("level").get<std::string>(),
                           level.at("capacity_bytes").get<std::uint64_t>(),
                           level.at("bytes_per_second").get<double>()});
  return roof;
}

std::vector<LightRow> rows_from(const Json& json) {
  std::vector<LightRow> rows;
  for (const Json& row : json) rows.push_back(row_from(row));
  return rows;
}

SpeedOfLight light_from(const Json& json) {
  SpeedOfLight light{.roof = roof_from(json.at("roof")),
                     .step_seconds = json.at("step_seconds").get<double>(),
                     .units = json.at("units").get<std::vector<std::string>>(),
                     .all = row_from(json.at("all")),
                     .operators = rows_from(json.at("operators")),
                     .kernels = rows_from(json.at("kernels"))};
  for (const Json& fit : json.at("occupancy")) light.fits.push_back(fit_from(fit));
  json.at("fault").get_to(light.fault);
  return light;
}

}  // namespace

std::string speed_of_light_json(const SpeedOfLight& light) {
  const auto list = [](const auto& all) {
    Json json = Json::array();
    for (const auto& one : all) json.push_back(json_of(one));
    return json;
  };
  const Json json = {{"roof", json_of(light.roof)},
                     {"step_seconds", light.step_seconds},
                     {"counted", light.counts()},
                     {"fault", light.fault},
                     {"units", light.units},
                     {"all", json_of(light.all)},
                     {"operators", list(light.operators)},
                     {"kernels", list(light.kernels)},
                     {"occupancy", list(light.fits)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

SpeedOfLight speed_of_light_from_json(std::string_view text, const std::string& source) {
  try {
    SpeedOfLight light = light_from(Json::parse(text));
    if (light.roof.levels.empty() || light.roof.peaks.empty())
      throw FormatError("{} has no ceilings; profile again with this version of ridge", source);
    return light;
  } catch (const Json::exception&) {  // whose words are for programmers
    throw FormatError(
        "{} is not the speed_of_light.json that a profile has; profile again with this version of "
        "ridge",
        source);
  }
}

}  // namespace ridge
