// Laws and answers of studies that nobody ran, whose truth is known.

#include "ridge/study/study_laws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/report/study_svg.h"
#include "ridge/study/study_tables.h"
#include "ridge/study/study_text.h"
#include "tests/base/message_of.h"
#include "tests/study/made_study.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeStore;
using testing::MadeStudy;
using ::testing::Not;
using ::testing::SizeIs;

TEST(StudyResult, GathersTheRoundsOfEachVariant) {
  MadeStudy study({}, {"batch-size=1,2,4"}, 3);
  for (std::int64_t round = 1; round <= 3; ++round)
    study.measure(0, round, 0.1 * static_cast<double>(round));
  study.measure(1, 1, 0.5);
  study.made.store.add_fault("s", {.variant = 1, .round = 2}, "signal 9 (Killed)");
  const StudyResult result = study.result();
  EXPECT_EQ(result.measured, 4);
  EXPECT_EQ(result.left, 3) << "those of the third variant: the second takes no further turn";
  EXPECT_FALSE(result.is_complete());
  EXPECT_DOUBLE_EQ(*result.variants[0].seconds, 0.2);
  EXPECT_DOUBLE_EQ(result.variants[0].spread->low, 0.1);
  EXPECT_DOUBLE_EQ(result.variants[0].spread->high, 0.3 * (1 + 1e-16));
  EXPECT_EQ(result.variants[0].outcome, "measured");
  EXPECT_EQ(result.variants[1].outcome, "1 of 3 rounds; signal 9 (Killed) in round 2");
  EXPECT_EQ(result.variants[2].outcome, "not measured yet");
  EXPECT_EQ(result.variants[2].seconds, std::nullopt);
}

TEST(StudyLaws, FindTheLawOfABatch) {
  MadeStudy study({}, {"batch-size=1,2,4,8,16", "version=v1,v4"}, 6);
  for (std::int64_t v = 0; v < 10; ++v)
    for (std::int64_t round = 1; round <= 6; ++round) {
      const auto batch = static_cast<double>(
          study.definition.variants[static_cast<std::size_t>(v)].options.batch_size);
      const double noise = 1 + 0.002 * static_cast<double>((v * 7 + round * 3) % 5 - 2);
      study.measure(v, round, (v % 2 == 0 ? 0.010 + 0.002 * batch : 0.004 + 0.001 * batch) * noise,
                    static_cast<std::int64_t>(1e6 * (30 + 5 * batch)));
    }
  const StudyResult result = study.result();
  const std::vector<StudyLaw> laws = laws_of(result);
  ASSERT_THAT(laws, SizeIs(6)) << "three quantities of two versions";
  EXPECT_EQ(laws[0].axis, "batch-size");
  EXPECT_EQ(laws[0].where, "version v1");
  ASSERT_TRUE(laws[0].growth);
  EXPECT_NEAR(laws[0].growth->coefficients[0], 10, 0.1) << "ms";
  EXPECT_NEAR(laws[0].growth->coefficients[1], 2, 0.02);
  EXPECT_LT(laws[0].growth->intervals[1].low, 2);
  EXPECT_GT(laws[0].growth->intervals[1].high, 2);
  EXPECT_NEAR(*saturating_batch(laws[1]), 45, 1) << "9 x 10 ms / 2 ms";
  EXPECT_NEAR(*saturating_batch(laws[4]), 36, 1);
  EXPECT_EQ(laws[2].quantity, StudyQuantity::peak_memory);
  EXPECT_NEAR(laws[2].growth->coefficients[1], 5, 1e-6) << "MB";
  EXPECT_EQ(saturating_batch(laws[2]), std::nullopt);
  for (const StudyLaw& law : laws)
    for (const StudyPoint& point : law.points)
      EXPECT_TRUE(point.spread || law.quantity != StudyQuantity::step_time);

  EXPECT_NEAR(*laws[1].at(8), 8e3 / 26, 2) << "samples/s";
  EXPECT_LT(*laws[1].error(), 0.01);
  EXPECT_THAT(study_text(result), HasSubstr("95 % interval"));
  EXPECT_THAT(answers_of(result, laws)[1].text,
              HasSubstr("a batch of 45 reaches 90 % of that, which is beyond the 16"));
}

TEST(StudyLaws, SeeTheSquareOfALength) {
  MadeStudy study({}, {"seq-len=64,128,256,512"}, 1);
  for (std::int64_t v = 0; v < 4; ++v) {
    const double length = std::pow(2.0, 6 + static_cast<double>(v));
    study.measure(v, 1, 0.001 + 1e-5 * length + 2e-7 * length * length);
  }
  const std::vector<StudyLaw> laws = laws_of(study.result());
  ASSERT_TRUE(laws[0].growth);
  EXPECT_EQ(laws[0].growth->form, LawForm::quadratic);
  EXPECT_NEAR(laws[0].growth->coefficients[2], 2e-4, 1e-7) << "ms";
  EXPECT_EQ(saturating_batch(laws[1]), std::nullopt);
}

