#pragma once

// What the rules ask of a trace as a whole, gathered in one pass over its events.

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ridge/profile/trace_event.h"
#include "ridge/profile/trace_hta.h"
#include "ridge/profile/trace_tracelens.h"

namespace ridge {

class TraceFacts {
 public:
  explicit TraceFacts(const TraceFile& file) : file_(&file) {}

  void add(const TraceEvent& event);
  void finish();  // after the last event

  const TraceFile& file() const { return *file_; }
  const HtaTable& hta() const { return hta_; }
  const TraceLensTree& tracelens() const { return tracelens_; }

  std::uint64_t events = 0, slices = 0;
  std::uint64_t drawn = 0;                      // slices, instants and counters
  std::uint64_t steps = 0;                      // slices ProfilerStep#N
  std::uint64_t operators = 0;                  // slices of category cpu_op
  std::uint64_t categories = 0, durations = 0;  // events that have one
  bool has_shapes = false;                      // of any operator
  bool has_gradients = false, has_shared_sequence = false;
  TraceTally flows_with_one_end;
  TraceTally crossing;          // slices that end after one that they begin within
  TraceTally crossing_modules;  // those of them that are modules of PyTorch, or cross one
  TraceTally without_name;
  TraceTally late_without_name;  // where torch-tb-profiler still asks for a name
  std::uint64_t launched_kernels = 0, other_launches = 0;  // kernels; of launches HTA leaves out

 private:
  struct Slice {
    double begin, end;
    const nlohmann::json* event;
  };
  struct Flow {
    bool begins = false, ends = false;
    const nlohmann::json* event = nullptr;
  };

  void add_operator(const TraceEvent& event);
  void add_flow(const TraceEvent& event);
  void note_name(const TraceEvent& event);
  void find_crossing();
  void count_launches();

  const TraceFile* file_;
  HtaTable hta_;
  TraceLensTree tracelens_;
  std::unordered_map<std::uint64_t, std::vector<Slice>> tracks_;
  std::unordered_map<std::uint64_t, Flow> flows_;
  std::unordered_set<std::uint64_t> forward_sequences_, gradient_sequences_;
  std::unordered_map<std::uint64_t, bool> launches_;  // whether HTA knows the name, by correlation
  std::vector<std::uint64_t> kernels_;                // their correlations
  std::vector<std::pair<std::size_t, const nlohmann::json*>> nameless_;
  std::size_t last_window_end_ = 0, last_iteration_ = 0;  // index + 1
};

}  // namespace ridge
