// `ridge gate` as its users run it. Which verdict a time gets depends on the machine: these tests
// ask for what is counted, or for a slowdown that no noise hides.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string train = " -- train --num-steps 3" + tiny;

struct GateProgram : ::testing::Test {
  GateProgram() {
    fs::create_directory(sandbox.path("tmp"));
    ::setenv("TMPDIR", sandbox.path("tmp").c_str(), 1);
    ::unsetenv("RIDGE_STORE");
    fs::create_symlink(fs::read_symlink("/proc/self/exe").replace_filename("ridge"),
                       sandbox.path("before"));
  }
  ~GateProgram() override {
    EXPECT_TRUE(fs::is_empty(sandbox.path("tmp"))) << "something is left";
    ::unsetenv("TMPDIR");
  }
  ProgramResult run(const std::string& command) { return sandbox.run(words_of(command)); }
  // One line on standard error.
  std::string err(const std::string& command, int exit_code) {
    return complaint_of(run(command), exit_code);
  }
  // A program that is a script.
  void script(const std::string& name, const std::string& text) {
    sandbox.write(name, "#!/bin/sh\n" + text + "\n");
    fs::permissions(sandbox.path(name), fs::perms::owner_all);
  }
  Sandbox sandbox;
};

const std::string counted = "ridge gate --baseline ./before --metrics memory,kernels,flops,loss";

TEST_F(GateProgram, FindsAProgramEqualToItself) {
  for (const std::string& command :
       {train,
        std::string(" -- bench --network resnet18 --image-size 32 --batch-size 1 --threads 1"),
        " -- bench --network tiny_llama" + tiny,
        std::string(" -- bench --network squeezenet1_1 --image-size 64 --batch-size 2 --threads 1 "
                    "--mode training")}) {
    const ProgramResult result = run(counted + command);
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_THAT(result.out, AllOf(HasSubstr("bit equal in"), HasSubstr("Fine: no regression")));
  }
  EXPECT_FALSE(sandbox.has("output")) << "a run of the gate's leaves nothing";
}

TEST_F(GateProgram, FindsALargeSlowdown) {
  script("slow", "RIDGE_PACE=$(echo $RIDGE_PACE | sed 's/:.*/:10/') exec ./before \"$@\"");
  const ProgramResult result =
      run("ridge gate --baseline ./before --candidate ./slow --metrics time "
          "--budget 300 --json out.json --junit out.xml --markdown out.md" +
          train);
  EXPECT_EQ(result.exit_code, 1) << result.err << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("REGRESSION"), HasSubstr("Regression: 1 of 1")));
  const json found = json::parse(sandbox.read("out.json"));
  EXPECT_EQ(found["outcome"], "regression");
  const json& time = found["commands"][0]["metrics"][0];
  EXPECT_EQ(time["pairs"], 9) << "as few as can tell";
  EXPECT_GT(time["change"], 4);
  EXPECT_LT(time["p_value"], 0.01);
  EXPECT_THAT(sandbox.read("out.xml"), HasSubstr("<failure type=\"regression\""));
  EXPECT_THAT(sandbox.read("out.md"), HasSubstr("| REGRESSION |"));
}

TEST_F(GateProgram, FindsMoreMemoryAndAnotherLoss) {
  script("other", "exec ./before \"$@\" --batch-size 3 --seed 7");
  const ProgramResult result = run(counted + " --candidate ./other --json -" + train);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const json metrics = json::parse(result.out)["commands"][0]["metrics"];
  for (const std::size_t i : {0, 2, 3})
    EXPECT_EQ(metrics[i]["verdict"], "regression") << metrics[i];
  EXPECT_EQ(metrics[1]["verdict"], "fine") << "as many kernels";
}

TEST_F(GateProgram, RunsThoseThatKnowNoPacingWhole) {
  script("old", "unset RIDGE_PACE RIDGE_STORE; exec ./before \"$@\"");
  const ProgramResult result =
      run("ridge gate --baseline ./old --metrics memory,flops,loss" + train);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("whole runs take turns"));
}

TEST_F(GateProgram, RunsManyCommands) {
  sandbox.write("suite", "# two\ntrain" + tiny + "\n\ntrain --seed '3'" + tiny + "\n");
  const ProgramResult result = run(counted + " --commands suite");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("train --seed 3"));
}

TEST_F(GateProgram, ComparesWithRecordedRuns) {
  run("ridge store init");
  run("ridge train --num-steps 3 --record --tag release-1" + tiny);
  const std::string metrics = " --metrics memory,kernels,flops,loss";
  const ProgramResult fine = run("ridge gate --baseline release-1" + metrics + train);
  EXPECT_EQ(fine.exit_code, 0) << fine.err << fine.out;
  EXPECT_THAT(fine.out, AllOf(HasSubstr("1 recorded run"), HasSubstr("bit equal in 3 steps")));
  EXPECT_EQ(run("ridge gate --baseline release-1" + train).exit_code, 3)
      << "time needs more than one run";
  run("ridge runs export runs.jsonl");
  EXPECT_EQ(run("ridge gate --baseline runs.jsonl" + metrics + train).exit_code, 0);
  EXPECT_EQ(
      run("ridge gate --baseline output/performance_summary.json --metrics memory,loss" + train)
          .exit_code,
      0);
  EXPECT_THAT(err("ridge gate --baseline release-2" + train, 2), HasSubstr("mean release-1?"));
  EXPECT_THAT(err("ridge gate --baseline release-1 -- train --num-steps 4" + tiny, 2),
              HasSubstr("num-steps is 3 there and 4 here"));
  EXPECT_THAT(run("ridge runs list").out, HasSubstr("1 run\n")) << "the gate's own are not kept";
}

