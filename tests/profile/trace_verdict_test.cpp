// `ridge trace check` refuses a trace on behalf of those tools alone that its rules were held
// against; of the others it does not know.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/profile/trace_check.h"
#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string trace(const std::string& event) { return R"({"traceEvents":[)" + event + "]}"; }

// Of one step, of which HolisticTraceAnalysis would leave out the last, and with a metadata event
// that TraceLens does not know; nothing of it concerns the others.
const std::string doubtful = trace(R"({"ph":"M","name":"my_own","pid":1,"tid":1,"args":{}})");
// Without the category that torch-tb-profiler asks for.
const std::string refused = trace(R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1})");

TEST(TraceVerdict, IsNotKnownOfToolsThatNobodyTried) {
  const std::string text = trace_check_text(check_trace(doubtful, "a.pt.trace.json"));
  EXPECT_THAT(text, AllOf(HasSubstr("HolisticTraceAnalysis        not known: it may refuse it\n"),
                          HasSubstr("TraceLens                    not known: it may refuse it\n"),
                          HasSubstr("torch-tb-profiler            accepts it\n"),
                          Not(HasSubstr("REFUSES IT"))));
  EXPECT_THAT(trace_check_text(check_trace(refused, "a.pt.trace.json")),
              HasSubstr("torch-tb-profiler            REFUSES IT\n"));
}

TEST(TraceVerdict, FailsTheCommandOnlyIfItIsKnown) {
  const Sandbox sandbox;
  sandbox.write("doubtful.pt.trace.json", doubtful);
  sandbox.write("refused.pt.trace.json", refused);
  EXPECT_EQ(run(sandbox, "ridge trace check doubtful.pt.trace.json").exit_code, 0);
  EXPECT_EQ(run(sandbox, "ridge trace check refused.pt.trace.json").exit_code, 1);
}

}  // namespace
}  // namespace ridge
