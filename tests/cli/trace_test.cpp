// `ridge trace check` fails for the tools that refuse a trace, and for none that nobody ran;
// `ridge trace report` of a directory leaves out what is no trace.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

std::string trace(const std::string& event) { return R"({"traceEvents":[)" + event + "]}"; }

// A trace of a CPU, which TraceLens refuses and nobody else.
const std::string of_cpu =
    trace(R"({"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1.5,"dur":9,"args":{}})");

TEST(TraceVerdict, FailsTheCommandForTheToolsThatWereAskedFor) {
  const Sandbox sandbox;
  sandbox.write("a.pt.trace.json", of_cpu);
  EXPECT_EQ(run(sandbox, "ridge trace check a.pt.trace.json").exit_code, 1);
  EXPECT_EQ(run(sandbox, "ridge trace check a.pt.trace.json --tool TraceLens").exit_code, 1);
  const auto others = run(
      sandbox, "ridge trace check a.pt.trace.json --tool Perfetto --tool HolisticTraceAnalysis");
  EXPECT_EQ(others.exit_code, 0) << others.out;
  EXPECT_THAT(others.out, Not(HasSubstr("TraceLens")));
  EXPECT_THAT(others.out, HasSubstr("HolisticTraceAnalysis 0.5.0 and 0.6.1    accepts it\n"));
}

TEST(TraceVerdict, NamesTheToolsThereAre) {
  const Sandbox sandbox;
  sandbox.write("a.pt.trace.json", of_cpu);
  const auto result = run(sandbox, "ridge trace check a.pt.trace.json --tool HTA");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--tool is HTA; there are: chrome://tracing, Perfetto, "));
}

TEST(TraceVerdict, IsJsonIfAskedFor) {
  const Sandbox sandbox;
  sandbox.write("a.pt.trace.json", of_cpu);
  const auto result = run(sandbox, "ridge trace check --json a.pt.trace.json");
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["slices"], 1);
  EXPECT_EQ(json["tools"].size(), 5u);
}

// The name of the file says whether tools unpack it.
TEST(TraceVerdict, SeesWhatAFileIsBehindItsName) {
  const Sandbox sandbox;
  sandbox.write("a.pt.trace.json.gz", of_cpu);
  EXPECT_THAT(run(sandbox, "ridge trace check a.pt.trace.json.gz").out,
              HasSubstr("the name and the content disagree about gzip"));
}

TEST(TraceReport, LeavesOutWhatIsNoTraceOfADirectory) {
  const Sandbox sandbox;
  std::filesystem::create_directory(sandbox.path("log"));
  sandbox.write("log/a.json", of_cpu);
  sandbox.write("log/config.json", R"({"layers": 3})");
  sandbox.write("log/list.json", "[1, 2]");
  const auto result = run(sandbox, "ridge trace report log");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Left out of the directory:\n"
                                    "  \"config.json\" is no trace: there is no list of events\n"
                                    "  \"list.json\" has no event\n"));
  const auto json = nlohmann::json::parse(run(sandbox, "ridge trace report log --json").out);
  EXPECT_EQ(json["ranks"].size(), 1u);
  EXPECT_EQ(json["left_out"].size(), 2u);
  EXPECT_THAT(run(sandbox, "ridge trace report log --html page.html").out,
              HasSubstr("Left out: \"list.json\" has no event\n"));
  EXPECT_EQ(run(sandbox, "ridge trace report log/a.json log/config.json").exit_code, 1);
}

// Before the trace is read, which may take a while: here it is none.
TEST(TraceReport, SaysFirstThatItCannotWriteThePage) {
  const Sandbox sandbox;
  sandbox.write("no.json", "{}");
  for (const std::string command : {"report no.json --html", "critical-path no.json --html",
                                    "export no.json --sqlite", "export no.json --perfetto"}) {
    const auto result = run(sandbox, "ridge trace " + command + " missing/out");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("missing/out")) << command;
    EXPECT_THAT(result.err, Not(HasSubstr("no trace"))) << command;
    const auto itself = run(sandbox, "ridge trace " + command + " ./no.json");
    EXPECT_EQ(itself.exit_code, 2) << command;
    EXPECT_THAT(itself.err, HasSubstr(" ./no.json is the trace itself; give another file"));
  }
}

TEST(TraceReport, DrawsTheCriticalPathThatTextAndJsonTell) {
  const Sandbox sandbox;
  sandbox.write(
      "card.json",
      R"({"traceEvents":[{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,)"
      R"("ts":1,"dur":2,"args":{"correlation":1}},{"ph":"X","cat":"kernel","name":"gemm","pid":0,)"
      R"("tid":7,"ts":9,"dur":5,"args":{"device":0,"stream":7,"correlation":1}}]})");
  const auto drawn = run(sandbox, "ridge trace critical-path card.json --html page.html");
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_THAT(drawn.out, HasSubstr("Wrote page.html ("));
  const auto both = run(sandbox, "ridge trace critical-path card.json --html page.html --json");
  const auto alone = run(sandbox, "ridge trace critical-path card.json --json");
  EXPECT_EQ(both.out, alone.out);
  sandbox.write("host.json", of_cpu);
  const auto host = run(sandbox, "ridge trace critical-path host.json --html host.html");
  EXPECT_EQ(host.exit_code, 1);
  EXPECT_THAT(host.err, HasSubstr("nothing ran on a card in \"host.json\""));
  EXPECT_FALSE(std::filesystem::exists(sandbox.path("host.html")));
}

TEST(TraceExport, WritesSeveralFormatsAtOnce) {
  const Sandbox sandbox;
  sandbox.write("a.json", of_cpu);
  const auto result =
      run(sandbox, "ridge trace export a.json --sqlite a.db --csv tables --perfetto a.pftrace");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* file : {"a.db", "tables/events.csv", "a.pftrace"})
    EXPECT_TRUE(std::filesystem::exists(sandbox.path(file))) << file;
  const auto none = run(sandbox, "ridge trace export a.json");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("give --sqlite FILE, --csv DIR or --perfetto FILE"));
}

TEST(TraceReport, RefusesADirectoryWithoutATrace) {
  const Sandbox sandbox;
  std::filesystem::create_directory(sandbox.path("log"));
  sandbox.write("log/config.json", R"({"layers": 3})");
  const auto result = run(sandbox, "ridge trace report log");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is no trace: \"config.json\" is no trace"));
}

}  // namespace
}  // namespace ridge
