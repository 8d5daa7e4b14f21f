#include "ridge/analyze/machine_file.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/file.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "ridge machine ceilings";
constexpr std::size_t max_file_bytes = 1 << 20;

DType dtype_from(const std::string& name, const std::string& source) {
  for (const DType dtype : {DType::f32, DType::bf16})
    if (name == name_of(dtype)) return dtype;
  throw FormatError("{}: dtype '{}' is neither f32 nor bf16", source, name);
}

double rate(const Json& json, const char* key, const std::string& source) {
  const double value = json.at(key);
  if (!(value > 0)) throw FormatError("{}: {} is {}; a rate is above 0", source, key, value);
  return value;
}

Ceilings parsed(const Json& json, const std::string& source) {
  if (json.at("format") != format_name)
    throw FormatError("{} holds no machine's ceilings: its format is not '{}'", source,
                      format_name);
  Ceilings ceilings{.measured_at = json.at("measured_at"),
                    .host = json.at("host"),
                    .hardware = json.at("hardware"),
                    .threads = json.at("threads")};
  if (ceilings.threads < 1)
    throw FormatError("{}: threads is {}; it is at least 1", source, ceilings.threads);
  for (const Json& c : json.at("compute"))
    ceilings.compute.push_back({.instructions = c.at("instructions"),
                                .dtype = dtype_from(c.at("dtype"), source),
                                .one_core = rate(c, "one_core_flops_per_second", source),
                                .all_cores = rate(c, "all_cores_flops_per_second", source)});
  for (const Json& c : json.at("bandwidth")) {
    const int sharing = c.at("cores_sharing");
    ceilings.bandwidth.push_back({.level = c.at("level"),
                                  .bytes = c.at("bytes"),
                                  .sharing = std::max(sharing, 1),
                                  .one_core = rate(c, "one_core_bytes_per_second", source),
                                  .all_cores = rate(c, "all_cores_bytes_per_second", source)});
  }
  return ceilings;
}

}  // namespace

std::string ceilings_json(const Ceilings& ceilings) {
  Json compute = Json::array(), bandwidth = Json::array();
  for (const ComputeCeiling& c : ceilings.compute)
    compute.push_back({{"instructions", c.instructions},
                       {"dtype", name_of(c.dtype)},
                       {"one_core_flops_per_second", c.one_core},
                       {"all_cores_flops_per_second", c.all_cores}});
  for (const BandwidthCeiling& c : ceilings.bandwidth)
    bandwidth.push_back({{"level", c.level},
                         {"bytes", c.bytes},
                         {"cores_sharing", c.sharing},
                         {"one_core_bytes_per_second", c.one_core},
                         {"all_cores_bytes_per_second", c.all_cores}});
  const Json json{{"format", format_name},       {"measured_at", ceilings.measured_at},
                  {"host", ceilings.host},       {"hardware", ceilings.hardware},
                  {"threads", ceilings.threads}, {"compute", compute},
                  {"bandwidth", bandwidth}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string roof_json(const Roof& roof) {
  Json levels = Json::array();
  for (const Roof::Level& level : roof.levels)
    levels.push_back({{"level", level.name},
                      {"capacity_bytes", level.capacity},
                      {"bytes_per_second", level.bytes_per_second}});
  Json json{{"threads", roof.threads},
            {"f32_flops_per_second", roof.f32_flops},
            {"bf16_flops_per_second", roof.bf16_flops},
            {"levels", levels}};
  if (roof.vendor.flops_per_second) json["vendor_flops_per_second"] = *roof.vendor.flops_per_second;
  if (roof.vendor.bytes_per_second) json["vendor_bytes_per_second"] = *roof.vendor.bytes_per_second;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Ceilings ceilings_from_json(std::string_view text, const std::string& source) {
  try {
    return parsed(Json::parse(text), source);
  } catch (const Json::exception& error) {
    throw FormatError("{} holds no machine's ceilings: {}; measure them with ridge roofline",
                      source, error.what());
  }
}

std::filesystem::path default_machine_file() {
  const auto directory = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value ? value : "";
  };
  std::filesystem::path cache = directory("XDG_CACHE_HOME");
  if (!cache.is_absolute()) {  // a relative one is to be ignored, says its specification
    if (directory("HOME").empty())
      throw UsageError("neither XDG_CACHE_HOME nor HOME is set: give --machine-file PATH");
    cache = directory("HOME") / ".cache";
  }
  return cache / "ridge" / "machine.json";
}

Ceilings read_machine_file(const std::filesystem::path& path) {
  return ceilings_from_json(read_text_file(path, max_file_bytes), path.string());
}

void write_machine_file(const std::filesystem::path& path, const Ceilings& ceilings) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw IoError("cannot make directory {}: {}", path.parent_path().string(), error.message());
  write_text_file(path, ceilings_json(ceilings));
}

}  // namespace ridge
