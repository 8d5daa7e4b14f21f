// Runs that no study made, seen as one.

#include "ridge/study/gathered_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_text.h"
#include "tests/base/message_of.h"
#include "tests/study/made_study.h"

namespace ridge {
namespace {

using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeRun;
using testing::MadeStore;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct Gathered : ::testing::Test {
  void add(const MadeRun& run) { made.store.add(document_of(run)); }
  StudyResult gather() { return gather_study(made.store, "", made.store.list({}).runs); }
  std::vector<std::string> names(const StudyResult& result) {
    std::vector<std::string> all;
    for (const StudyVariant& variant : result.definition.variants) all.push_back(name_of(variant));
    return all;
  }
  MadeStore made;
};

TEST_F(Gathered, HasAVariantForEachConfiguration) {
  add({.created = 1'790'000'003, .median_seconds = 0.3});
  add({.version = "v4", .created = 1'790'000'002, .median_seconds = 0.1});
  add({.created = 1'790'000'001, .seed = 7, .median_seconds = 0.1});  // another seed: a round
  add({.created = 1'790'000'000, .median_seconds = 0.2});
  const StudyResult result = gather();
  EXPECT_TRUE(result.gathered);
  EXPECT_THAT(names(result), ElementsAre("version v1", "version v4"));
  ASSERT_THAT(result.variants[0].runs, SizeIs(3));
  EXPECT_EQ(result.variants[0].runs[0].created, 1'790'000'000) << "the oldest first";
  EXPECT_DOUBLE_EQ(*result.variants[0].seconds, 0.2);
  EXPECT_EQ(result.variants[0].outcome, "3 runs");
  EXPECT_EQ(result.plans[0].parameters, 2'873'600);
  EXPECT_EQ(result.definition.rounds, 3);
  EXPECT_EQ(result.measured, 4);
  EXPECT_TRUE(result.is_complete());
  EXPECT_NO_THROW(study_json(result));
  EXPECT_THAT(study_text(result), Not(HasSubstr("nan")));
}

TEST_F(Gathered, TellsMachinesAndProgramsApart) {
  add({.device = "cuda", .gpu = "NVIDIA H100", .commit = "1234567890abcd"});
  add({.commit = "1234567890abcd"});
  add({.commit = "99999999999999"});
  const StudyResult result = gather();
  EXPECT_EQ(result.machines, 2);
  EXPECT_EQ(result.programs, 2);
  EXPECT_THAT(names(result),
              ElementsAre(HasSubstr("machine NVIDIA H100"), HasSubstr("machine AMD EPYC, 2"),
                          HasSubstr("program 0.1.0 at 9999999999")));
  EXPECT_THAT(laws_of(result), IsEmpty()) << "a commit of digits is no number";
  const StudyResult study = gather_study(made.store, "a study", made.store.list({}).runs);
  EXPECT_THAT(study.variants, SizeIs(2)) << "of any program";
  EXPECT_EQ(study.programs, 2);
}

TEST_F(Gathered, FollowsLaws) {
  for (const std::int64_t batch : {1, 2, 4, 8})
    for (const char* version : {"v1", "v4"})
      add({.version = version,
           .batch_size = batch,
           .median_seconds = (version[1] == '1' ? 2 : 1) * (0.01 + 0.002 * double(batch))});
  const std::vector<StudyLaw> laws = laws_of(gather());
  ASSERT_THAT(laws, SizeIs(6));
  EXPECT_EQ(laws[0].axis, "batch-size");
  EXPECT_EQ(laws[0].text(), "20 + 4 x");
  EXPECT_EQ(laws[3].where, "version v4");
}

TEST_F(Gathered, IsOfNothingTooMuchOrWithoutTimes) {
  EXPECT_THROW(gather(), UsageError);
  std::vector<RunDocument> runs;
  for (std::int64_t i = 0; i <= static_cast<std::int64_t>(max_variants); ++i)
    runs.push_back(document_of({.hidden_dim = i + 1}));
  made.store.add(runs);
  EXPECT_THAT(message_of<UsageError>([&] { gather(); }), HasSubstr("more than 200 configurations"));
  add({.outcome = "failed", .hidden_dim = 5000, .median_seconds = 0});
  const StudyResult failed =
      gather_study(made.store, "", made.store.list({.filter = "hidden_dim=5000"}).runs);
  EXPECT_EQ(failed.variants[0].seconds, std::nullopt);
  EXPECT_THAT(failed.variants[0].outcome, HasSubstr("failed"));
}

TEST_F(Gathered, IsFoundByTheNameOfAStudy) {
  RunDocument run = document_of({});
  run.study = "it's";
  made.store.add(run);
  EXPECT_TRUE(find_study_result(made.store, "it's").gathered);
  EXPECT_THAT(message_of<UsageError>([&] { find_study_result(made.store, "its"); }),
              StartsWith("there is no study \"its\""));
  testing::MadeStudy study({}, {"batch-size=1,2"}, 1);
  EXPECT_FALSE(find_study_result(study.made.store, "s").gathered);
}

}  // namespace
}  // namespace ridge
