// Reports of runs that nobody made, whose truth is known.

#include "ridge/report/runs/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/report/runs/sections.h"
#include "ridge/study/gathered_study.h"
#include "tests/base/message_of.h"
#include "tests/study/made_study.h"

namespace ridge {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::document_of;
using ::testing::HasSubstr;
using testing::MadeStore;
using testing::MadeStudy;
using ::testing::Not;
using ::testing::SizeIs;

// Times of a batch x: v1 takes 10 + 2 x ms, and v4 half of it.
struct MeasuredStudy : MadeStudy {
  MeasuredStudy() : MadeStudy({}, {"batch-size=1,2,4,8", "version=v1,v4"}, 6) {
    for (std::int64_t v = 0; v < 8; ++v)
      for (std::int64_t round = 1; round <= 6; ++round) {
        const auto batch = static_cast<double>(std::int64_t{1} << (v / 2));
        const double noise = 1 + 0.002 * static_cast<double>((v * 7 + round * 3) % 5 - 2);
        measure(v, round, (v % 2 == 0 ? 1 : 0.5) * (0.010 + 0.002 * batch) * noise,
                static_cast<std::int64_t>(1e6 * (30 + 5 * batch)));
      }
  }
};

json report_json(MadeStudy& study) {
  return json::parse(report_runs(study.made.store, study.result(), {"ridge", "report"}).json);
}

TEST(RunsReport, SumsUpAStudyInSentences) {
  MeasuredStudy study;
  const json report = report_json(study);
  const std::vector<std::string> summary = report["summary"];
  ASSERT_GE(summary.size(), 3u);
  ASSERT_LE(summary.size(), 6u);
  for (const std::string& sentence : summary) EXPECT_EQ(sentence.back(), '.') << sentence;
  EXPECT_THAT(summary[0], HasSubstr("The study s measured 8 variants of tiny_llama in training in "
                                    "6 rounds, on AMD EPYC with 2 cores"));
  EXPECT_THAT(summary[1],
              HasSubstr("The variant batch-size 8, version v4 has the highest throughput "
                        "(615 samples/s at 13.0 ms a step)"));
  EXPECT_THAT(summary, Contains(HasSubstr("version v4 takes 0.499 (95 % interval 0.497 to")));
  EXPECT_THAT(summary, Contains(HasSubstr("from 35.0 MB (batch-size 1, version v1) to 70.0 MB")));
  EXPECT_THAT(summary, Contains(HasSubstr("root mean square error 0.")));
}

TEST(RunsReport, ComparesTheSameWorkAlone) {
  MeasuredStudy study;
  const json comparisons = report_json(study)["comparisons"];
  ASSERT_THAT(comparisons, SizeIs(4)) << "v4 against v1 with each batch";
  for (const json& comparison : comparisons) {
    EXPECT_NEAR(comparison["time_ratio"], 0.5, 0.01);
    EXPECT_LT(comparison["interval"][0], 0.5);
    EXPECT_GT(comparison["interval"][1], 0.5);
    EXPECT_EQ(comparison["variant"].get<int>(), comparison["against"].get<int>() + 1);
  }
}

TEST(RunsReport, HasItsSectionsTablesAndPictures) {
  MeasuredStudy study;
  const RunsReport report = report_runs(study.made.store, study.result(), {"ridge", "report"});
  std::vector<std::string> headings, pictures;
  for (const ReportSection& section : report.document.sections) headings.push_back(section.heading);
  EXPECT_EQ(headings, (std::vector<std::string>{"Summary", "Method and machine", "Results",
                                                "Findings", "Appendix: commands"}));
  for (const ReportPicture* picture : pictures_of(report.document)) {
    pictures.push_back(picture->name);
    EXPECT_THAT(picture->svg, Not(HasSubstr("nan"))) << picture->name;
  }
  EXPECT_EQ(pictures, (std::vector<std::string>{
                          "step-time", "peak-memory", "time-of-a-step-by-batch-size",
                          "throughput-by-batch-size", "peak-memory-by-batch-size", "losses"}));
  const std::string page = report_html(report.document);
  for (const std::string& heading : headings) EXPECT_THAT(page, HasSubstr("<h2>" + heading));
  for (const char* text : {"<svg", "Libraries", "oneDNN 3.7.0", "c0ffee", "signed ranks",
                           "ridge study --vary batch-size=1,2,4,8 --vary version=v1,v4"})
    EXPECT_THAT(page, HasSubstr(text));
  for (const char* text : {"<script", "http://www.w3.org/1999", "src=", "nan ms"})
    EXPECT_THAT(page, Not(HasSubstr(text)));
  const std::string markdown = report_markdown(report.document, "r s-");
  EXPECT_THAT(markdown, HasSubstr("](r%20s-step-time.svg)"));
  EXPECT_THAT(markdown, HasSubstr("| batch-size 1, version v1 |"));
  EXPECT_THAT(markdown, HasSubstr("\n## Findings\n"));
}

TEST(RunsReport, SaysWhatIsNotDoneAndRefusesWhatHasNotBegun) {
  MadeStudy study({}, {"batch-size=1,2"}, 2);
  EXPECT_THAT(message_of<Error>([&] { report_runs(study.made.store, study.result(), {}); }),
              HasSubstr("no turn of the study s has been measured yet: ridge study --resume s"));
  study.measure(0, 1, 0.1);
  const std::vector<std::string> summary = report_json(study)["summary"];
  EXPECT_THAT(summary, Contains(HasSubstr("3 of 4 measurements are still to be taken")));
  MadeStore failed;
  failed.store.add(document_of({.median_seconds = 0}));
  EXPECT_THAT(message_of<Error>([&] {
                report_runs(failed.store,
                            gather_study(failed.store, "", failed.store.list({}).runs), {});
              }),
              HasSubstr("none of these runs has the time of a step"));
}

TEST(RunsReport, SaysHowMachinesDiffer) {
  MadeStore made;
  made.store.add(document_of({}));
  made.store.add(document_of({.device = "cuda", .gpu = "NVIDIA H100"}));
  const RunsReport report =
      report_runs(made.store, gather_study(made.store, "", made.store.list({}).runs), {"ridge"});
  EXPECT_THAT(
      report_html(report.document),
      HasSubstr("2 machines, or settings of one, which differ in GPU, GPU UUID and driver"));
  EXPECT_THAT(json::parse(report.json)["machines"], SizeIs(2));
}

TEST(RunsReport, ShowsHostileNamesAsText) {
  MadeStore made;
  const std::string hostile = "</style><script>alert(1)</script> **a** ![x](y) | {{body}} `z`";
  for (const char* dtype : {"fp32", "bf16"})
    made.store.add(document_of({.workload = hostile,
                                .version = hostile,
                                .dtype = dtype,
                                .commit = hostile,
                                .host = hostile}));
  const RunsReport report = report_runs(
      made.store, gather_study(made.store, hostile, made.store.list({}).runs), {"ridge", hostile});
  const std::string page = report_html(report.document);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
  const std::string markdown = report_markdown(report.document, "r-");
  EXPECT_THAT(markdown, HasSubstr("\\*\\*a\\*\\*"));
  // Only within blocks of code does a text stand as it is, and there it is indented.
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);)
    EXPECT_THAT(line.starts_with("    ") ? "" : line,
                AllOf(Not(HasSubstr("<script")), Not(HasSubstr("![x]"))));
}

TEST(ShellLine, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(shell_line({"ridge", "--a=1", "b c", "it's", "$(x)", ""}),
            R"(ridge --a=1 'b c' 'it'\''s' '$(x)' '')");
}

}  // namespace
}  // namespace ridge