TEST(StudyLaws, PutSizesAgainstTheirParameters) {
  MadeStudy study({"tiny", "small", "medium"}, {}, 2);
  for (std::int64_t v = 0; v < 3; ++v)
    for (std::int64_t round = 1; round <= 2; ++round) {
      const RunOptions& o = study.definition.variants[static_cast<std::size_t>(v)].options;
      const auto parameters = static_cast<double>(o.hidden_dim * o.hidden_dim);
      // Samples a second as parameters^-1.5.
      study.measure(v, round, static_cast<double>(o.batch_size) * std::pow(parameters, 1.5) * 1e-9);
    }
  const StudyResult result = study.result();
  const std::vector<StudyLaw> laws = laws_of(result);
  ASSERT_THAT(laws, SizeIs(3));
  EXPECT_EQ(laws[1].quantity, StudyQuantity::throughput);
  EXPECT_EQ(laws[1].axis, "parameters");
  EXPECT_FALSE(laws[1].growth);
  EXPECT_NEAR(laws[1].power->coefficients[1], -1.5, 1e-6);
  std::vector<std::string> questions;
  for (const StudyAnswer& answer : answers_of(result, laws)) {
    questions.push_back(answer.question);
    EXPECT_THAT(answer.text, Not(IsEmpty()));
    EXPECT_THAT(answer.text, Not(HasSubstr("nan"))) << answer.question;
    EXPECT_THAT(answer.text, Not(HasSubstr("inf"))) << answer.question;
  }
  EXPECT_THAT(questions,
              ::testing::IsSupersetOf({"Does throughput decrease linearly with model size?",
                                       "Is memory proportional to the parameters?",
                                       "What is the overhead, peak over parameters?",
                                       "Which is the largest model that can be trained here?",
                                       "Which size is best for the workshop?"}));
  EXPECT_THAT(study_text(result), HasSubstr("~20.9M"));
  EXPECT_THAT(study_text(result), HasSubstr("as the power -1.50 of the parameters"));
  EXPECT_THAT(study_text(result), HasSubstr("10.0")) << "peak over parameters";
}

// Sizes stand beside each other for each of the other settings, and not the first beside the last.
TEST(StudyAnswers, TellEachSeriesOfManyVariantsByItself) {
  MadeStudy study({"tiny", "small", "medium"}, {"version=v1,v4"}, 1);
  for (std::int64_t v = 0; v < 6; ++v)
    study.measure(v, 1, (v % 2 == 0 ? 0.2 : 0.1) * std::pow(10.0, static_cast<double>(v / 2)));
  const StudyResult result = study.result();
  const auto answer_to = [&, answers = answers_of(result, laws_of(result))](const char* question) {
    for (const StudyAnswer& answer : answers)
      if (answer.question == question) return answer.text;
    return std::string();
  };
  EXPECT_THAT(answer_to("What is the overhead, peak over parameters?"),
              HasSubstr("\n- version v1: 10.0 throughout.\n- version v4: 10.0 throughout.\n"));
  EXPECT_THAT(answer_to("Which size is best for the workshop?"),
              AllOf(HasSubstr("\n- version v1: tiny "), HasSubstr("\n- version v4: tiny "),
                    HasSubstr(", small "), HasSubstr(", medium ")));
  EXPECT_THAT(answer_to("Does throughput decrease linearly with model size?"),
              AllOf(HasSubstr(" with version v1; "), HasSubstr("From tiny to small: "),
                    HasSubstr("in that order")));
  EXPECT_THAT(answer_to("At what size is the device saturated?"),
              AllOf(HasSubstr("\n- version v1: from "), HasSubstr("\n- version v4: from ")));
  const StudyTable factors = factors_table(result);
  ASSERT_THAT(factors.rows, SizeIs(4));
  EXPECT_EQ(factors.rows[1][0], "small, version v1");
  EXPECT_EQ(factors.rows[1][1], "medium, version v1");
}

// By the batch there is a recommendation, by what was measured.
TEST(StudyAnswers, RecommendABatch) {
  MadeStudy study({"tiny"}, {"batch-size=1,2,4,8,16,32", "version=v1,v4"}, 1);
  for (std::int64_t v = 0; v < 12; ++v) {
    const auto batch = static_cast<double>(1 << (v / 2));
    study.measure(v, 1, v % 2 == 0 ? 0.004 + 0.001 * batch * batch : 0.01 * std::max(batch, 8.0));
  }
  const StudyResult result = study.result();
  const std::vector<StudyAnswer> answers = answers_of(result, laws_of(result));
  ASSERT_THAT(answers, Not(IsEmpty()));
  EXPECT_EQ(answers.back().question, "Which batch size is recommended?");
  EXPECT_THAT(answers.back().text, AllOf(HasSubstr("\n- tiny, version v1: 2, of "),
                                         HasSubstr("\n- tiny, version v4: 8, of ")));
  EXPECT_EQ(std::ranges::count(answers, "How does the batch size affect throughput?",
                               &StudyAnswer::question),
            1);
}

