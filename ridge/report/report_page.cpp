#include "ridge/report/report_page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/utf8.h"
#include "ridge/report/json_schema.h"
#include "ridge/report/page/assets.h"
#include "ridge/report/page_template.h"
#include "ridge/report/schemas/schemas.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t max_profile_bytes = std::size_t{256} << 20;
constexpr int max_depth = 32;

// The files that the page reads.
struct File {
  std::string_view name;  // without ".json"
  std::string_view schema;
  bool is_new = false;  // profiles that were kept before there was this file do not name it
};
std::span<const File> files() {
  static const File all[] = {
      {"operators", schema_operators},
      {"nodes", schema_nodes},
      {"modules", schema_modules},
      {"memory", schema_memory},
      {"memory_timeline", schema_memory_timeline},
      {"bottlenecks", schema_bottlenecks},
      {"system", schema_system, true},
      {"speed_of_light", schema_speed_of_light, true},
      {"performance_summary", schema_performance_summary},
      {"config", schema_config},
  };
  return all;
}
constexpr std::string_view run_again = "profile again with this version of ridge";

// Columns of one table are of one length, and indices lead somewhere.
std::string find_loose_end(std::string_view file, const Json& json) {
  if (file == "memory_timeline") {
    const std::size_t points = json["time_ns"].size();
    for (const char* name : {"step", "live_bytes", "reserved_bytes"})
      if (json[name].size() != points) return name;
    for (const auto& [group, column] : json["bytes_by_group"].items())
      if (column.size() != points) return "bytes_by_group";
    const Json& a = json["allocations"];
    for (const char* name : {"tensor", "begin_ns", "end_ns"})
      if (a[name].size() != a["bytes"].size()) return fmt::format("allocations.{}", name);
    for (const Json& tensor : a["tensor"])
      if (!(tensor >= 0 && tensor < a["tensors"].size())) return "allocations.tensor";
  }
  if (file == "modules")
    for (std::size_t m = 0; m < json["modules"].size(); ++m)
      if (const Json& parent = json["modules"][m]["parent"];
          parent.is_null() != (m == 0) || (m > 0 && !(parent >= 0 && parent < m)))
        return fmt::format("modules.{}.parent", m);
  return {};
}

// A document nested deeper than any of ours could exhaust the stack of those who walk it.
Json parse(const std::string& text, const std::string& source) {
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > max_depth)
      throw FormatError("{} is nested more than {} levels deep: no file of a profile is", source,
                        max_depth);
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    throw FormatError("{} is no JSON ({}); {}", source, error.what(), run_again);
  }
}

// The first place at which a file is not as the page needs it; empty if there is none.
std::string find_fault(const File& file, const Json& json) {
  const std::vector<Breach> breaches = breaches_of(json, file.schema);
  if (breaches.empty()) return find_loose_end(file.name, json);
  const Breach& first = breaches.front();
  return first.place.empty() ? "(the whole file)" : first.place;
}

Json read_file(const fs::path& directory, const File& file) {
  const fs::path path = directory / fmt::format("{}.json", file.name);
  if (!fs::exists(path)) return {};
  Json json = parse(read_text_file(path, max_profile_bytes), path.string());
  if (const std::string fault = find_fault(file, json); !fault.empty())
    throw FormatError("{} is not as ridge writes it, at {}; {}", path.string(), shown(fault),
                      run_again);
  return json;
}

}  // namespace

Json profile_document(const fs::path& profile) {
  std::error_code ignored;
  if (!fs::is_directory(profile, ignored))
    throw IoError("{} is no directory: give the --profile-dir of a run with --profile",
                  profile.string());
  if (!fs::exists(profile / "operators.json"))
    throw IoError("{} has no operators.json: is it the --profile-dir of a run with --profile?",
                  profile.string());
  Json document{{"profile", fs::weakly_canonical(profile, ignored).filename().string()},
                {"directory", profile.string()}};
  for (const File& file : files()) document[std::string(file.name)] = read_file(profile, file);
  const Json& bottlenecks = document["bottlenecks"];
  document["roof"] = bottlenecks.is_null() ? Json() : Json(bottlenecks["roof"]);
  return document;
}

Json kept_profile(const fs::path& profile) {
  Json document = profile_document(profile);
  document.erase("directory");
  return document;
}

void check_profile_document(const Json& document) {
  const auto refuse = [](std::string_view place) {
    throw FormatError("the profile is not as ridge writes it, at {}", shown(place));
  };
  if (!document.is_object() || !document.contains("operators") || !document.contains("roof"))
    refuse("(the whole of it)");
  for (const File& file : files()) {
    const auto part = document.find(std::string(file.name));
    if (part == document.end() && file.is_new) continue;
    if (part == document.end()) refuse(file.name);
    if (part->is_null() && file.name != "operators") continue;
    if (const std::string fault = find_fault(file, *part); !fault.empty())
      refuse(fmt::format("{}: {}", file.name, fault));
  }
  const Json& bottlenecks = document["bottlenecks"];
  if (document["roof"] != (bottlenecks.is_null() ? Json() : bottlenecks["roof"])) refuse("roof");
  for (const char* name : {"profile", "directory"})
    if (document.contains(name) && !document[name].is_string()) refuse(name);
}

void set_roof(Json& document, const Roof& roof) { document["roof"] = json_of(roof); }

ProfiledMachine profiled_machine(const Json& document) {
  ProfiledMachine machine{.has_roof = !document.at("roof").is_null()};
  if (const Json& summary = document.at("performance_summary"); !summary.is_null()) {
    machine.hardware = summary["system_info"]["cpu"];
    machine.threads = summary["system_info"]["threads"];
  }
  const Json& operators = document.at("operators");
  machine.threads = operators.value("threads", machine.threads);
  machine.device = operators.value("device", machine.device);
  machine.hardware = operators.value("hardware", machine.hardware);
  return machine;
}

std::string report_page(const Json& document) {
  const std::string_view scripts[] = {page_common, page_summary,  page_steps,      page_table,
                                      page_icicle, page_timeline, page_system,     page_roofline,
                                      page_units,  page_findings, page_environment};
  return page_of(document, page_style, scripts, "drawPage()");
}

}  // namespace ridge
