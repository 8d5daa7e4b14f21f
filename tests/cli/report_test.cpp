// `ridge report` of kept runs and of studies, as its users run it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <tuple>

#include "ridge/study/store.h"
#include "ridge/study/study_result.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_runs.h"
#include "tests/study/made_runs.h"

namespace ridge {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::document_of;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct ReportProgram : ::testing::Test {
  ReportProgram() {
    ::unsetenv("RIDGE_STORE");
    output("ridge store init");
  }
  std::string output(const std::string& command) { return output_of(run(sandbox, command)); }
  Sandbox sandbox;
};

TEST_F(ReportProgram, ReportsKeptRuns) {
  output("ridge train --num-steps 9 --record --tag before --version v1 --seed 3" + tiny);
  output("ridge train --num-steps 9 --record --tag after --version v4" + tiny);
  std::filesystem::create_directory(sandbox.path("m"));
  EXPECT_THAT(output("ridge report before after --markdown m/runs.md --json runs.json"),
              AllOf(StartsWith("Wrote report.html ("), HasSubstr("Wrote m/runs.md and 3 pictures"),
                    HasSubstr("Wrote runs.json\n")));
  const std::string page = sandbox.read("report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("version v4"), HasSubstr("<svg"), Not(HasSubstr("<script"))));
  const std::string markdown = sandbox.read("m/runs.md");
  const std::regex picture(R"(\]\(([^)]+\.svg)\))");
  std::size_t pictures = 0;
  for (std::sregex_iterator at(markdown.begin(), markdown.end(), picture), end; at != end; ++at) {
    ++pictures;
    EXPECT_THAT(sandbox.read("m/" + at->str(1)), StartsWith("<svg"));
  }
  EXPECT_EQ(pictures, 3u) << "step times, peaks and losses";
  const json report = json::parse(sandbox.read("runs.json"));
  EXPECT_EQ(report["schema"], "ridge-report-1");
  ASSERT_THAT(report["comparisons"], SizeIs(1));
  EXPECT_EQ(report["comparisons"][0]["basis"], "steps") << "of one run each";
  EXPECT_THAT(report["commands"], Contains(HasSubstr("ridge train --num-steps 9")));
}

// What the appendix says measures the same again.
TEST_F(ReportProgram, ReportsAStudyWithCommandsThatRepeatIt) {
  output(
      "ridge study --name s --vary batch-size=1,2 --vary version=v1,v4 --rounds 1 --num-steps 3" +
      tiny);
  output("ridge report --study s --json s.json --output s.html");
  const json report = json::parse(sandbox.read("s.json"));
  EXPECT_EQ(report["study"]["variants"].size(), 4u);
  EXPECT_THAT(report["summary"], Contains(HasSubstr("The study s measured 4 variants")));
  std::vector<std::string> train, study;
  for (const std::string line : report["commands"]) {
    if (line.starts_with("ridge study --vary")) study.push_back(line);
    if (line.starts_with("ridge train")) train.push_back(line);
  }
  ASSERT_THAT(study, SizeIs(1));
  ASSERT_THAT(train, SizeIs(4));
  output(study[0]);
  output(train[0]);
  Store store(sandbox.path(".ridge/runs.db"));
  const StudyResult first = read_study(store, "s"), again = read_study(store, "s-again");
  ASSERT_EQ(first.variants.size(), again.variants.size());
  for (std::size_t v = 0; v < first.variants.size(); ++v) {
    json a = json::parse(store.options_of_run(first.variants[v].runs[0].id));
    json b = json::parse(store.options_of_run(again.variants[v].runs[0].id));
    a.erase("output-dir"), b.erase("output-dir");
    EXPECT_EQ(a, b);
  }
  json a = json::parse(store.options_of_run(first.variants[0].runs[0].id));
  json b = json::parse(store.options_of_run(store.list({.limit = 1}).runs[0].id));
  a.erase("output-dir"), b.erase("output-dir");
  EXPECT_EQ(a, b);
}

TEST_F(ReportProgram, SaysInOneLineWhatItCannotReport) {
  Store(sandbox.path(".ridge/runs.db")).add(document_of({}, {"baseline", "a=b"}));
  std::filesystem::create_directory(sandbox.path("profile"));
  const std::tuple<Words, int, const char*> mistakes[] = {
      {{"12"}, 2, "there is no run \"12\""},
      {{"baselin"}, 2, "did you mean the tag \"baseline\"?; nor is there a directory"},
      {{"version=v9"}, 2, "no run of .ridge/runs.db matches the filter \"version=v9\""},
      {{"vresion=v1"}, 2, "did you mean version"},
      {{"--study", "none"}, 2, "there is no study \"none\""},
      {{"--study", "none", "1"}, 2, "give one of both"},
      {{"profile", "1"}, 2, "a profile is reported alone"},
      {{"profile", "--markdown", "m.md"}, 2, "are for reports of runs"},
      {{"1", "--machine", "m.json"}, 2, "--machine is for the page of a profile"},
      {{"1", "--store", "none.db"}, 1, "there is no store none.db"},
      {{"1", "--output", "none/where/r.html"}, 1, "none/where"},
  };
  for (const auto& [words, exit_code, message] : mistakes) {
    Words command{"ridge", "report"};
    command.insert(command.end(), words.begin(), words.end());
    EXPECT_THAT(complaint_of(sandbox.run(command), exit_code), HasSubstr(message));
  }
  EXPECT_FALSE(sandbox.has("report.html"));
  EXPECT_THAT(output("ridge report a=b"), StartsWith("Wrote report.html")) << "a tag, no filter";
  EXPECT_THAT(output("report_generator.py tag=baseline 1 --output again.html"),
              StartsWith("Wrote again.html"));
}

}  // namespace
}  // namespace ridge
