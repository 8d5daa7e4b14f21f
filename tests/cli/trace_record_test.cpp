// `ridge trace record`: what it passes on to a command and from it, and what it sees of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Words record(Words flags, const std::string& script) {
  Words words = {"ridge", "trace", "record"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"--", "sh", "-c", script});
  return words;
}

json counter(const json& summary, const std::string& name) {
  for (const json& one : summary["series"])
    if (one["name"] == name) return one;
  ADD_FAILURE() << "there is no counter " << name;
  return {{"mean", 0}, {"max", 0}};
}

TEST(TraceRecord, PassesOnWhatTheCommandSaysAndHowItEnds) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run({"ridge", "trace", "record", "--interval", "5", "--", "sh", "-c",
                   R"(printf '%s|' "$@"; exit 7)", "name", "--batch_size=3", "[a,b]", "", "--"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "--batch_size=3|[a,b]||--|") << "and nothing of ours";
  EXPECT_THAT(result.err, AllOf(HasSubstr("exit code 7 after"), HasSubstr("The system: "),
                                HasSubstr("Wrote system_trace.json")));
  EXPECT_TRUE(sandbox.has("system_trace.json"));
  EXPECT_EQ(sandbox.run(record({}, "kill -9 $$")).exit_code, 128 + SIGKILL);
}

TEST(TraceRecord, SeesWhatTheCommandAndItsProcessesTake) {
  const Sandbox sandbox;
  // A shell burns a core for a second while another process holds 200 MB: tail keeps a line without
  // end.
  const ProgramResult result = sandbox.run(record(
      {"--out", "run.json.gz", "--summary", "summary.json"},
      "(head -c 200000000 /dev/zero; timeout 1 sh -c 'while :; do :; done'; sleep 0.3) | tail | "
      "wc -c"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json summary = json::parse(sandbox.read("summary.json"));
  // A machine that others use gives it less than the whole core.
  EXPECT_GT(counter(summary, "the command busy")["max"], 0.2);
  EXPECT_GT(counter(summary, "all cores busy")["max"], 0.7);
  EXPECT_GT(counter(summary, "the command, resident")["max"], 190e6);
  double seconds = 0, most = 0;
  for (const json& process : summary["processes"]) {
    seconds += process["core_seconds"].get<double>();
    most = std::max(most, process["peak_resident_bytes"].get<double>());
  }
  EXPECT_GT(seconds, 0.2);
  EXPECT_GT(most, 190e6);
  EXPECT_THAT(result.err, HasSubstr("tail"));

  const json report = json::parse(
      output_of(sandbox.run({"ridge", "trace", "report", "run.json.gz", "--json"})))["ranks"][0];
  const auto resident = std::ranges::find_if(report["counters"], [](const json& one) {
    return one["name"] == "the command, resident (B)";
  });
  ASSERT_NE(resident, report["counters"].end());
  EXPECT_GT((*resident)["max"], 190e6);
  EXPECT_THAT(output_of(sandbox.run({"ridge", "trace", "report", "run.json.gz"})),
              HasSubstr("\nThe system\nCounter"));
  output_of(sandbox.run({"ridge", "trace", "check", "run.json.gz", "--tool", "Perfetto"}));
}

TEST(TraceRecord, SaysInOneLineWhatIsWrong) {
  const Sandbox sandbox;
  const auto refused = [&](const Words& words, int code) {
    return complaint_of(sandbox.run(words), code);
  };
  EXPECT_THAT(refused({"ridge", "trace", "record"}, 2), HasSubstr("record which command?"));
  EXPECT_THAT(refused({"ridge", "trace", "record", "--"}, 2), HasSubstr("record which command?"));
  EXPECT_THAT(refused({"ridge", "trace", "record", "ls", "-l"}, 2), HasSubstr("ls"));
  EXPECT_THAT(refused(record({"--interval", "0"}, "touch ran"), 2), HasSubstr("--interval"));
  EXPECT_THAT(refused({"ridge", "trace", "record", "--", "no-such-program"}, 1),
              HasSubstr("cannot start no-such-program: No such file or directory"));
  EXPECT_THAT(refused(record({"--out", "none/trace.json"}, "touch ran"), 1),
              HasSubstr("cannot write none/trace.json"));
  EXPECT_THAT(refused(record({"--summary", "."}, "touch ran"), 1), HasSubstr("it is a directory"));
  EXPECT_FALSE(sandbox.has("ran")) << "it is said before the command starts";
  EXPECT_FALSE(sandbox.has("system_trace.json"));
}

TEST(TraceRecord, LeavesNoHalfFileOnAFullDisk) {
  const Sandbox sandbox;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult ended = sandbox.run(record({}, "sleep 0.3; exit 3"));
  const ProgramResult well = sandbox.run(record({}, "sleep 0.3"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(ended.exit_code, 3) << "what the command says comes first";
  EXPECT_EQ(well.exit_code, 1);
  EXPECT_FALSE(sandbox.has("system_trace.json"));
  EXPECT_FALSE(sandbox.has(".system_trace.json.ridge-tmp"));
}

constexpr const char* patient =
    "trap 'echo stopped; exit 5' TERM; echo ready; i=0; "
    "while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done";

TEST(TraceRecord, PassesSignalsOn) {
  const Sandbox sandbox;
  RunningProgram program(sandbox, record({}, patient));
  ASSERT_TRUE(program.wait_for("ready"));
  program.send(SIGTERM);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.out, HasSubstr("stopped"));
  EXPECT_TRUE(sandbox.has("system_trace.json"));
}

TEST(TraceRecord, LeavesNothingBehindWhenItIsKilled) {
  const Sandbox sandbox;
  RunningProgram program(sandbox, record({}, patient));
  ASSERT_TRUE(program.wait_for("ready"));
  program.send(SIGKILL);
  EXPECT_EQ(program.wait().signal, SIGKILL);
  EXPECT_FALSE(sandbox.has("system_trace.json"));
  EXPECT_FALSE(sandbox.has(".system_trace.json.ridge-tmp"));
}

}  // namespace
}  // namespace ridge
