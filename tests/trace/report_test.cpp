#include "ridge/trace/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/base/temporary_directory.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report full_report() {
  MadeTrace made;
  made.step(3, 0, 500)
      .operation("aten::mm", 5, 20, "[[8,4],[4,16]]")
      .launched("gemm", 10, 100, 300)
      .launched("ncclDevKernel_AllReduce", 20, 420, 100, 9)
      .launched("Memcpy HtoD (Pageable -> Device)", 30, 600, 40, 7, "gpu_memcpy", 4096)
      .event(R"({"ph":"i","name":"[memory]","ts":50,"pid":1,"tid":1,"args":{"Bytes":512,)"
             R"("Total Allocated":1024,"Total Reserved":4096,"Device Type":1,"Device Id":0}})");
  return report_of(made_of(made.text(
      R"("distributedInfo":{"rank":2},"deviceProperties":[{"id":0,"name":"Some card"}],)")));
}

TEST(TraceReport, IsCompleteAsJson) {
  const auto json = nlohmann::json::parse(report_json(report_ranks({full_report()})));
  EXPECT_EQ(json["schema"], "ridge-trace-report/1");
  const auto& rank = json["ranks"].at(0);
  EXPECT_EQ(rank["rank"], 2);
  EXPECT_EQ(rank["device"], "Some card");
  EXPECT_EQ(rank["span_us"], 540);
  EXPECT_EQ(rank["busy_us"], 440);
  EXPECT_EQ(rank["compute_us"], 300);
  EXPECT_EQ(rank["communication_us"], 100);
  EXPECT_EQ(rank["exposed_communication_us"], 100);
  EXPECT_EQ(rank["copy_us"], 40);
  EXPECT_EQ(rank["idle_us"], 100);
  EXPECT_EQ(rank["kernels"], 2);
  EXPECT_EQ(rank["steps"].at(0)["step"], 3);
  EXPECT_EQ(rank["steps"].at(0)["span_us"], 540);
  EXPECT_EQ(rank["operators"].at(0)["input_dims"], nlohmann::json({{8, 4}, {4, 16}}));
  EXPECT_EQ(rank["memory"].at(0)["peak_allocated_bytes"], 1024);
  EXPECT_EQ(rank["copies"].at(0)["bytes"], 4096);
  EXPECT_EQ(rank["findings"].at(0)["rule"], "exposed-communication");
  EXPECT_EQ(rank["damage"]["cut_short"], false);
  double idle = 0;
  for (const auto& cause : rank["idle"]["causes"]) idle += cause["us"].get<double>();
  EXPECT_DOUBLE_EQ(idle, 100);
}

TEST(TraceReport, SaysAllOfItAsText) {
  const std::string text = report_text(report_ranks({full_report()}), 10);
  for (const char* part : {"rank 2, Some card", "What would help", "1. Collectives run 100.0 µs",
                           "Where the time went", "Idle time", "Kernels (2 names)", "gemm",
                           "Operators by name and shape (1)", "[[8,4],[4,16]]", "Copies",
                           "4.00 KiB", "Launches", "cudaLaunchKernel", "Memory", "card 0"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(TraceReport, ShowsHostileNamesAsText) {
  MadeTrace made;
  made.operation(R"(\u001b[2Jevil\u202e)", 0, 5)
      .launched(R"(\u001b]0;title\u0007<script>)", 1, 10, 5)
      .launched("k", 2, 100, 5);
  const std::string text = report_text(report_ranks({report_of(made.read())}), 10);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\x07")));
  EXPECT_THAT(text, Not(HasSubstr("\u202e")));
  EXPECT_THAT(text, HasSubstr("\\x1b"));
}

TEST(TraceReport, SaysWhatWasLost) {
  const std::string whole = MadeTrace().launched("a", 0, 5, 5).launched("b", 1, 20, 5).text();
  const std::string text =
      report_text(report_ranks({report_of(made_of(whole.substr(0, whole.size() - 30)))}), 10);
  EXPECT_THAT(text, HasSubstr("note: the file ends within its list of events"));
  EXPECT_THAT(text, HasSubstr("note: no event could be read from"));
}

TEST(TraceReport, IsOfNothingWhereNothingHappened) {
  const Report report = report_of(made_of("[]"));
  EXPECT_EQ(report.use.span, 0);
  EXPECT_THAT(report_text(report_ranks({report}), 10), HasSubstr("0 events"));
  EXPECT_TRUE(
      nlohmann::json::parse(report_json(report_ranks({report})))["ranks"].at(0)["steps"].empty());
}

TEST(TraceReport, FindsTheTracesOfADirectory) {
  const TemporaryDirectory directory;
  const auto make = [&](const std::string& name) {
    std::filesystem::create_directories((directory.path / name).parent_path());
    std::ofstream(directory.path / name) << "[]";
  };
  make("b.json.gz");
  make("rank-1/a.json");
  make("notes.txt");
  EXPECT_EQ(traces_in(directory.path).size(), 2U);
  make("rank-1/w.1.pt.trace.json");
  EXPECT_EQ(traces_in(directory.path).size(), 1U) << "the profiler's own names come first";
}

}  // namespace
}  // namespace ridge::trace
