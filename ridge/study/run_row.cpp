#include "ridge/study/run_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/digest.h"
#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using Table = RunColumn::Table;

constexpr std::string_view schema_prefix = "ridge-record-";
constexpr int max_json_depth = 64;  // of nested JSON: a record has less than ten

constexpr RunColumn columns[] = {
    {"id", "", Table::runs, "id", &RunRow::id},
    {"uuid", "", Table::runs, "uuid", &RunRow::uuid},
    {"created", "", Table::runs, "created", &RunRow::created},
    {"workload", "network", Table::runs, "workload", &RunRow::workload},
    {"mode", "", Table::runs, "mode", &RunRow::mode},
    {"version", "schedule", Table::runs, "version", &RunRow::version},
    {"dtype", "precision", Table::runs, "dtype", &RunRow::dtype},
    {"device", "", Table::runs, "device", &RunRow::device},
    {"batch_size", "batch", Table::runs, "batch_size", &RunRow::batch_size},
    {"seq_len", "", Table::runs, "seq_len", &RunRow::seq_len},
    {"image_size", "", Table::runs, "image_size", &RunRow::image_size},
    {"median_seconds", "seconds", Table::runs, "median_seconds", &RunRow::median_seconds},
    {"samples_per_second", "", Table::runs, "samples_per_second", &RunRow::samples_per_second},
    {"tokens_per_second", "", Table::runs, "tokens_per_second", &RunRow::tokens_per_second},
    {"peak_bytes", "memory", Table::runs, "peak_bytes", &RunRow::peak_bytes},
    {"kernels", "", Table::runs, "kernels", &RunRow::kernels},
    {"flops", "", Table::runs, "flops", &RunRow::flops},
    {"final_loss", "loss", Table::runs, "final_loss", &RunRow::final_loss},
    {"outcome", "", Table::runs, "outcome", &RunRow::outcome},
    {"study", "", Table::runs, "study", &RunRow::study},
    {"machine", "", Table::machines, "machine", &RunRow::machine},
    {"cpu", "processor", Table::machines, "cpu", &RunRow::cpu},
    {"cores", "threads", Table::machines, "cores", &RunRow::cores},
    {"gpu", "card", Table::machines, "gpu", &RunRow::gpu},
    {"gpu_uuid", "card_uuid", Table::machines, "gpu_uuid", &RunRow::gpu_uuid},
    {"driver", "", Table::machines, "driver", &RunRow::driver},
    {"libraries", "", Table::machines, "libraries", &RunRow::libraries},
    {"ridge_version", "", Table::programs, "ridge_version", &RunRow::ridge_version},
    {"commit", "", Table::programs, "commit_id", &RunRow::commit},
    {"binary", "", Table::programs, "binary", &RunRow::binary},
    {"compiler", "", Table::programs, "compiler", &RunRow::compiler},
};

// The member at a path such as "performance_summary/final_loss"; null if there is none.
const Json& at(const Json& json, std::string_view path) {
  static const Json none;
  const Json* here = &json;
  while (!path.empty()) {
    const std::string_view key = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(key.size() + 1, path.size()));
    if (!here->is_object()) return none;
    const auto member = here->find(key);
    if (member == here->end()) return none;
    here = &*member;
  }
  return *here;
}

std::string text_at(const Json& json, std::string_view path) {
  const Json& value = at(json, path);
  return value.is_string() ? stored_text(value.get_ref<const std::string&>()) : std::string();
}