TEST(StudyLaws, AreNoneOfOnePointOrOfWords) {
  MadeStudy study({}, {"version=v1,v4"}, 1);
  study.measure(0, 1, 0.1);
  study.measure(1, 1, 0.2);
  EXPECT_THAT(laws_of(study.result()), IsEmpty());
  EXPECT_THAT(study_pictures(study.result()), IsEmpty());
  MadeStudy other({}, {"batch-size=1,2"}, 1);
  EXPECT_THAT(study_text(other.result()), HasSubstr("not measured yet")) << "nothing at all";
  other.measure(0, 1, 0.1);
  EXPECT_THAT(laws_of(other.result()), IsEmpty());
}

TEST(StudyText, IsJsonAndMarkdownToo) {
  MadeStudy study({"tiny"}, {"batch-size=1,2,4"}, 2);
  for (std::int64_t v = 0; v < 3; ++v)
    for (std::int64_t round = 1; round <= 2; ++round)
      study.measure(v, round,
                    0.01 + 0.01 * static_cast<double>(v) + 0.001 * static_cast<double>(round));
  const auto json = nlohmann::json::parse(study_json(study.result()));
  EXPECT_EQ(json["variants"].size(), 3u);
  EXPECT_EQ(json["variants"][1]["settings"]["batch-size"], "2");
  EXPECT_EQ(json["variants"][1]["claimed_parameters"], "~2.9M");
  EXPECT_EQ(json["variants"][1]["rounds"].size(), 2u);
  EXPECT_EQ(json["laws"][0]["points"].size(), 3u);
  EXPECT_EQ(json["left"], 0);
  const std::string markdown = study_markdown(study.result(), std::vector<std::string>{"a.svg"});
  EXPECT_THAT(markdown, HasSubstr("| tiny, batch-size 1 | 65,536 | \\~2.9M |"));
  EXPECT_THAT(markdown, HasSubstr("![a.svg](a.svg)"));
  const std::vector<StudyPicture> pictures = study_pictures(study.result());
  ASSERT_THAT(pictures, SizeIs(3));
  EXPECT_EQ(pictures[0].file, "time-of-a-step-by-batch-size.svg");
  EXPECT_THAT(pictures[0].svg, HasSubstr("</svg>"));
  EXPECT_THAT(pictures[0].svg, Not(HasSubstr("nan")));
}

TEST(StudyStore, TakesEveryTurnOnce) {
  MadeStudy study({}, {"batch-size=1,2"}, 2);
  study.measure(0, 1, 0.1);
  EXPECT_THAT(message_of<UsageError>([&] { study.measure(0, 1, 0.1); }),
              HasSubstr("has measured variant 0 in round 1 already"));
  EXPECT_EQ(study.made.store.count(""), 1) << "the run went with its turn";
  EXPECT_EQ(study.made.store.count("study=s"), 1);
  RunDocument stray = document_of({});
  stray.study = "none";
  stray.turn = StudyTurn{};
  EXPECT_THROW(study.made.store.add(stray), UsageError);
  EXPECT_EQ(study.made.store.count(""), 1);
  EXPECT_FALSE(study.made.store.add_study({.name = "s", .definition = "{}", .plans = "{}"}));
  EXPECT_TRUE(study_from_json(study.made.store.study("s").definition).measures_as(study.definition))
      << "the first stays";
}

TEST(StudyStore, IsAddedToAStoreOfTheFirstVersion) {
  MadeStore made;
  made.store.add(document_of({}));
  {
    Database database(made.file, Database::Access::write);
    database.execute(
        "DROP TABLE studies; DROP TABLE study_runs; DROP TABLE profiles; PRAGMA user_version = 1");
  }
  Store store(made.file);
  EXPECT_EQ(store.stats().version, 3);
  EXPECT_EQ(store.count(""), 1);
  EXPECT_THAT(store.studies(), IsEmpty());
  EXPECT_TRUE(store.add_study({.name = "s", .definition = "{}", .plans = "{}"}));
  store.set_profile(1, "{}");
  EXPECT_EQ(store.profile(1), "{}") << "which the second version had no place for";
}

TEST(StudyStore, NotesFaultsAndForgetsThem) {
  MadeStudy study({}, {"batch-size=1,2"}, 2);
  study.measure(0, 1, 0.1);
  study.made.store.add_fault("s", {.variant = 0, .round = 1}, "late");
  study.made.store.add_fault("s", {.variant = 1, .round = 0}, "needs 9 TiB");
  std::vector<StudyEntry> entries = study.made.store.study_entries("s");
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_TRUE(entries[0].run) << "a fault does not take the place of a run";
  EXPECT_EQ(entries[1].fault, "needs 9 TiB");
  EXPECT_EQ(study.result().variants[1].outcome, "needs 9 TiB");
  study.made.store.forget_faults("s");
  EXPECT_THAT(study.made.store.study_entries("s"), SizeIs(1));
  EXPECT_EQ(study.result().left, 3);
  study.made.store.prune({.filter = "study=s"});
  EXPECT_EQ(study.result().left, 4) << "what was removed is to be measured again";
  EXPECT_THROW(study.made.store.study("t"), UsageError);
}

}  // namespace
}  // namespace ridge
