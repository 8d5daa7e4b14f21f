#include "ridge/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/utf8.h"
#include "ridge/report/page/assets.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t max_file_bytes = std::size_t{256} << 20;
constexpr int max_depth = 32;

// A member that the page reads: "rows.*.total.time_ns" is one of every element of an array. The
// kinds are those of JSON; a "?" after one allows null. Letters of `kind`: n a number, s a string,
// a an array, o an object, N an array of numbers, M an object of numbers, G one of arrays of
// numbers.
struct Member {
  std::string_view path, kind;
};

struct File {
  std::string_view name;    // without ".json"
  std::string_view remedy;  // what writes it anew
  std::span<const Member> members;
};

constexpr Member operators_members[] = {
    {"steps", "n"},
    {"first_step", "n"},
    {"last_step", "n"},
    {"step_time_ns", "n"},
    {"between_operators_ns", "n"},
    {"outside_phases_ns", "n"},
    {"rows", "a"},
    {"rows.*.name", "s"},
    {"rows.*.total.calls", "n"},
    {"rows.*.total.time_ns", "n"},
    {"rows.*.total.flops", "n"},
    {"rows.*.total.bytes_read", "n"},
    {"rows.*.total.bytes_written", "n"},
};
constexpr Member nodes_members[] = {
    {"nodes", "a"},
    {"nodes.*.node", "n"},
    {"nodes.*.name", "s"},
    {"nodes.*.operator", "s"},
    {"nodes.*.shape", "s"},
    {"nodes.*.module", "s"},
    {"nodes.*.phase", "s"},
    {"nodes.*.calls", "n"},
    {"nodes.*.time_ns", "n"},
    {"nodes.*.flops", "n"},
    {"nodes.*.bytes_read", "n"},
    {"nodes.*.bytes_written", "n"},
};
constexpr Member modules_members[] = {
    {"modules", "a"},
    {"modules.*.parent", "n?"},
    {"modules.*.name", "s"},
    {"modules.*.path", "s"},
    {"modules.*.self.parameters", "n"},
    {"modules.*.self.all.flops", "n"},
    {"modules.*.self.all.time_ns", "n"},
    {"modules.*.total.parameters", "n"},
    {"modules.*.total.forward.time_ns", "n"},
    {"modules.*.total.backward.time_ns", "n"},
    {"modules.*.total.optimizer.time_ns", "n"},
};
constexpr Member memory_members[] = {
    {"peak_bytes", "n"},          {"average_bytes", "n"},       {"peak", "o"},
    {"peak.step", "n"},           {"peak.phase", "s"},          {"peak.allocated", "s"},
    {"allocations", "n"},         {"peak_reserved_bytes", "n"}, {"peak.fragmentation", "n"},
    {"peak.bytes_by_group", "M"},
};
constexpr Member timeline_members[] = {
    {"duration_ns", "n"},
    {"steps", "a"},
    {"steps.*.step", "n"},
    {"steps.*.begin_ns", "n"},
    {"steps.*.end_ns", "n"},
    {"phases", "a"},
    {"phases.*.phase", "s"},
    {"phases.*.begin_ns", "n"},
    {"phases.*.end_ns", "n"},
    {"time_ns", "N"},
    {"step", "N"},
    {"live_bytes", "N"},
    {"reserved_bytes", "N"},
    {"bytes_by_group", "G"},
    {"allocations.left_out", "n"},
    {"allocations.tensors", "a"},
    {"allocations.tensors.*.name", "s"},
    {"allocations.tensors.*.group", "s"},
    {"allocations.tensors.*.type", "s"},
    {"allocations.tensor", "N"},
    {"allocations.bytes", "N"},
    {"allocations.begin_ns", "N"},
    {"allocations.end_ns", "N"},
};
constexpr Member bottlenecks_members[] = {
    {"steps", "n"},
    {"step_seconds", "n"},
    {"flops_per_second", "n"},
    {"mfu", "n"},
    {"vendor_mfu", "n?"},
    {"roof.threads", "n"},
    {"roof.f32_flops_per_second", "n"},
    {"roof.bf16_flops_per_second", "n"},
    {"roof.levels", "a"},
    {"roof.levels.*.level", "s"},
    {"roof.levels.*.bytes_per_second", "n"},
    {"notes", "a"},
    {"parts.*.name", "s"},
    {"parts.*.share", "n"},
    {"parts.*.seconds", "n"},
    {"findings", "a"},
    {"findings.*.name", "s"},
    {"findings.*.kind", "s"},
    {"findings.*.text", "s"},
    {"findings.*.share", "n"},
    {"findings.*.ratio", "n"},
    {"findings.*.estimated_seconds_saved", "n"},
    {"findings.*.estimated_share_saved", "n"},
    {"findings.*.bytes_saved", "n"},
    {"findings.*.kernels_saved", "n"},
    {"findings.*.activation_bytes_saved", "n"},
    {"questions.*.question", "s"},
    {"questions.*.answer", "s"},
    {"nodes", "a"},
    {"nodes.*.node", "n"},
    {"nodes.*.floor_seconds", "n"},
    {"nodes.*.bound", "s"},
};
constexpr Member summary_members[] = {
    {"version", "s"},
    {"timestamp", "s"},
    {"config", "o"},
    {"config.total_parameters", "n"},
    {"training_params", "o"},
    {"training_params.dtype", "s"},
    {"training_params.batch_size", "n"},
    {"training_params.seq_len", "n"},
    {"performance_summary", "o"},
    {"performance_summary.outcome", "s"},
    {"performance_summary.first_step", "n"},
    {"performance_summary.avg_tokens_per_second", "n"},
    {"performance_summary.median_batch_time", "n"},
    {"performance_summary.std_batch_time", "n"},
    {"performance_summary.peak_memory_bytes", "n"},
    {"performance_summary.final_loss", "n?"},
    {"performance_summary.steps_left_out_of_averages", "n"},
    {"performance_summary.step_seconds", "N"},
    {"performance_summary.forward_seconds", "N"},
    {"performance_summary.backward_seconds", "N"},
    {"performance_summary.optimizer_seconds", "N"},
    {"system_info", "o"},
    {"system_info.cpu", "s"},
    {"system_info.threads", "n"},
};

