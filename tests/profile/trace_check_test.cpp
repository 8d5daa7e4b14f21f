#include "ridge/profile/trace_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/profile/chrome_trace.h"
#include "tests/base/temporary_directory.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

constexpr const char* worker = "host_1.2.pt.trace.json";
constexpr const char *viewers = "chrome://tracing, Perfetto", *tensorboard = "torch-tb-profiler",
                     *hta = "HolisticTraceAnalysis", *tracelens = "TraceLens";

// Two steps with an operator each; `more` is added to the events.
TraceCheck check(const std::string& more, const std::string& rank = R"("rank": 0)") {
  std::string events;
  for (const char* step : {"1", "2"})
    events += fmt::format(
        R"({{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{0}","pid":1,"tid":1,"ts":{0}00,)"
        R"("dur":50}},{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{0}10,)"
        R"("dur":40}},)",
        step);
  events.pop_back();
  return check_trace("{\"distributedInfo\": {" + rank + "}, \"traceEvents\": [" + events +
                         (more.empty() ? "" : "," + more) + "]}",
                     worker);
}

std::vector<std::string> refusing(const TraceCheck& result) {
  std::vector<std::string> consumers;
  for (const TraceVerdict& verdict : result.verdicts)
    if (!verdict.accepts()) consumers.push_back(verdict.consumer);
  return consumers;
}

// Who has a problem with `what` in its text that is no reason to refuse.
std::vector<std::string> noting(const TraceCheck& result, std::string_view what) {
  std::vector<std::string> consumers;
  for (const TraceVerdict& verdict : result.verdicts)
    for (const TraceVerdict::Problem& problem : verdict.problems)
      if (!problem.fatal && problem.what.find(what) != std::string::npos)
        consumers.push_back(verdict.consumer);
  return consumers;
}

TEST(TraceCheck, FindsNothingWrongWithOurOwn) {
  const TemporaryDirectory directory;
  const RealRecording run;
  write_chrome_trace(directory.path / worker, run.recording());
  const std::string text = read_text_file(directory.path / worker, 1 << 30);
  const TraceCheck result = check_trace(text, worker);
  for (const TraceVerdict& verdict : result.verdicts)
    for (const TraceVerdict::Problem& problem : verdict.problems)
      if (problem.fatal || !problem.what.starts_with("no kernels of a GPU"))
        ADD_FAILURE() << verdict.consumer << ": " << problem.what << ' ' << problem.first;
  EXPECT_GT(result.slices, 100u);
}

TEST(TraceCheck, KnowsWhomEachFaultConcerns) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(refusing(check("")), IsEmpty());
  EXPECT_THAT(noting(check("", R"("rank":0)"), "rank 0"), ElementsAre(hta));
  EXPECT_THAT(refusing(check(R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1})")),
              ElementsAre(tensorboard));
  EXPECT_THAT(refusing(check(R"({"ph":"i","cat":"c","pid":1,"tid":1,"ts":1})")),
              ElementsAre(tensorboard));
  EXPECT_THAT(refusing(check(R"({"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":"main",)"
                             R"("ts":1,"dur":1})")),
              ElementsAre(tensorboard));
  EXPECT_THAT(refusing(check(R"({"ph":"M","name":"my_own","pid":1,"tid":1,"args":{}})")),
              ElementsAre(tracelens));
  EXPECT_THAT(refusing(check(R"({"ph":"B","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1})")),
              ElementsAre(tracelens));
  EXPECT_THAT(refusing(check(R"({"ph":"i","name":"a","pid":1,"tid":1,"ts":1,"args":null})")),
              ElementsAre(tracelens));
  const auto kernel = [](const char* pid, const char* dur) {
    return fmt::format(R"({{"ph":"X","cat":"kernel","name":"k","pid":{},"tid":7,"ts":1,"dur":{},)"
                       R"("args":{{"device":0,"stream":7}}}})",
                       pid, dur);
  };
  EXPECT_THAT(refusing(check(kernel("0", "2"))), IsEmpty());
  EXPECT_THAT(refusing(check(kernel("3", "2"))), ElementsAre(tensorboard));
  EXPECT_THAT(refusing(check(kernel("0", "0.5"))), ElementsAre(hta));
  EXPECT_THAT(refusing(check(R"({"ph":"s","cat":"ac2g","name":"ac2g","id":1,"pid":1,"tid":1,)"
                             R"("ts":1})")),
              ElementsAre(tracelens));
}

