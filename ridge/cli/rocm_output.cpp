#include "ridge/cli/rocm_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ridge/analyze/speed_of_light.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/kernel_stats.h"
#include "ridge/profile/perfetto.h"
#include "ridge/profile/rocm_files.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

void write(const RocmProfile::File& file, const Recording& host, const Recording& on_device,
           const StepRecorder& recorder) {
  switch (file.form) {
    case RocmForm::calls:
      return write_rocprof_calls(on_device, file.path);
    case RocmForm::stats:
      return write_text_file(file.path, rocprof_stats_csv(on_device));
    case RocmForm::dispatches:
      return write_rocprof_dispatches(on_device, file.path);
    case RocmForm::counters:
      return write_rocprof_dispatches(on_device, file.path, counted_nodes(recorder));
    case RocmForm::kernel_trace:
      write_kernel_trace(on_device, file.path, std::numeric_limits<std::size_t>::max());
      return;
    case RocmForm::kernel_stats:
      return write_text_file(file.path, kernel_stats_csv(on_device));
    case RocmForm::domain_stats:
      return write_text_file(file.path, domain_stats_csv(on_device));
    case RocmForm::agent_info:
      return write_text_file(file.path, agent_info_csv(on_device));
    case RocmForm::chrome:
      write_chrome_trace(file.path, host);
      return;
    case RocmForm::perfetto:
      write_perfetto(file.path, host);
      return;
  }
}

bool is_timeline(RocmForm form) { return form == RocmForm::chrome || form == RocmForm::perfetto; }

}  // namespace

void begin_rocm_profile(const RocmProfile& profile, Terminal& terminal) {
  if (profile.files.empty()) return;
  terminal.line(fmt::format("{}: Profiling enabled, by Ridge", profile.tool));
  for (const RocmProfile::File& file : profile.files) {
    if (file.path.has_parent_path()) make_directories(file.path.parent_path());
    probe_writing(file.path);
  }
  terminal.line(
      fmt::format("Profiling output will be in: {}", profile.files.front().path.string()));
  terminal.line("");
}

void record_for_rocm(const RocmProfile& profile, const Device& device, RunPlan& plan) {
  if (!plan.recording) plan.recording.emplace();
  const bool counts_apart = profile.counts && device.is_gpu();
  plan.recording->window = {
      1, std::max<std::int64_t>(1, plan.loop.last_step - (counts_apart ? steps_to_count_in() : 0))};
  plan.recording->counters = plan.recording->counters || profile.counts;
}

void write_rocm_files(const RocmProfile& profile, const ProfileContent& content,
                      RunListener& listener, Terminal& terminal) {
  if (profile.files.empty()) return;
  const StepRecorder& recorder = content.recorder;
  Recording on_device = recorder.on_device();
  if (profile.truncates) on_device = with_truncated_names(std::move(on_device));
  terminal.line("");
  terminal.line("Profiling complete.");
  if (profile.prints_table) {
    terminal.line("");
    terminal.lines(kernel_summary_text(on_device));
  }
  for (const RocmProfile::File& file : profile.files) {
    write(file, recorder.host(), on_device, recorder);
    if (!is_timeline(file.form)) {
      terminal.line(fmt::format("Results saved to: {}", file.path.string()));
      continue;
    }
    terminal.line(fmt::format("Timeline saved to: {}", file.path.string()));
    terminal.line(fmt::format("File size: {}",
                              format_megabytes(static_cast<double>(fs::file_size(file.path)))));
    terminal.line("View at: https://ui.perfetto.dev");
  }
  if (!profile.counts) return;
  const auto roof = roof_of_session(content.session, listener);
  if (!roof) return;
  terminal.line("");
  terminal.lines(speed_of_light_text(
      speed_of_light(recorder, analyze_bottlenecks(recorder.on_device(), *roof))));
}

}  // namespace ridge