std::optional<double> real_at(const Json& json, std::string_view path) {
  const Json& value = at(json, path);
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

// Of something that is 0 where nothing was measured.
std::optional<double> measured_at(const Json& json, std::string_view path) {
  const std::optional<double> value = real_at(json, path);
  return value && *value > 0 ? value : std::nullopt;
}

std::optional<std::int64_t> count_at(const Json& json, std::string_view path) {
  constexpr double most = 9e18;
  const std::optional<double> value = measured_at(json, path);
  if (!value || *value > most) return std::nullopt;
  const Json& exact = at(json, path);
  return exact.is_number_integer() ? exact.get<std::int64_t>() : std::llround(*value);
}

template <class T>
T first_of(T first, T second) {
  return first == T{} ? second : first;
}

// "oneDNN 3.7.0, cuBLASLt 13.0.1" of {"oneDNN": "3.7.0", "cuBLASLt": "13.0.1"}.
std::string libraries_text(const Json& libraries) {
  std::string text;
  if (!libraries.is_object()) return text;
  for (const auto& [name, version] : libraries.items()) {
    if (!version.is_string()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", stored_text(name),
                        stored_text(version.get_ref<const std::string&>()));
  }
  return text;
}

void read_machine(RunRow& row, const Json& context, const Json& record) {
  row.cpu = first_of(text_at(context, "machine/cpu"), text_at(record, "system_info/cpu"));
  row.cores = first_of(count_at(context, "machine/cores"), count_at(record, "system_info/threads"))
                  .value_or(0);
  row.gpu = text_at(context, "machine/gpu");
  row.gpu_uuid = text_at(context, "machine/gpu_uuid");
  row.driver = text_at(context, "machine/driver");
  row.libraries = libraries_text(at(context, "machine/libraries"));
  std::uint64_t hash = fnv1a("");
  for (const std::string& part :
       {row.cpu, std::to_string(row.cores), row.gpu, row.gpu_uuid, row.driver, row.libraries})
    hash = fnv1a(part + '\n', hash);
  row.machine = fmt::format("{:016x}", hash);
}

void read_program(RunRow& row, const Json& context, const Json& record) {
  row.ridge_version =
      first_of(text_at(context, "program/version"), text_at(record, "system_info/ridge_version"));
  row.commit = text_at(context, "program/commit");
  row.binary = text_at(context, "program/binary");
  row.compiler =
      first_of(text_at(context, "program/compiler"), text_at(record, "system_info/compiler"));
}

void read_setting(RunRow& row, const Json& context, const Json& record) {
  row.workload = text_at(record, "workload");
  row.version = text_at(record, "version");
  row.mode = text_at(record, "training_params/mode");
  row.dtype = text_at(record, "training_params/dtype");
  row.device = text_at(record, "system_info/device");
  row.batch_size = count_at(record, "training_params/batch_size");
  // The record of a network of images may name the length of sequences too, which it has no use
  // for; its own size is 0 where the user did not choose it, and the input [N, C, H, W] tells.
  if (at(record, "config/image_size").is_null()) {
    row.seq_len = count_at(record, "training_params/seq_len");
    return;
  }
  const Json& input = at(context, "input_shape");
  row.image_size = count_at(record, "config/image_size");
  if (!row.image_size && input.is_array() && input.size() == 4)
    row.image_size = count_at(Json{{"size", input[3]}}, "size");
}

void read_results(RunRow& row, const Json& context, const Json& record) {
  const Json& summary = at(record, "performance_summary");
  row.median_seconds = measured_at(summary, "median_batch_time");
  row.samples_per_second = measured_at(summary, "samples_per_second");
  row.tokens_per_second = measured_at(summary, "avg_tokens_per_second");
  row.peak_bytes = count_at(summary, "peak_memory_bytes");
  row.kernels =
      first_of(count_at(summary, "kernels_per_step"), count_at(context, "kernels_per_step"));
  row.flops = count_at(summary, "flops_per_step/total");
  row.final_loss = real_at(summary, "final_loss");
  row.outcome = text_at(summary, "outcome");
}

}  // namespace

std::span<const RunColumn> run_columns() { return columns; }

const RunColumn* find_run_column(std::string_view name) {
  std::string plain(name);
  std::ranges::replace(plain, '-', '_');
  const auto found = std::ranges::find_if(columns, [&](const RunColumn& column) {
    return column.name == plain || (!column.alias.empty() && column.alias == plain);
  });
  return found == std::end(columns) ? nullptr : &*found;
}

std::string hardware_of(const RunRow& row) {
  return row.gpu.empty() ? fmt::format("{}, {}", row.cpu, row.cores) : row.gpu;
}

std::string short_commit(std::string_view commit) {
  constexpr std::size_t digits = 10;
  std::string text(commit.substr(0, digits));
  if (commit.size() > digits && commit.ends_with('+')) text += '+';
  return text;
}

DocumentRow row_of(const RunDocument& document) {
  const Json record = json_object(document.record, "the record");
  const Json context = json_object(document.context, "the context");
  const std::string schema = text_at(record, "schema");
  if (!schema.starts_with(schema_prefix))
    throw FormatError("the record's schema is {}, none of ridge-record-1", shown(schema));
  const std::string time = text_at(record, "timestamp");
  const std::optional<UtcSpan> created = utc_from(time);
  if (!created) throw FormatError("the record's timestamp is {}, which is no time", shown(time));

  DocumentRow result;
  RunRow& row = result.row;
  row.created = created->begin;
  read_setting(row, context, record);
  read_results(row, context, record);
  read_machine(row, context, record);
  read_program(row, context, record);
  const Json& options = at(record, "options");
  result.options = options.is_object() ? one_line(options) : "{}";
  result.record = one_line(record);
  result.context = one_line(context);
  return result;
}

nlohmann::ordered_json json_object(std::string_view text, std::string_view what) {
  Json json;
  try {
    json = Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > max_json_depth) throw FormatError("{} is nested too deeply", what);
      return true;
    });
  } catch (const Json::exception&) {
    throw FormatError("{} is not JSON", what);
  }
  if (!json.is_object()) throw FormatError("{} is no JSON object", what);
  return json;
}

std::string one_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string stored_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = std::min(find_invalid_utf8(text), text.find('\0'));
    out += text.substr(0, valid);
    if (valid >= text.size()) break;
    append_utf8(out, 0xFFFD);
    text.remove_prefix(valid + 1);
  }
  return out;
}

}  // namespace ridge
