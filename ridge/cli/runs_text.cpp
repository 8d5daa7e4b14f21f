#include "ridge/cli/runs_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/study/configuration.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t operators_shown = 5;

template <class T>
std::string number(const std::optional<T>& value, double scale = 1, int digits = 0) {
  return value ? fmt::format("{:.{}f}", scale * static_cast<double>(*value), digits) : "";
}

// "2026-01-31 12:00"
std::string minute_of(std::int64_t time) {
  std::string text = utc_text(time).substr(0, 16);
  text[10] = ' ';
  return text;
}

std::string size_of(const RunRow& run) {
  if (run.image_size) return fmt::format("{0}x{0}", *run.image_size);
  return run.seq_len ? std::to_string(*run.seq_len) : "";
}

// Lines "  Name      value" under a heading; those without a value are left out.
class Lines {
 public:
  void heading(std::string_view text) { out_ += fmt::format("{}\n", text); }
  void line(std::string_view name, std::string_view value) {
    if (!value.empty()) out_ += fmt::format("  {:<13} {}\n", name, printable(value));
  }
  std::string text() && { return std::move(out_); }

 private:
  std::string out_;
};

std::string joined(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string labeled(std::string_view format, const Json& value) {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : std::string();
}

// The options that are not what the workload's are by default, as flags.
std::string given_flags(const Json& record) {
  std::string flags;
  for (const auto& [name, value] : given_options(record)) {
    const bool is_switch = value == "true" || value == "false";
    flags += fmt::format("{}--{}{}", flags.empty() ? "" : " ", name, is_switch ? "" : " " + value);
  }
  return flags;
}

void add_results(Lines& lines, const RunRow& run, const Json& summary) {
  lines.heading("Results");
  const auto millis = [&](const char* name) {
    const Json value = summary.value(name, Json());
    return value.is_number() ? fmt::format("{:.3f}", 1e3 * value.get<double>()) : "?";
  };
  if (run.median_seconds)
    lines.line("Step", fmt::format("{:.3f} ms in the median, {} to {}", 1e3 * *run.median_seconds,
                                   millis("min_batch_time"), millis("max_batch_time")));
  lines.line("Samples/s", number(run.samples_per_second, 1, 1));
  lines.line("Tokens/s", number(run.tokens_per_second));
  if (run.peak_bytes)
    lines.line("Peak memory", fmt::format("{} bytes", format_count(*run.peak_bytes)));
  if (run.kernels) lines.line("Kernels", fmt::format("{} a step", *run.kernels));
  if (run.flops) lines.line("FLOPs", fmt::format("{} a step", format_count(*run.flops)));
  if (run.final_loss) lines.line("Final loss", format_loss(*run.final_loss));
}

void add_conditions(Lines& lines, const Json& conditions) {
  lines.line("Load",
             joined({labeled("{:.2f} before the run", conditions.value("load_average", Json())),
                     labeled("others kept {:.2f} cores busy",
                             conditions.value("busy_cores_of_others", Json()))}));
  lines.line("CPU clock", labeled("{:.0f} MHz", conditions.value("cpu_mhz", Json())));
  const Json card = conditions.value("gpu", Json::object());
  if (!card.is_object()) return;
  const Json clock = card.value("sm_mhz", Json::object());
  const Json reasons = card.value("throttled_by", Json());
  lines.line(
      "GPU seen",
      joined({clock.is_object() ? labeled("{:.0f} MHz at least", clock.value("min", Json())) : "",
              labeled("{:.0f} W", card.value("power_w", Json())),
              labeled("{:.0f} °C", card.value("temperature_c", Json())),
              reasons.is_string() ? "slowed by " + reasons.get<std::string>() : ""}));
}

void add_operators(Lines& lines, const Json& operators) {
  const Json rows = operators.value("rows", Json::array());
  if (!rows.is_array() || rows.empty()) return;
  lines.heading("Operators");
  for (std::size_t i = 0; i < std::min(rows.size(), operators_shown); ++i) {
    if (!rows[i].is_object()) continue;
    const Json total = rows[i].value("total", Json::object());
    if (!total.is_object()) continue;
    const Json share = total.value("share", Json()), name = rows[i].value("name", Json());
    if (share.is_number() && name.is_string())
      lines.line(shortened(printable(name.get<std::string>()), 13),
                 fmt::format("{:.1f} % of the time", 100 * share.get<double>()));
  }
}

Json object_in(const Json& json, const char* name) {
  Json member = json.value(name, Json::object());
  return member.is_object() ? member : Json::object();
}

}  // namespace