// What is left out, or stays empty, is no reason to refuse a trace: PyTorch's own have some of it.
TEST(TraceCheck, NotesWhatWillBeMissing) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  const auto operation = [](const char* name, int thread, int begin, const char* args) {
    return fmt::format(R"({{"ph":"X","cat":"cpu_op","name":"{}","pid":1,"tid":{},"ts":{},"dur":5,)"
                       R"("args":{{{}}}}})",
                       name, thread, begin, args);
  };
  // Begins within the first step, or its operator, and ends after it.
  EXPECT_THAT(noting(check(operation("a", 1, 147, "")), "crosses"), ElementsAre(viewers));
  EXPECT_THAT(noting(check(operation("a", 1, 147, "")), "ends after"), ElementsAre(tracelens));
  EXPECT_THAT(noting(check(operation("a", 2, 147, "")), "ends after"), IsEmpty());
  EXPECT_THAT(refusing(check(operation("a", 1, 147, ""))), IsEmpty());

  EXPECT_THAT(noting(check(""), "Input Dims"), ElementsAre(tracelens));
  EXPECT_THAT(noting(check(operation("a", 2, 1, R"("Input Dims":[[2]])")), "Input Dims"),
              IsEmpty());
  const std::string gradient =
      operation("autograd::engine::evaluate_function: A", 2, 1, R"("Sequence number":7)");
  EXPECT_THAT(noting(check(gradient), "Sequence number"), ElementsAre(tracelens));
  EXPECT_THAT(noting(check(gradient + "," + operation("a", 2, 90, R"("Sequence number":7)")),
                     "Sequence number"),
              IsEmpty());

  EXPECT_THAT(noting(check(""), "no kernels"), ElementsAre(hta, tracelens));
  const std::string kernel = R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":4,)"
                             R"("dur":2,"args":{"device":0,"stream":7,"correlation":3}})";
  const std::string launch = R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,)"
                             R"("tid":1,"ts":1,"dur":1,"args":{"correlation":3}})";
  const auto flow = [](int thread) {
    return fmt::format(R"({{"ph":"s","cat":"ac2g","name":"ac2g","id":3,"pid":1,"tid":1,"ts":1}},)"
                       R"({{"ph":"f","cat":"ac2g","name":"ac2g","id":3,"pid":0,"tid":{},"ts":4}})",
                       thread);
  };
  EXPECT_THAT(noting(check(kernel), "no kernels"), IsEmpty());
  EXPECT_THAT(noting(check(kernel + "," + launch + "," + flow(7)), "no launch"), IsEmpty());
  EXPECT_THAT(noting(check(kernel + "," + flow(7)), "no launch"), ElementsAre(tracelens));
  EXPECT_THAT(noting(check(kernel + "," + launch + "," + flow(8)), "no launch"),
              ElementsAre(tracelens));
}

TEST(TraceCheck, ShowsWhatIsWrongAndHowOften) {
  const std::string event = R"({"ph":"X","name":"wrong one","pid":1,"tid":1,"ts":1,"dur":1})";
  const std::string text = trace_check_text(check(event + "," + event));
  EXPECT_THAT(text, testing::HasSubstr("torch-tb-profiler            REFUSES IT\n"));
  EXPECT_THAT(text, testing::HasSubstr("an X event without cat (2; first: "));
  EXPECT_THAT(text, testing::HasSubstr("wrong one"));
  EXPECT_THAT(text, testing::HasSubstr("TraceLens                    accepts it\n"));
}

TEST(TraceCheck, RefusesWhatIsNoTrace) {
  for (const char* text : {"", "{", "{\"a\": 1}", "3", "\x0a\x05binary", "{\"traceEvents\": 3}"})
    EXPECT_THROW(check_trace(text, "file"), FormatError) << text;
  EXPECT_NO_THROW(check_trace("[3, null, {}, [], {\"ph\": 1, \"ts\": \"x\"}]", "file"));
}

}  // namespace
}  // namespace ridge
