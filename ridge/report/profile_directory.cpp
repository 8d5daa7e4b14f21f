#include "ridge/report/profile_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "ridge/analyze/flops_answers.h"
#include "ridge/analyze/speed_of_light.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/system.h"
#include "ridge/base/units.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/kernel_stats.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/memory_timeline.h"
#include "ridge/profile/perfetto.h"
#include "ridge/profile/scalars.h"
#include "ridge/profile/system_report.h"
#include "ridge/profile/tensorboard.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The files that are written into a profile directory. The system may refuse one, as a full disk
// does a large one, and take the others.
class ProfileFiles {
 public:
  ProfileFiles(fs::path directory, const std::function<void(const std::string&)>& tell)
      : directory_(directory), tell_(tell), listing_{.directory = std::move(directory)} {}

  // `write` writes a file of the directory and returns its name.
  template <class Write>
  void add(const Write& write) {
    try {
      listing_.written.push_back(write());
    } catch (const IoError& error) {
      listing_.refused.emplace_back(error.what());
    }
  }
  template <class Write>
  void add(const std::string& name, const Write& write) {
    add([&] {
      write(directory_ / name);
      return name;
    });
  }
  void add_text(const std::string& name, const std::string& text) {
    add(name, [&](const fs::path& path) { write_text_file(path, text); });
  }
  // If there is such a text; else one that a run before left is removed.
  void add_if_any(const std::string& name, const std::optional<std::string>& text) {
    if (text)
      add_text(name, *text);
    else
      remove(name);
  }
  void remove(const std::string& name) const {
    std::error_code ignored;
    fs::remove(directory_ / name, ignored);
  }
  void say_cut(const fs::path& path, std::uint64_t left_out, std::string_view bound) const {
    if (left_out > 0)
      tell_(fmt::format("{}: {} events left out beyond {}", path.filename().string(),
                        format_count(static_cast<std::int64_t>(left_out)), bound));
  }
  ProfileListing listing() && { return std::move(listing_); }

 private:
  fs::path directory_;
  const std::function<void(const std::string&)>& tell_;
  ProfileListing listing_;
};

// `recording` on the executor's clock.
void write_traces(ProfileFiles& files, const Recording& recording, bool compress) {
  const std::string end = compress ? ".gz" : "";
  fs::path trace;
  files.add(step_trace_name(recording.steps.front().step, recording.steps.back().step) + end,
            [&](const fs::path& path) {
              const TraceSize size = write_chrome_trace(path, recording);
              files.say_cut(path, size.left_out, format_bytes(size.bytes));
              trace = path;
            });
  // TensorBoard's profiler asks for a name of its own.
  if (!trace.empty())
    files.add(
        worker_trace_name(host_name(), recording.process_id, recording.epoch_ns / 1'000'000) + end,
        [&](const fs::path& path) { duplicate_file(trace, path); });
  files.add("trace.pftrace", [&](const fs::path& path) {
    const TraceSize size = write_perfetto(path, recording);
    files.say_cut(path, size.left_out, format_bytes(size.bytes));
  });
}

// All ranks call it; the first one has the file.
void write_trace_of_ranks(ProfileFiles& files, const ProfileContent& content) {
  const std::string plain = "trace_all_ranks.json", compressed = plain + ".gz";
  const std::string& name = content.compress_traces ? compressed : plain;
  for (const std::string& old : {plain, compressed}) files.remove(old);
  Communicator* const ranks = content.session.device().communicator();
  if (!content.communication || ranks == nullptr) return;
  const auto write = [&](const fs::path& path) {
    const TraceSize size = write_chrome_trace_of_ranks(path, content.recorder.host(),
                                                       content.ranks.arrivals.ahead_ns, *ranks);
    files.say_cut(path, size.left_out, format_bytes(size.bytes));
  };
  if (ranks->rank() == 0)
    files.add(name, write);
  else
    write({});
}

std::string write_events(const fs::path& directory, const ProfileContent& content) {
  const Recording& recording = content.recorder.on_device();
  const Record& record = content.record;
  double time = static_cast<double>(recording.epoch_ns) * 1e-9;
  EventFile events(directory, host_name(), time);
  std::optional<double> compute_floor;
  if (content.bottlenecks) compute_floor = content.bottlenecks->all.compute_floor;
  const std::vector<StepMemory> memory = memory_by_step(recording);
  for (const StepReport& step : content.recorder.steps()) {
    time += step.seconds;
    const auto of_step = std::ranges::find(memory, step.step, &StepMemory::step);
    events.add(step.step, time,
               step_scalars(step, record.samples_per_step, record.workload.tokens_per_sample,
                            of_step == memory.end() ? nullptr : &*of_step, compute_floor));
  }
  events.sync();
  return events.path().filename().string();
}

std::optional<std::string> counters_text_of(const ProfileContent& content) {
  if (const HardwareCounters* const counters = content.recorder.counters())
    return counters_json(report_counters(content.session.graph(), *counters));
  if (const auto report = content.recorder.device_counters()) return device_counters_json(*report);
  return std::nullopt;
}

}  // namespace

ProfileListing write_profile(const fs::path& directory, const ProfileContent& content,
                             const std::function<void(const std::string&)>& tell) {
  const Recording& recording = content.recorder.on_device();
  ProfileFiles files(directory, tell);
  write_traces(files, content.recorder.host(), content.compress_traces);
  write_trace_of_ranks(files, content);
  files.add([&] { return write_events(directory, content); });
  const OperatorTable operators = operator_table(recording);
  files.add_text("operators.json", operator_table_json(operators));
  files.add_text("operators.csv", operators_csv(operators));
  files.add_text("nodes.json", nodes_json(recording));
  if (content.group_by != GroupBy::op)
    files.add_text(
        fmt::format("operators_by_{}.json", name_of(content.group_by)),
        operator_table_json(operator_table(recording, content.group_by, content.sort_by)));
  nlohmann::ordered_json modules = json_of(flops_report(recording));
  modules["work"] = json_of(work_answers(recording));
  files.add_text("modules.json", text_of(modules));
  files.add_text("kernel_stats.csv", kernel_stats_csv(recording));
  files.add("kernel_trace.csv", [&](const fs::path& path) {
    const std::size_t left_out = write_kernel_trace(recording, path);
    files.say_cut(path, left_out, format_count(max_kernel_trace_rows) + " rows");
  });
  files.add_text("memory.json", memory_report_json(memory_report(recording)));
  files.add_text("memory_timeline.json", memory_timeline_json(recording));
  files.add_text("memory_timeline.svg", memory_timeline_svg(recording));
  std::optional<std::string> bottlenecks, device, light;
  if (content.bottlenecks) {
    bottlenecks = bottleneck_json(*content.bottlenecks);
    light = speed_of_light_json(speed_of_light(content.recorder, *content.bottlenecks));
  }
  if (const auto report = device_report(recording)) device = device_report_json(recording, *report);
  files.add_if_any("bottlenecks.json", bottlenecks);
  files.add_if_any("speed_of_light.json", light);
  files.add_if_any("device.json", device);
  std::optional<std::string> communication;
  if (content.communication)
    communication = communication_json(*content.communication, content.ranks);
  files.add_if_any("communication.json", communication);
  files.add_if_any("counters.json", counters_text_of(content));
  files.add_if_any("system.json", system_json(recording));
  files.add_text("config.json", to_json(content.record.options));
  if (fs::exists(directory / "performance_summary.json"))
    files.add([] { return std::string("performance_summary.json"); });
  return std::move(files).listing();
}

}  // namespace ridge
