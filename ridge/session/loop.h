#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/run/outside_ranges.h"
#include "ridge/session/record.h"

namespace ridge {

class Pace;  // session/pace.h

// Hears from a loop what a session does. All are called on the loop's thread, in order.
class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  // Whether steps must be finished one by one: the next may not begin before.
  virtual bool wants_single_steps() const { return false; }
  virtual void before_step(Session&, std::int64_t /*step*/) {}
  // `peak_bytes` are the most that tensors took in this step; `record` has the step already.
  virtual void after_step(Session&, const StepReport&, std::size_t /*peak_bytes*/, Record&) {}
  virtual void evaluated(Session&, const Validation&) {}
  virtual void saved(const std::filesystem::path&, std::int64_t /*step*/) {}
};

// Writes a run's files as far as the system allows: a file that it refuses, as on a full disk, does
// not keep the other files from being written or the results from being printed.
class LastWords {
 public:
  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
    } catch (const IoError& error) {
      if (!first_fault_) first_fault_ = error;
    }
  }
  void throw_fault() const {
    if (first_fault_) throw IoError(*first_fault_);
  }

 private:
  std::optional<IoError> first_fault_;
};

// For the end of the line that says how a run failed before it saved anything.
std::string nothing_saved(const RunOptions& options);

struct LoopConfig {
  std::int64_t last_step = 0;  // the number of the last
  // Whether a GPU may go from step to step without waiting for the host.
  bool runs_ahead = true;
  std::function<bool()> stop = {};  // asked between steps
  // Where checkpoints go, by options.save_every; the last step is saved too.
  std::filesystem::path checkpoint = {};
};

// The steps of a session and what is due between them: evaluation, checkpoints, observers. It ends
// when the last step is done, when it is told to stop, when the loss diverges, or when the device
// fails. Where another process paces the run (session/pace.h), that one says which is the last
// step.
class Loop {
 public:
  Loop(Session& session, LoopConfig config, std::vector<LoopObserver*> observers,
       LastWords& last_words);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // The record so far says all there is to know, also where the device failed: fault() has then
  // what it said, and what is left.
  Record run();
  std::exception_ptr fault() const { return fault_; }

 private:
  void take_steps();
  void step();
  bool ends_with_evaluation() const;
  void begin_step();
  bool may_run_ahead() const;
  bool due(std::int64_t interval, std::int64_t step) const;
  bool is_last() const { return !pace_ && session_.steps_done() >= config_.last_step; }
  void evaluate();
  void save();
  template <class Fault>
  void give_up(const Fault& fault);

  Session& session_;
  const RunOptions& options_;
  LoopConfig config_;
  std::vector<LoopObserver*> observers_;
  LastWords& last_words_;
  Record record_;
  std::unique_ptr<OutsideRanges> ranges_ = OutsideRanges::open();
  std::unique_ptr<Pace> pace_;                      // null: the steps follow each other
  std::int64_t saved_step_ = 0, written_step_ = 0;  // the last to be saved; the last that was
  std::exception_ptr fault_;
};

// Throws Error if a run diverged, with what to do about it. Its summary is worth having all the
// same: its losses show how it went.
void refuse_divergence(const Record& record);

}  // namespace ridge
