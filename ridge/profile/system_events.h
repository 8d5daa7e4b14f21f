#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ridge/profile/chrome_events.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/system_samples.h"

namespace ridge {

// "core 3 busy (%)": the name of a series in traces.
std::string counter_name(const SystemSeries& series);

// Where counters stand in a Chrome trace.
struct ShownCounters {
  std::int64_t process = 0;               // the id of their track
  std::int64_t begin_ns = 0, end_ns = 0;  // points that touch this stretch of time are shown
  std::int64_t zero_ns = 0;               // the time that is 0 in the file
};

// Emits the points of all series as counters ("ph": "C") of the category "system". A point that is
// as the one before it is left out: a counter holds until the next.
void emit_system_counters(const SystemSamples& samples, const ShownCounters& shown,
                          const EmitEvent& emit);

// A command that ran while a machine was sampled.
struct RecordedCommand {
  std::string line;  // as it was given
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t epoch_ns = 0;  // since 1970-01-01, of the sampler's time 0
};

// Writes samples as a Chrome trace, atomically: the command as a user_annotation, its processes as
// slices on threads of their own, and all counters. Times are since `epoch_ns` in
// baseTimeNanoseconds, as in PyTorch's traces. IoError as by AtomicFile.
TraceSize write_system_trace(const std::filesystem::path& path, const SystemSamples& samples,
                             std::span<const SystemSamples> cards, const RecordedCommand& command,
                             const TraceOptions& options = {});

}  // namespace ridge