constexpr std::string_view run_again = "profile again with this version of ridge";
constexpr File files[] = {
    {"operators", run_again, operators_members},
    {"nodes", run_again, nodes_members},
    {"modules", run_again, modules_members},
    {"memory", run_again, memory_members},
    {"memory_timeline", run_again, timeline_members},
    {"bottlenecks", run_again, bottlenecks_members},
    {"performance_summary", run_again, summary_members},
    {"config", run_again, {}},
};

bool all_numbers(const Json& json) {
  return std::ranges::all_of(json, [](const Json& element) { return element.is_number(); });
}

bool is_of_kind(const Json& json, std::string_view kind) {
  if (kind.ends_with('?') && json.is_null()) return true;
  switch (kind.front()) {
    case 'n':
      return json.is_number();
    case 's':
      return json.is_string();
    case 'a':
      return json.is_array();
    case 'o':
      return json.is_object();
    case 'N':
      return json.is_array() && all_numbers(json);
    case 'M':
      return json.is_object() && all_numbers(json);
    default:
      return json.is_object() && std::ranges::all_of(json, [](const Json& element) {
               return element.is_array() && all_numbers(element);
             });
  }
}

// The first place below `json` at which the member is missing or of another kind; empty if none.
std::string find_fault(const Json& json, std::string_view path, std::string_view kind,
                       const std::string& where = {}) {
  if (path.empty()) return is_of_kind(json, kind) ? std::string() : where;
  const std::size_t dot = std::min(path.find('.'), path.size());
  const std::string_view step = path.substr(0, dot);
  const std::string_view rest = path.substr(std::min(dot + 1, path.size()));
  const auto below = [&](const auto& name) {
    return fmt::format("{}{}{}", where, where.empty() ? "" : ".", name);
  };
  if (step == "*") {
    if (!json.is_array()) return where;
    for (std::size_t i = 0; i < json.size(); ++i)
      if (std::string fault = find_fault(json[i], rest, kind, below(i)); !fault.empty())
        return fault;
    return {};
  }
  if (!json.is_object() || !json.contains(step)) return below(step);
  return find_fault(json[std::string(step)], rest, kind, below(step));
}

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

