#include "ridge/analyze/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/system.h"
#include "ridge/base/user_cache.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "ridge machine ceilings";
constexpr std::size_t max_machine_bytes = 1 << 20;

double rate(const Json& json, const char* key, const std::string& source) {
  const double value = json.at(key);
  if (!(value > 0)) throw FormatError("{}: {} is {}; a rate is above 0", source, key, value);
  return value;
}

// What was not measured is not there.
double rate_if_any(const Json& json, const char* key, const std::string& source) {
  return json.contains(key) ? rate(json, key, source) : 0;
}
void set_if_any(Json& json, const char* key, double value) {
  if (value > 0) json[key] = value;
}

Ceilings ceilings_of(const Json& json, const std::string& source) {
  Ceilings ceilings{.measured_at = json.at("measured_at"),
                    .host = json.at("host"),
                    .device = json.value("device", "cpu"),
                    .kind = device_kind_named(json.value("device", "cpu")),
                    .hardware = json.at("hardware"),
                    .threads = json.at("threads"),
                    .launch_seconds = rate_if_any(json, "launch_seconds", source),
                    .captured_seconds = rate_if_any(json, "captured_launch_seconds", source),
                    .note = json.value("note", "")};
  if (json.contains("vendor_flops_per_second"))
    ceilings.vendor.flops_per_second = rate(json, "vendor_flops_per_second", source);
  if (json.contains("vendor_bytes_per_second"))
    ceilings.vendor.bytes_per_second = rate(json, "vendor_bytes_per_second", source);
  if (ceilings.threads < 1)
    throw FormatError("{}: threads is {}; it is at least 1", source, ceilings.threads);
  for (const Json& c : json.at("compute")) {
    const std::string name = c.at("dtype");
    const std::optional<ProductKind> kind = product_kind_named(name);
    if (!kind) throw FormatError("{}: dtype '{}' is none that is computed in", source, name);
    ceilings.compute.push_back({.instructions = c.at("instructions"),
                                .precision = *kind,
                                .one_core = rate_if_any(c, "one_core_flops_per_second", source),
                                .all_cores = rate(c, "all_cores_flops_per_second", source)});
  }
  for (const Json& c : json.at("bandwidth")) {
    const int sharing = c.at("cores_sharing");
    ceilings.bandwidth.push_back({.level = c.at("level"),
                                  .bytes = c.at("bytes"),
                                  .sharing = std::max(sharing, 1),
                                  .one_core = rate_if_any(c, "one_core_bytes_per_second", source),
                                  .all_cores = rate(c, "all_cores_bytes_per_second", source)});
    for (const Json& access : c.value("accesses", Json::array()))
      ceilings.bandwidth.back().accesses.push_back(
          {access.at("access"), rate(access, "bytes_per_second", source)});
  }
  for (const Json& link : json.value("links", Json::array())) {
    const int ranks = link.at("ranks");
    if (ranks < 2)
      throw FormatError("{}: a link is of {} ranks; it is of 2 or more", source, ranks);
    ceilings.links.push_back({.ranks = ranks,
                              .bytes_per_second = rate(link, "bytes_per_second", source),
                              .message_seconds = rate(link, "message_seconds", source)});
  }
  return ceilings;
}

Json json_of(const Ceilings& ceilings) {
  Json compute = Json::array(), bandwidth = Json::array();
  for (const ComputeCeiling& c : ceilings.compute) {
    Json entry{{"instructions", c.instructions}, {"dtype", name_of(c.precision)}};
    set_if_any(entry, "one_core_flops_per_second", c.one_core);
    entry["all_cores_flops_per_second"] = c.all_cores;
    compute.push_back(std::move(entry));
  }
  for (const BandwidthCeiling& c : ceilings.bandwidth) {
    Json entry{{"level", c.level}, {"bytes", c.bytes}, {"cores_sharing", c.sharing}};
    set_if_any(entry, "one_core_bytes_per_second", c.one_core);
    entry["all_cores_bytes_per_second"] = c.all_cores;
    for (const BandwidthCeiling::Access& access : c.accesses)
      entry["accesses"].push_back(
          {{"access", access.name}, {"bytes_per_second", access.bytes_per_second}});
    bandwidth.push_back(std::move(entry));
  }
  Json json{{"device", ceilings.device},
            {"hardware", ceilings.hardware},
            {"measured_at", ceilings.measured_at},
            {"host", ceilings.host},
            {"threads", ceilings.threads},
            {"compute", compute},
            {"bandwidth", bandwidth}};
  for (const LinkCeiling& link : ceilings.links)
    json["links"].push_back({{"ranks", link.ranks},
                             {"bytes_per_second", link.bytes_per_second},
                             {"message_seconds", link.message_seconds}});
  set_if_any(json, "launch_seconds", ceilings.launch_seconds);
  set_if_any(json, "captured_launch_seconds", ceilings.captured_seconds);
  set_if_any(json, "vendor_flops_per_second", ceilings.vendor.flops_per_second.value_or(0));
  set_if_any(json, "vendor_bytes_per_second", ceilings.vendor.bytes_per_second.value_or(0));
  if (!ceilings.note.empty()) json["note"] = ceilings.note;
  return json;
}

// A file of one device may hold it without a list.
Machine parsed(const Json& json, const std::string& source) {
  if (json.at("format") != format_name)
    throw FormatError("{} holds no machine's ceilings: its format is not '{}'", source,
                      format_name);
  Machine machine;
  if (!json.contains("devices")) machine.put(ceilings_of(json, source));
  for (const Json& device : json.value("devices", Json::array()))
    machine.put(ceilings_of(device, source));
  return machine;
}

}  // namespace

