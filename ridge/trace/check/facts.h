#pragma once

// What the rules ask of a trace as a whole. It is gathered in one pass over the events of each
// piece of the file, and the facts of pieces are put together in the file's order.

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/thread_pool.h"
#include "ridge/trace/check/event.h"
#include "ridge/trace/check/hta.h"
#include "ridge/trace/check/row.h"
#include "ridge/trace/check/tracelens.h"

namespace ridge::trace {

// Where one reader of JSON takes a file and another does not.
struct TraceFile {
  std::string name;                  // without directories
  std::uint64_t bytes = 0;           // uncompressed
  bool compressed = false;           // it is a gzip file, whatever its name says
  bool byte_order_mark = false;      // at its begin
  bool numbers_beyond_json = false;  // NaN, Infinity or -Infinity
  bool control_characters = false;   // unescaped within a string
  bool invalid_utf8 = false;
  bool rank_text = false;  // '"rank": ' with the space
  bool bare_list = false;  // of events, with no object around it

  bool is_what_its_name_says() const { return compressed == name.ends_with(".gz"); }
};

class TraceFacts {
 public:
  void add(const TraceEvent& event);    // whose index is how many came before
  void append(TraceFacts&& following);  // the facts of the events that follow
  // After the last event, before any question to what is below the line. Some of the questions are
  // answered at the same time.
  void finish(ThreadPool& pool);

  TraceFile file;
  std::uint32_t events = 0;
  std::uint64_t slices = 0;
  std::uint64_t drawn = 0;                      // slices, instants and counters
  std::uint64_t steps = 0;                      // slices ProfilerStep#N
  std::uint64_t operators = 0;                  // slices of category cpu_op
  std::uint64_t categories = 0, durations = 0;  // events that have one
  bool has_shapes = false;                      // of any operator
  bool has_gradients = false;
  TraceTally without_name;
  std::vector<TraceTally> of_rules;  // the events that a rule speaks of, by its index
  // ----
  bool has_shared_sequence = false;
  TraceTally flows_with_one_end;
  TraceTally crossing;           // slices that end after one that they begin within
  TraceTally crossing_modules;   // those of them that are modules of PyTorch, or cross one
  TraceTally late_without_name;  // where torch-tb-profiler still asks for a name
  std::uint64_t launched_kernels = 0, other_launches = 0;  // kernels; of launches HTA leaves out

  const HtaTable& hta() const { return hta_; }
  const TraceLensTree& tracelens() const { return tracelens_; }

 private:
  struct FlowEvent {
    std::uint64_t flow;
    std::uint32_t event;
    bool begins, ends;
  };

  void add_operator(const TraceEvent& event);
  void add_flow(const TraceEvent& event);
  void add_row(const TraceEvent& event);
  void note_name(const TraceEvent& event);
  void pair_flows();
  void find_crossing();
  void count_launches();
  void find_late_names();
  void compare_sequences();

  HtaTable hta_;
  TraceLensTree tracelens_;
  TraceRows rows_;
  std::vector<FlowEvent> flows_;
  std::vector<std::uint64_t> forward_sequences_, gradient_sequences_;
  std::vector<std::uint32_t> nameless_;
  std::uint64_t last_window_end_ = 0, last_iteration_ = 0;  // index + 1
};

}  // namespace ridge::trace