Json read_file(const fs::path& directory, const File& file) {
  const fs::path path = directory / fmt::format("{}.json", file.name);
  if (!fs::exists(path)) return {};
  Json json = parse(read_text_file(path, max_file_bytes), path.string());
  std::string fault = json.is_object() ? "" : "(the whole file)";
  for (const Member& member : file.members)
    if (fault.empty()) fault = find_fault(json, member.path, member.kind);
  if (fault.empty()) fault = find_loose_end(file.name, json);
  if (!fault.empty())
    throw FormatError("{} is not as ridge writes it, at {}; {}", path.string(), shown(fault),
                      file.remedy);
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// "<" occurs in JSON only within strings, where \u003c is the same: no name can close the element
// that holds the document, or open another.
std::string harmless_in_html(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

std::string scripts() {
  std::string text = "(() => {\n'use strict';\n";
  for (const std::string_view part :
       {page_common, page_summary, page_steps, page_table, page_icicle, page_timeline,
        page_roofline, page_findings, page_environment})
    text += part;
  return text + "drawPage();\n})();\n";
}

}  // namespace

std::string profile_document(const fs::path& profile, const std::optional<Roof>& roof) {
  std::error_code ignored;
  if (!fs::is_directory(profile, ignored))
    throw IoError("{} is no directory: give the --profile-dir of a run with --profile",
                  profile.string());
  if (!fs::exists(profile / "operators.json"))
    throw IoError("{} has no operators.json: is it the --profile-dir of a run with --profile?",
                  profile.string());
  Json document{{"profile", fs::weakly_canonical(profile, ignored).filename().string()},
                {"directory", profile.string()}};
  for (const File& file : files) document[std::string(file.name)] = read_file(profile, file);
  if (roof)
    document["roof"] = Json::parse(roof_json(*roof));
  else if (!document["bottlenecks"].is_null())
    document["roof"] = document["bottlenecks"]["roof"];
  else
    document["roof"] = nullptr;
  return dumped(document);
}

ProfiledMachine profiled_machine(std::string_view document) {
  const Json json = Json::parse(document);
  ProfiledMachine machine{.has_roof = !json["roof"].is_null()};
  if (const Json& summary = json["performance_summary"]; !summary.is_null()) {
    machine.hardware = summary["system_info"]["cpu"];
    machine.threads = summary["system_info"]["threads"];
  }
  const Json& operators = json["operators"];
  machine.threads = operators.value("threads", machine.threads);
  machine.device = operators.value("device", machine.device);
  machine.hardware = operators.value("hardware", machine.hardware);
  return machine;
}

std::string report_page(std::string_view document) {
  const std::string code = scripts(), data = harmless_in_html(document);
  const std::array<std::pair<std::string_view, std::string_view>, 5> parts{
      {{"style", page_style},
       {"d3_license", page_d3_license},
       {"d3", page_d3},
       {"data", data},
       {"scripts", code}}};
  std::string page;
  std::string_view rest = page_template;
  for (std::size_t open; (open = rest.find("{{")) != std::string_view::npos;) {
    const std::size_t close = rest.find("}}", open);
    const std::string_view name = rest.substr(open + 2, close - open - 2);
    page += rest.substr(0, open);
    page += std::ranges::find(parts, name, &decltype(parts)::value_type::first)->second;
    rest.remove_prefix(close + 2);
  }
  return page += rest;
}

}  // namespace ridge
