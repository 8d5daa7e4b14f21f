// `ridge trace check` fails for the tools that refuse a trace, and for none that nobody ran.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ridge
