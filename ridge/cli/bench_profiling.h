#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ridge/analyze/ceilings.h"
#include "ridge/bench/session.h"
#include "ridge/cli/bench_request.h"
#include "ridge/cli/card_watch.h"
#include "ridge/cli/terminal.h"
#include "ridge/profile/recorder.h"

namespace ridge {

// Where the trace goes: as --export-profile says, or beside the user under the network's name for
// --kineto alone. Empty if none was asked for.
std::filesystem::path trace_file(const BenchRequest& request);

// The profile of a benchmark: records the last iterations, and the one whose FLOPs were asked for,
// then prints the tables. Does nothing if none was asked for.
class BenchProfiling {
 public:
  // DeviceError, before anything runs, if the device cannot be traced.
  BenchProfiling(const BenchRequest& request, BenchSession& session);

  // Around each timed iteration, numbered from 0.
  void before(std::int64_t iteration);
  void after(std::int64_t iteration, const BenchIteration& done);
  bool recorded(std::int64_t iteration) const { return first_ <= iteration && iteration <= last_; }

  // After the last. IoError if the trace cannot be written, once all is printed.
  void finish(Terminal& terminal);
  // The tables as JSON, once finished; empty if there are none.
  const std::string& json() const { return json_; }

 private:
  void stop();
  Roof find_roof(Terminal& terminal) const;
  void print_operators(Terminal& terminal, const Recording& on_device);
  void print_flops(Terminal& terminal, const Recording& on_device);
  void write_trace(Terminal& terminal) const;

  const BenchRequest& request_;
  BenchSession& session_;
  std::int64_t first_ = 0, last_ = -1;  // iterations to record
  Recorder recorder_;
  std::unique_ptr<CardWatch> card_;  // while recording
  std::string json_;
};

}  // namespace ridge