std::string runs_text(const RunPage& page) {
  std::vector<TextColumn> columns{{"Run"},
                                  {"Created (UTC)", true},
                                  {"Workload", true, 16},
                                  {"Mode", true, 9},
                                  {"Version", true, 15},
                                  {"Dtype", true, 8},
                                  {"Hardware", true, 22},
                                  {"Batch"},
                                  {"Size"},
                                  {"ms/step"},
                                  {"Samples/s"},
                                  {"Peak MB"},
                                  {"Loss", false, 11},
                                  {"Commit", true, 12},
                                  {"Tags", true, 24}};
  std::vector<TextRow> rows;
  for (const RunRow& run : page.runs) {
    const bool ended = run.outcome == "completed" || run.outcome.empty();
    rows.push_back({std::to_string(run.id), minute_of(run.created), run.workload, run.mode,
                    run.version, run.dtype, hardware_of(run), number(run.batch_size), size_of(run),
                    number(run.median_seconds, 1e3, 3), number(run.samples_per_second, 1, 1),
                    number(run.peak_bytes, 1e-6, 1),
                    ended ? number(run.final_loss, 1, 4) : run.outcome, short_commit(run.commit),
                    fmt::format("{}", fmt::join(run.tags, " "))});
  }
  const auto shown = static_cast<std::int64_t>(page.runs.size());
  if (shown == 0) return "No runs\n";
  std::string text = text_table(columns, rows);
  return text + (shown == page.total
                     ? fmt::format("{} {}\n", format_count(shown), shown == 1 ? "run" : "runs")
                     : fmt::format("{} of {} runs; --limit N and --all show more\n",
                                   format_count(shown), format_count(page.total)));
}

std::string run_text(const RunRow& run, const RunDocument& document) {
  const Json record = json_object(document.record, "the record");
  const Json context = json_object(document.context, "the context");
  Lines lines;
  lines.heading(fmt::format("Run {}", run.id));
  lines.line("UUID", to_string(run.uuid));
  lines.line("Created", utc_text(run.created));
  lines.line("Workload", joined({run.workload, run.mode, run.version, run.dtype}));
  lines.line("Batch", number(run.batch_size));
  lines.line(run.image_size ? "Image size" : "Sequence", size_of(run));
  lines.line("Options", given_flags(record));
  lines.line("Outcome", run.outcome);
  lines.line("Study", run.study);
  for (const std::string& tag : run.tags) lines.line("Tag", tag);
  add_results(lines, run, object_in(record, "performance_summary"));
  lines.heading("Machine");
  lines.line("Digest", run.machine);
  lines.line("CPU",
             fmt::format("{}, {} {} used", run.cpu, run.cores, run.cores == 1 ? "core" : "cores"));
  lines.line("GPU", joined({run.gpu, run.gpu_uuid}));
  lines.line("Driver", run.driver);
  lines.line("Libraries", run.libraries);
  add_conditions(lines, object_in(context, "conditions"));
  lines.heading("Program");
  lines.line("Ridge", joined({run.ridge_version, run.compiler}));
  lines.line("Commit", run.commit);
  lines.line("Binary", run.binary);
  const Json operators = object_in(context, "operators");
  add_operators(
      lines, operators.empty() ? object_in(object_in(record, "profile"), "operators") : operators);
  return std::move(lines).text();
}

}  // namespace ridge
