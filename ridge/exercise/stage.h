#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ridge/device/device.h"
#include "ridge/session/options.h"
#include "ridge/session/session.h"

namespace ridge {

// What makes a training run defective: it is done with these instead of with none.
struct Defect {
  SessionHooks hooks;
  std::unique_ptr<Device> device;  // null: nothing is wrong with the device

  Device& device_or(Device& given) const { return device ? *device : given; }
};

// A stage of the debugging exercise: a run with one thing wrong in it.
struct DebugStage {
  std::int64_t number;
  std::string_view title;    // says nothing of the cause
  std::string_view symptom;  // what a look at the run's output shows
  std::string_view hint;     // a question, and the tool that answers it
  std::string_view cause;    // what was done to the run
  std::string_view evidence;
  std::string_view fix;
  // Makes the defect for a run on `device`, which outlives it. UsageError for options under which
  // it would change nothing.
  Defect (*apply)(const RunOptions& options, Device& device);
};

std::span<const DebugStage> debug_stages();
// UsageError if there is none of that number.
const DebugStage& debug_stage(std::int64_t number);

// What stage 5 trains on unless told otherwise: sums of small numbers in figures, a line each, of
// which a model learns something within a few steps.
std::string sums_text();

}  // namespace ridge
