#include "ridge/study/live_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct LiveRuns : ::testing::Test {
  TemporaryDirectory directory;
  fs::path store = directory.path / "runs.db", live = directory.path / "runs.db-live";
  Uuid uuid = random_uuid();
};

TEST_F(LiveRuns, TellOfTheirSteps) {
  LiveRun run(store, uuid, {{"workload", "tiny_llama"}});
  std::this_thread::sleep_for(LiveRun::interval);
  run.step({.step = 1, .loss = 7, .seconds = 0.25, .bytes = 100, .power_w = 300.0});
  const std::vector<LiveReport> found = live_runs(store);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_TRUE(found[0].alive);
  EXPECT_EQ(found[0].uuid, uuid);
  EXPECT_EQ(found[0].json["about"]["workload"], "tiny_llama");
  EXPECT_EQ(found[0].json["last"]["power_w"], 300);
  EXPECT_EQ(found[0].json["loss"], nlohmann::ordered_json({7.0}));
}

TEST_F(LiveRuns, AreWrittenTwiceASecondAtMost) {
  LiveRun run(store, uuid, {});
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 1; step <= 20; ++step) run.step({.step = step, .loss = 1, .seconds = 1e-6});
  if (std::chrono::steady_clock::now() - begin > LiveRun::interval) GTEST_SKIP() << "too slow";
  EXPECT_THAT(live_runs(store).at(0).json["step"], IsEmpty());  // as it was at the beginning
}

TEST_F(LiveRuns, MergeTheStepsOfALongRun) {
  LiveRun run(store, uuid, {});
  for (int step = 1; step <= 100'000; ++step)
    run.step({.step = step, .loss = 2, .seconds = step == 777 ? 9.0 : 1.0});
  std::this_thread::sleep_for(LiveRun::interval);
  run.step({.step = 100'001, .loss = 2, .seconds = 1});
  const auto json = live_runs(store).at(0).json;
  EXPECT_LE(json["step"].size(), LiveRun::max_points);
  EXPECT_GE(json["step"].size(), LiveRun::max_points / 2);
  EXPECT_EQ(json["stride"], 256);
  EXPECT_EQ(json["loss"][3], 2.0);
  EXPECT_EQ(json["slowest"][3], 9.0);  // steps 769 to 1024
  EXPECT_EQ(json["slowest"][4], 1.0);
}

TEST_F(LiveRuns, LeaveNothingBehind) {
  { const LiveRun run(store, uuid, {}); }
  EXPECT_FALSE(fs::exists(live));
}

TEST_F(LiveRuns, OfAProcessThatWasKilledAreDead) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const LiveRun run(store, uuid, {});
    [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(live_runs(store).at(0).alive);
  remove_dead_live_runs(store, std::chrono::seconds(0));
  EXPECT_THAT(live_runs(store), SizeIs(1));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(live_runs(store).at(0).alive);
  remove_dead_live_runs(store, std::chrono::hours(1));
  EXPECT_THAT(live_runs(store), SizeIs(1));
  remove_dead_live_runs(store, std::chrono::seconds(0));
  EXPECT_THAT(live_runs(store), IsEmpty());
}

TEST_F(LiveRuns, PassOverWhatIsNone) {
  fs::create_directory(live);
  const fs::path secret = directory.path / "secret.json";
  std::ofstream(secret) << R"({"schema":"ridge-live-1"})";
  fs::create_symlink(secret, live / (to_string(random_uuid()) + ".json"));
  std::ofstream(live / (to_string(random_uuid()) + ".json")) << "{";
  std::ofstream(live / "notes.json") << R"({"schema":"ridge-live-1"})";
  fs::create_directory(live / (to_string(random_uuid()) + ".json"));
  EXPECT_THAT(live_runs(store), IsEmpty());
}

TEST_F(LiveRuns, WithoutAPlaceToWriteTellNothing) {
  LiveRun run(directory.path / "missing" / "runs.db", uuid, {});
  run.step({.step = 1});
  EXPECT_FALSE(run.is_due());
}

}  // namespace
}  // namespace ridge
