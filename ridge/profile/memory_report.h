#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ridge/profile/memory_timeline.h"
#include "ridge/profile/recording.h"

namespace ridge {

// One storage, or one node's workspace, however often it was allocated.
struct TensorMemory {
  std::string name;  // "layers.0.attention: softmax"
  std::string type;  // "f32[8, 8, 128, 128]"; empty for a workspace
  MemoryGroup group = MemoryGroup::activations;
  std::uint64_t bytes = 0;
  std::int64_t times_allocated = 0;  // within the recorded steps
  bool alive_at_peak = false;
};

// The memory of the recorded steps. Bytes are those that the allocator handed out, alignment
// included.
struct MemoryReport {
  std::uint64_t peak = 0;
  double average = 0;  // over time
  std::uint64_t peak_by_phase[3] = {};
  std::int64_t allocations = 0;  // within the recorded steps
  std::int64_t steps = 0;
  std::uint64_t released_to = 0;    // live when the last step ended
  std::uint64_t peak_reserved = 0;  // by the allocator, at any time

  // The moment of the peak.
  std::int64_t peak_ns = 0;
  std::int32_t peak_step = 0;
  Phase peak_phase = Phase::forward;
  std::string peak_owner;  // what was allocated then
  std::uint64_t reserved_at_peak = 0;
  MemoryByGroup at_peak{};
  std::map<std::string, std::uint64_t> at_peak_by_module;  // by the path of the scope

  std::vector<TensorMemory> tensors;  // the largest first
  std::uint64_t dropped = 0;          // records the recording had no room for
  std::vector<std::pair<std::string, std::string>> questions;  // and answers: memory_answers()

  double peak_to_average() const { return average > 0 ? static_cast<double>(peak) / average : 0; }
  // The part of the memory held at the peak that was of no use to anyone.
  double fragmentation() const {
    return reserved_at_peak > 0
               ? 1 - static_cast<double>(peak) / static_cast<double>(reserved_at_peak)
               : 0;
  }
};

MemoryReport memory_report(const Recording& recording);
std::string memory_text(double bytes);  // "12.34 MB"

// For the terminal: the summary, what was alive at the peak, the `top` largest tensors.
std::string memory_report_text(const MemoryReport& report, std::size_t top = 10);
std::string memory_report_json(const MemoryReport& report, std::size_t top = 100);

}  // namespace ridge
