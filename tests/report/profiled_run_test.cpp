// A run with its profile, as a library: what it leaves, whatever becomes of it.

#include "ridge/report/profiled_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cpu/device.h"
#include "ridge/report/report_page.h"
#include "tests/base/temporary_cache.h"
#include "tests/base/temporary_directory.h"
#include "tests/run/failing_devices.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LossyDevice;

// Notes what it hears of, in order.
struct Listener final : RunListener {
  void say(const std::string& line) override { heard.push_back(line); }
  void ended(Session&, const Record&, const Summary&, LastWords&) override {
    heard.emplace_back("ended");
  }
  void wrote(const std::filesystem::path& file) override { heard.push_back(file.filename()); }
  void analyzed(const ProfileContent&) override { heard.emplace_back("analyzed"); }
  void wrote_profile(const ProfileListing& listing) override {
    heard.emplace_back("profile");
    EXPECT_THAT(listing.refused, ::testing::IsEmpty());
    EXPECT_THAT(listing.written, ::testing::Contains("operators.json"));
  }
  void finished(const Record&, const Summary&, LastWords&) override {
    heard.emplace_back("finished");
  }

  std::vector<std::string> heard;
};

class ProfiledRun : public ::testing::Test {
 protected:
  RunOptions options(RunOptions o = small_llama()) const {
    o.num_steps = 6;
    o.enable_pytorch_profiler = true;
    o.threads = 1;
    o.output_dir = (directory_.path / "out").string();
    o.profile_dir = (directory_.path / "profile").string();
    o.resolve();
    return o;
  }
  std::filesystem::path profile() const { return directory_.path / "profile"; }

  TemporaryCache cache_;
  TemporaryDirectory directory_;
  CpuDevice device_{1};
};

// Of a model of tokens and of a network alike.
TEST_F(ProfiledRun, LeavesADirectoryThatAPageIsDrawnOf) {
  for (const RunOptions& o :
       {options(), options(network_options("squeezenet1_1", Use::training, "v2", "fp32", 32)),
        options(network_options("squeezenet1_1", Use::inference, "default", "fp32", 32))}) {
    Session session(o, device_);
    Listener listener;
    const Record record = run_profiled(session, run_plan(o), listener);
    EXPECT_EQ(record.outcome, Outcome::completed);
    EXPECT_EQ(record.recorded.size(), 3u);
    EXPECT_THAT(listener.heard,
                ElementsAre("ended", "performance_summary.json", "performance_summary.json",
                            "analyzed", "profile", "finished"));
    const auto document = profile_document(profile());
    EXPECT_EQ(document["performance_summary"]["workload"], o.network);
    EXPECT_EQ(document["operators"]["first_step"], 4);
    EXPECT_FALSE(document["bottlenecks"].is_null());
  }
}

// Sampled beside all steps, shown in the trace beside those that were recorded.
TEST_F(ProfiledRun, HasTheMachineBesideTheSteps) {
  RunOptions o = options();
  o.profile_system = true;
  o.profile_system_interval = 1;
  Session session(o, device_);
  Listener listener;
  run_profiled(session, run_plan(o), listener);
  const auto system = profile_document(profile())["system"];
  ASSERT_FALSE(system.is_null());
  EXPECT_EQ(system["steps"].size(), 6u);
  EXPECT_EQ(system["steps"][0]["step"], 1);
  EXPECT_LE(system["steps"][5]["end_ns"], system["duration_ns"]);
  EXPECT_GT(system["series"].size(), 5u);
  EXPECT_GT(system["sampler_core_share"], 0);

  const auto trace = nlohmann::json::parse(
      read_text_file(profile() / "trace_step_4_6.json", std::size_t{64} << 20));
  double first = 1e18, last = 0;  // of the recorded steps
  std::size_t counters = 0;
  for (const auto& event : trace["traceEvents"])
    if (event["name"].get<std::string>().starts_with("ProfilerStep#")) {
      first = std::min(first, event["ts"].get<double>());
      last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
    }
  for (const auto& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "system") continue;
    ++counters;
    EXPECT_EQ(event["ph"], "C");
    EXPECT_GE(event["ts"], first);
    EXPECT_LE(event["ts"], last);
  }
  EXPECT_GT(counters, 5u);

  o.profile_system = false;  // what the run before left is of another run
  Session without(o, device_);
  run_profiled(without, run_plan(o), listener);
  EXPECT_TRUE(profile_document(profile())["system"].is_null());
}

TEST_F(ProfiledRun, RecordsNothingUnlessAsked) {
  RunOptions o = options();
  o.enable_pytorch_profiler = false;
  Session session(o, device_);
  Listener listener;
  run_profiled(session, run_plan(o), listener);
  EXPECT_THAT(listener.heard, ElementsAre("ended", "performance_summary.json", "finished"));
  EXPECT_FALSE(std::filesystem::exists(profile()));
}

TEST_F(ProfiledRun, SaysThatItEndedBeforeThereWasAnythingToRecord) {
  const RunOptions o = options();
  Session session(o, device_);
  RunPlan plan = run_plan(o);
  int asked = 0;
  plan.loop.stop = [&] { return ++asked > 1; };
  Listener listener;
  EXPECT_EQ(run_profiled(session, plan, listener).outcome, Outcome::interrupted);
  EXPECT_THAT(
      listener.heard,
      ElementsAre("Interrupted", "ended", "performance_summary.json", "performance_summary.json",
                  "Nothing was profiled: the run ended before step 4", "finished"));
}

// What had been recorded until then is there, without what the device would have to be asked for.
TEST_F(ProfiledRun, OfALostDeviceLeavesWhatWasRecorded) {
  RunOptions o = options();
  o.save_every = 0;
  LossyDevice sound(device_);
  std::size_t in_setup = 0;
  {
    Session session(o, sound);
    in_setup = sound.launches();
    for (int i = 0; i < 6; ++i) session.step();
  }
  const std::size_t a_step = (sound.launches() - in_setup) / 6;
  LossyDevice lossy(device_, in_setup + 5 * a_step + a_step / 2, true);
  Session session(o, lossy);
  Listener listener;
  try {
    run_profiled(session, run_plan(o), listener);
    ADD_FAILURE() << "the device was not lost";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("uncorrectable ECC error"));
  }
  EXPECT_THAT(listener.heard,
              ElementsAre("The device failed", "ended", "performance_summary.json",
                          "performance_summary.json", "analyzed", "profile", "finished"));
  const auto document = profile_document(profile());
  EXPECT_EQ(document["performance_summary"]["performance_summary"]["outcome"], "failed");
  EXPECT_EQ(document["operators"]["first_step"], 4);
  EXPECT_EQ(document["operators"]["last_step"], 5) << "the step in which it failed is none";
  EXPECT_LE(document["operators"]["operators_ns"], document["operators"]["step_time_ns"]);
  EXPECT_TRUE(document["bottlenecks"].is_null());
}

// A listener's own file that the system refuses costs no other.
TEST_F(ProfiledRun, KeepsAFaultUntilAllElseIsWritten) {
  struct Refused final : RunListener {
    void ended(Session&, const Record&, const Summary&, LastWords&) override {
      throw IoError("first");
    }
    void finished(const Record&, const Summary&, LastWords&) override { throw IoError("second"); }
  } listener;
  const RunOptions o = options();
  Session session(o, device_);
  try {
    run_profiled(session, run_plan(o), listener);
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_TRUE(std::filesystem::exists(profile() / "operators.json"));
}

}  // namespace
}  // namespace ridge
