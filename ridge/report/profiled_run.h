#pragma once

// A run from its first step to its last file: the loop, what is recorded of it, and what it leaves.
// A program prints what it likes on the way; who embeds Ridge has a profile directory by one call:
//
//   RunListener listener;
//   run_profiled(session, run_plan(session.options()), listener);

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/ceilings.h"
#include "ridge/profile/step_recorder.h"
#include "ridge/report/profile_directory.h"
#include "ridge/session/loop.h"

namespace ridge {

// Hears of a run, beside its steps, what a program prints. By default it is silent. An IoError that
// one of these throws is kept until all else is written.
class RunListener : public LoopObserver {
 public:
  virtual void busy(std::string_view /*what*/) {}      // that something begins which takes a while
  virtual void say(const std::string& /*line*/) {}     // what went otherwise than was asked
  virtual void wrote(const std::filesystem::path&) {}  // a file that is no part of the profile
  // The last step is done, or the device failed in it. Nothing is written yet.
  virtual void ended(Session&, const Record&, const Summary&, LastWords&) {}
  // The profile is analyzed, and not written yet.
  virtual void analyzed(const ProfileContent&) {}
  // The profile is in its directory, as far as the system took it.
  virtual void wrote_profile(const ProfileListing&) {}
  // The last call: the time for files of one's own.
  virtual void finished(const Record&, const Summary&, LastWords&) {}
};

struct RunPlan {
  LoopConfig loop;
  bool by_device = false;                         // Record::by_device
  std::optional<StepRecorder::Config> recording;  // of which steps; none: of none
  std::filesystem::path profile_dir;              // where the profile goes; empty: nowhere
  // Where performance_summary.json goes; the profile's directory among them, if it is to have it.
  std::vector<std::filesystem::path> summary_dirs;
};

// What the options of a training run ask for: as many steps, checkpoints and the summary in
// output_dir, a profile in profile_dir.
RunPlan run_plan(const RunOptions& options);

// Of a rank but the first, which alone leaves what is of the whole run: a profile, if there is to
// be one, goes below the first rank's, in rank-N.
void leave_profile_of_rank(RunPlan& plan, int rank);

// Makes the directories of a plan. IoError if one cannot be written: now, and not after hours, is
// the time to learn that.
void prepare_directories(const RunPlan& plan);

// Runs the steps and writes the files of a plan. What there is of it is written also where the run
// was stopped, diverged (see refuse_divergence()) or lost its device. Throws, after all that, what
// the device failed with, or the first IoError.
Record run_profiled(Session& session, const RunPlan& plan, RunListener& listener);

// The ceilings of a session's device, as its schedule's products are held against them: those that
// are kept, or measured now in a hurry and kept. None, with the reason told, if that is not
// possible.
std::optional<Roof> roof_of_session(Session& session, RunListener& listener);

}  // namespace ridge
