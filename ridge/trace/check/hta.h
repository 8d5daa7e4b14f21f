#pragma once

// The table that HolisticTraceAnalysis (HTA) 0.5.0 and 0.6.1 make of a trace, as far as it decides
// what their analyses find. Source: hta/common/trace.py, hta/common/trace_parser.py and
// hta/analyzers/breakdown_analysis.py of these versions.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ridge/trace/check/event.h"
#include "ridge/trace/check/row.h"

namespace ridge::trace {

class HtaTable {
 public:
  // Notes the next event, which HTA's table has as a row if it has a duration and a category.
  void add(const TraceEvent& event, TraceRow& row);
  // What was noted of the events that follow; so many events came before.
  void append(HtaTable&& following, std::uint32_t before);
  void finish(const TraceRows& rows);  // after the last event, before any question

  bool has_rows() const { return has_rows_; }
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
    TraceTally slices;
    double time = 0;  // us
  };
  const Mistaken& mistaken() const { return mistaken_; }

  std::uint64_t step_names() const { return steps_.size(); }  // how many different ones

 private:
  // A row as the breakdown of a GPU takes it.
  struct Kernel {
    double begin, end;  // us
    bool computes, computes_newest;
  };

  Kernel kernel_of(const TraceRow& row) const;
  void round(const TraceRows& rows);
  void compare_indices(const TraceRows& rows);
  std::vector<Kernel> analysed(const TraceRows& rows) const;
  static Breakdown break_down(const std::vector<Kernel>& kernels, bool Kernel::*computes);

  bool has_rows_ = false;
  std::set<std::string, std::less<>> steps_;
  bool has_arguments_ = false, has_begins_ = false;
  bool fractional_ = false;  // pandas stores begins as floats: one is, or is missing
  bool text_stream_ = false;
  std::uint64_t null_streams_ = 0;
  bool correlations_are_integers_ = true;
  std::int64_t index_over_correlations_ = -1;
  Breakdown breakdown_ = Breakdown::works, breakdown_newest_ = Breakdown::works;
  Rounding rounding_;
  Mistaken mistaken_;
};

}  // namespace ridge::trace