const Ceilings* Machine::find(std::string_view device, std::string_view hardware) const {
  for (const Ceilings& ceilings : devices)
    if (ceilings.device == device && ceilings.hardware == hardware) return &ceilings;
  return nullptr;
}

const Ceilings* Machine::find_like(std::string_view device, std::string_view hardware) const {
  if (const Ceilings* const same = find(device, hardware)) return same;
  const auto like = std::ranges::find(devices, device, &Ceilings::device);
  return like == devices.end() ? nullptr : &*like;
}

void Machine::put(Ceilings ceilings) {
  std::erase_if(devices, [&](const Ceilings& other) {
    return other.device == ceilings.device && other.hardware == ceilings.hardware;
  });
  devices.push_back(std::move(ceilings));
}

std::string machine_json(const Machine& machine) {
  Json devices = Json::array();
  for (const Ceilings& ceilings : machine.devices) devices.push_back(json_of(ceilings));
  const Json json{{"format", format_name}, {"devices", devices}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const Roof& roof) {
  Json levels = Json::array();
  for (const Roof::Level& level : roof.levels)
    levels.push_back({{"level", level.name},
                      {"capacity_bytes", level.capacity},
                      {"bytes_per_second", level.bytes_per_second}});
  Json json{{"device", roof.device}, {"hardware", roof.hardware}, {"threads", roof.threads}};
  const auto add = [&](ProductKind precision) {
    json[fmt::format("{}_flops_per_second", name_of(precision))] = roof.flops(precision);
  };
  for (const ProductKind precision : {ProductKind::f32, ProductKind::bf16}) add(precision);
  for (const Roof::Peak& peak : roof.peaks) add(peak.precision);
  json["levels"] = levels;
  if (roof.vendor.flops_per_second) json["vendor_flops_per_second"] = *roof.vendor.flops_per_second;
  if (roof.vendor.bytes_per_second) json["vendor_bytes_per_second"] = *roof.vendor.bytes_per_second;
  return json;
}

std::string roof_json(const Roof& roof) {
  return json_of(roof).dump(2, ' ', false, Json::error_handler_t::replace);
}

Machine machine_from_json(std::string_view text, const std::string& source) {
  try {
    return parsed(Json::parse(text), source);
  } catch (const Json::exception&) {  // whose words are for programmers
    throw FormatError(
        "{} holds no machine's ceilings: it is not the JSON that ridge roofline writes; measure "
        "them anew with ridge roofline",
        source);
  }
}

std::filesystem::path default_machine_file() {
  std::filesystem::path path = user_cache("machine.json");
  if (path.empty())
    throw UsageError("neither XDG_CACHE_HOME nor HOME is set: give --machine-file PATH");
  return path;
}

Machine read_machine_file(const std::filesystem::path& path) {
  return machine_from_json(read_text_file(path, max_machine_bytes), path.string());
}

void write_machine_file(const std::filesystem::path& path, const Machine& machine) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw IoError("cannot make directory {}: {}", path.parent_path().string(), error.message());
  write_text_file(path, machine_json(machine));
}

Roof roof_from_file(const std::filesystem::path& path, std::string_view device,
                    std::string_view hardware, int threads) {
  const Machine machine = read_machine_file(path);
  const Ceilings* const ceilings = machine.find_like(device, hardware);
  if (!ceilings)
    throw FormatError("{} has no ceilings of a {} device: measure them with ridge roofline",
                      path.string(), device);
  return roof_of(*ceilings, threads > 0 ? threads : ceilings->threads);
}

KeptRoof kept_roof(std::string_view device, std::string_view hardware, int threads) {
  try {
    const std::filesystem::path path = default_machine_file();
    if (!std::filesystem::exists(path)) return {{}, "no machine file; run ridge roofline"};
    const Machine machine = read_machine_file(path);
    const Ceilings* const ceilings = machine.find(device, hardware);
    if (!ceilings)
      return {{}, fmt::format("{} has no {}; run ridge roofline", path.string(), hardware)};
    return {roof_of(*ceilings, threads > 0 ? threads : ceilings->threads), path.string()};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

KeptRoof roof_of_device(Device& device, const std::function<void()>& measuring) {
  KeptRoof kept = kept_roof(device.name(), device.hardware(), device.threads());
  if (kept.roof) return kept;
  constexpr std::chrono::milliseconds quick{30};
  if (measuring) measuring();
  Ceilings ceilings;
  try {
    ceilings = measure_ceilings(device, quick);
  } catch (const OutOfMemoryError& error) {
    return {{}, fmt::format("they cannot be measured beside this run: {}", error.what())};
  }
  ceilings.measured_at = utc_timestamp();
  ceilings.host = host_name();
  ceilings.hardware = device.hardware();
  if (ceilings.note.empty()) ceilings.note = "measured in a hurry";
  kept = {roof_of(ceilings, device.threads()), "measured just now, in a hurry"};
  try {
    const std::filesystem::path path = default_machine_file();
    Machine machine;
    if (std::filesystem::exists(path)) machine = read_machine_file(path);
    machine.put(std::move(ceilings));
    write_machine_file(path, machine);
    kept.source = path.string();
  } catch (const Error&) {
    // Whoever has nowhere to keep them measures them again.
  }
  return kept;
}

}  // namespace ridge
