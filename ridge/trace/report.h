#pragma once

// The report of a trace: where the time of card and host went, and what would help.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridge/trace/counters.h"
#include "ridge/trace/device_work.h"
#include "ridge/trace/findings.h"
#include "ridge/trace/idle_time.h"
#include "ridge/trace/modules.h"
#include "ridge/trace/phases.h"
#include "ridge/trace/ranks.h"
#include "ridge/trace/read.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {

// The memory that an allocator held.
struct MemoryUse {
  std::int32_t device = -1;  // number of the card; -1: the host
  std::int64_t peak_allocated = 0, peak_reserved = 0, final_allocated = 0;
  std::uint64_t allocations = 0;
  double peak_at_us = 0;  // since the first event
};

struct Report {
  std::string file;
  std::optional<std::int64_t> rank;  // if the trace tells it
  std::string device;                // the card's name; empty if the trace does not tell it
  bool of_host = false;              // nothing ran on a card: times are of the host's operators
  std::uint64_t events = 0;
  Damage damage;
  TimeUse use;
  std::vector<StepUse> steps;
  std::vector<PhaseUse> phases;
  IdleTime idle;
  std::vector<KernelSum> kernels;
  std::vector<OperatorSum> operators;
  std::vector<ModuleUse> modules;
  std::vector<CopySum> copies;
  LaunchStatistics launches;
  std::vector<MemoryUse> memory;
  std::vector<CollectiveWork> collectives;
  std::vector<CounterSum> counters;
  std::vector<Finding> findings;

  std::string name() const;  // the rank's number, or the file
  // Whether counters are all that it has: nothing ran on a card, nor any operator on the host.
  bool is_of_counters() const { return use.kernels == 0 && use.span == 0 && !counters.empty(); }
};

// As the trace tells them; the name is of the card on which anything ran, or empty.
std::optional<std::int64_t> rank_of(const Trace& trace);
std::string device_of(const Trace& trace);

Report report_of(const Trace& trace);
Report report_of(const Trace& trace, const Work& work, const HostNesting& nesting);

// The traces of a directory and those within it, by name, gzip's too: those named *.pt.trace.json;
// if there are none, all that end in .json or .sqlite, and rocprofv3's *_kernel_trace.csv in
// folders without JSON.
std::vector<std::filesystem::path> traces_in(const std::filesystem::path& directory);

// Notes on what could not be read of a trace, a line or more each; empty if all could.
std::string damage_text(const Damage& damage);

// Those of one run, in the order of their ranks, with what they say of each other.
struct RunReport {
  std::vector<Report> ranks;
  std::optional<RanksTogether> together;  // if there are several
  std::vector<std::string> left_out;      // sentences: which files of a directory, and why
};

RunReport report_ranks(std::vector<Report> reports);

// `top`: at most so many rows a table; of more than two ranks the first and the latest. The JSON
// has all rows, with "schema": "ridge-trace-report/1".
std::string report_text(const RunReport& run, std::size_t top);
std::string report_json(const RunReport& run);

}  // namespace ridge::trace
