#pragma once

// The table that HolisticTraceAnalysis (HTA) 0.5.0 and 0.6.1 make of a trace, as far as it decides
// what their analyses find. Source: hta/common/trace.py, hta/common/trace_parser.py and
// hta/analyzers/breakdown_analysis.py of these versions.

#include <cstdint>
#include <string_view>
#include <vector>

#include "ridge/profile/trace_event.h"

namespace ridge {

class HtaTable {
 public:
  // Makes a row of an event, as HTA does if it has a duration and a category.
  void add(const TraceEvent& event);
  void finish();  // after the last event, before any question

  bool has_rows() const { return !rows_.empty(); }
  bool has_arguments() const { return has_arguments_; }  // of any event
  bool has_begins() const { return has_begins_; }        // "ts" of any event

  // The highest index of a launch or its kernel, if an integer that is just wide enough for every
  // correlation cannot hold it; else -1. pandas 3 refuses to store it; pandas 2 widens the column.
  std::int64_t index_over_correlations() const { return index_over_correlations_; }

  // Rows whose stream is null, if another's is text: only then 0.5.0 meets the null itself.
  std::uint64_t null_streams() const { return text_stream_ ? null_streams_ : 0; }

  // How the temporal breakdown ends.
  enum class Breakdown : std::uint8_t { works, finds_no_kernels, asserts };
  Breakdown breakdown(bool newest) const { return newest ? breakdown_newest_ : breakdown_; }

  // HTA takes begins up and ends down to whole microseconds.
  struct Rounding {
    std::uint64_t kernels = 0, lost_whole = 0;  // which count as no time, or less
    double time = 0, rounded_time = 0;          // us, of all kernels
  };
  const Rounding& rounding() const { return rounding_; }

  // The slices of the CPU that HTA takes for kernels because their args have a stream.
  struct Mistaken {
    std::uint64_t count = 0;
    double time = 0;  // us
    const nlohmann::json* first = nullptr;
  };
  const Mistaken& mistaken() const { return mistaken_; }

  std::uint64_t step_names() const { return step_names_; }  // how many different ones

 private:
  struct Row {
    double begin, end;
    std::int64_t stream, correlation;
    std::size_t index;
    bool on_gpu, step, computes, computes_newest;
    bool kernel;  // by its category
  };

  void round();
  void compare_indices();
  std::vector<const Row*> analysed() const;
  static Breakdown break_down(std::vector<const Row*> rows, bool Row::*computes);

  std::vector<Row> rows_;
  std::vector<std::string_view> steps_;
  bool has_arguments_ = false, has_begins_ = false;
  bool fractional_ = false;  // pandas stores begins as floats: one is, or is missing
  bool text_stream_ = false;
  std::uint64_t null_streams_ = 0;
  bool correlations_are_integers_ = true;
  std::int64_t index_over_correlations_ = -1;
  Breakdown breakdown_ = Breakdown::works, breakdown_newest_ = Breakdown::works;
  Rounding rounding_;
  Mistaken mistaken_;
  std::uint64_t step_names_ = 0;
};

}  // namespace ridge
