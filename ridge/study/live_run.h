#pragma once

// Runs in progress, beside the store that will keep them: of each a small file that a dashboard
// reads again and again, "<store>-live/<uuid>.json".
//
//   {"schema":"ridge-live-1","uuid":"...","pid":4711,"started":1795543971,"written_ms":...,
//    "about":{...},"last":{"step","loss","seconds","bytes","power_w"},
//    "stride":1,"step":[..],"loss":[..],"seconds":[..],"slowest":[..]}
//
// Step number i of the lists stands for the `stride` steps that end with it: the mean of their
// losses and seconds, and the slowest. The file is replaced, never changed. As long as its process
// lives, that holds a lock on "<uuid>.lock" beside it, which the system releases at any end; the
// two are removed when the run ends well, and later by others if it did not.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ridge/study/uuid.h"

namespace ridge {

struct LiveStep {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  double seconds = 0;     // all of the step
  std::size_t bytes = 0;  // the most that tensors took in it
  std::optional<double> power_w;
};

// Tells others of a run while it is in progress: at most twice a second, on the thread that calls.
// What the system refuses is not told; the run goes on.
class LiveRun {
 public:
  // `about` says what runs: "workload", "last_step", and what else there is to know.
  LiveRun(const std::filesystem::path& store, const Uuid& uuid, nlohmann::ordered_json about);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  bool is_due() const;  // whether the next step will be written at once
  void step(const LiveStep& step);

  static constexpr std::chrono::milliseconds interval{500};
  static constexpr std::size_t max_points = 512;  // of a list; then neighbors are merged

 private:
  struct Point {
    std::int64_t step = 0;
    double loss = 0, seconds = 0, slowest = 0;
  };
  void add(const LiveStep& step);
  void write();

  std::filesystem::path file_, lock_file_;
  nlohmann::ordered_json head_;
  int lock_ = -1;  // -1: nothing can be told
  std::vector<Point> points_;
  std::int64_t stride_ = 1, gathered_ = 0;
  Point open_;  // sums of the steps gathered
  LiveStep last_;
  std::chrono::steady_clock::time_point written_{};
};

// What is known of a run that is, or was, in progress.
struct LiveReport {
  Uuid uuid{};
  bool alive = false;  // else its process ended without ending the run
  nlohmann::ordered_json json;
};
// Of one store, in the order of their uuids. Files that are no such reports are passed over.
std::vector<LiveReport> live_runs(const std::filesystem::path& store);

// Removes what processes left that died, if it is older than that.
void remove_dead_live_runs(const std::filesystem::path& store, std::chrono::seconds older_than);

}  // namespace ridge