TEST_F(GateProgram, LooksAtTheHistory) {
  run("ridge store init");
  EXPECT_THAT(run("ridge gate --history").out, HasSubstr("No group of 4 or more runs"));
  for (int i = 0; i < 4; ++i) run("ridge train --num-steps 2 --record" + tiny);
  const ProgramResult result = run("ridge gate --history --metric kernels");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("no change"));
  EXPECT_THAT(err("ridge gate --history --metric medain_seconds", 2), HasSubstr("median_seconds"));
}

TEST_F(GateProgram, TestsItself) {
  const ProgramResult result = run("ridge gate --self-test --rounds 1 --budget 1 --json -" + train);
  const json found = json::parse(result.out);
  EXPECT_EQ(found["same"]["rounds"], 1);
  EXPECT_EQ(found["slowed"]["rounds"], 1);
  const ProgramResult alone =
      run("ridge gate --self-test --slowdown 0 --rounds 1 --budget 1 --json -" + train);
  EXPECT_FALSE(json::parse(alone.out).contains("slowed"));
  const ProgramResult slowed =
      run("ridge gate --self-test --slowed-alone --rounds 1 --budget 1 --json -" + train);
  EXPECT_FALSE(json::parse(slowed.out).contains("same"));
  EXPECT_EQ(json::parse(slowed.out)["slowed"]["rounds"], 1);
  EXPECT_THAT(err("ridge gate --self-test --slowdown -1%" + train, 2), HasSubstr("-1%"));
  EXPECT_THAT(err("ridge gate --self-test --slowed-alone --slowdown 0" + train, 2),
              HasSubstr("nothing to decide"));
}

TEST_F(GateProgram, RefusesWhatMakesNoSense) {
  sandbox.write("text", "no runs");
  const std::pair<std::string, std::string> commands[] = {
      {"ridge gate" + train, "against what"},
      {"ridge gate --baseline ./before", "which command"},
      {"ridge gate --baseline ./before -- plan", "train or bench"},
      {"ridge gate --baseline ./before --candidate text" + train, "no program"},
      {"ridge gate --baseline nothing" + train, "no baseline nothing"},
      {"ridge gate --baseline ./before -- train --hiden-dim 3", "did you mean --hidden-dim?"},
      {"ridge gate --baseline ./before --metrics tme" + train, "did you mean time?"},
      {"ridge gate --baseline ./before --least-effect time=x" + train, "least effect"},
      {"ridge gate --baseline ./before --budget 0" + train, "--budget"},
      {"ridge gate --baseline ./before -- train --store x", "--store cannot be gated"},
      {"ridge gate --baseline ./before --rounds 3" + train, "--self-test"},
      {"ridge gate --history --self-test", "exclude each other"},
      {"ridge gate --baseline ./before --junit - --json -" + train, "only one"}};
  for (const auto& [command, reason] : commands)
    EXPECT_THAT(err(command, 2), HasSubstr(reason)) << command;
  EXPECT_THAT(err("ridge gate --baseline text" + train, 1),
              HasSubstr("neither a program nor runs"));
  EXPECT_THAT(err(counted + " --json none/x.json" + train, 1), HasSubstr("none/x.json"));
}

TEST_F(GateProgram, SaysWhatBecameOfAProgramThatFails) {
  script("crashes", "kill -SEGV $$");
  script("exits", "echo 'ridge: out of luck'; exit 1");
  script("silent", "exit 0");
  EXPECT_THAT(err(counted + " --candidate ./crashes --junit out.xml" + train, 1),
              HasSubstr("signal 11"));
  EXPECT_THAT(sandbox.read("out.xml"), HasSubstr("<error message="));
  EXPECT_THAT(err(counted + " --candidate ./exits" + train, 1),
              HasSubstr("exit code 1: out of luck"));
  EXPECT_THAT(err(counted + " --candidate ./silent" + train, 1), HasSubstr("left no record"));
  script("foreign", "echo > nothing");
  EXPECT_THAT(err(counted + " --candidate ./foreign" + train, 1), HasSubstr("left no record"));
}

TEST_F(GateProgram, NeedsATemporaryDirectory) {
  ::setenv("TMPDIR", sandbox.path("none").c_str(), 1);
  EXPECT_THAT(err(counted + train, 1), HasSubstr("temporary directory"));
}

TEST_F(GateProgram, EndsWithAllItStartedWhenItIsInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    sandbox.write("pids", "");
    script("noted", "echo $$ >> pids; echo started > started; exec ./before \"$@\"");
    RunningProgram gate(sandbox, words_of("ridge gate --baseline ./noted --candidate ./noted "
                                          "--metrics time --least-effect time=0.0001%" +
                                          train));
    while (!sandbox.has("started")) ::usleep(10'000);
    ::usleep(300'000);
    gate.send(signal);
    const ProgramResult result = gate.wait();
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_THAT(result.out, HasSubstr("Interrupted"));
    for (const std::string& pid : lines_of(sandbox.read("pids")))
      EXPECT_NE(::kill(std::stoi(pid), 0), 0) << pid << " still runs";
    fs::remove(sandbox.path("started"));
  }
}

}  // namespace
}  // namespace ridge
