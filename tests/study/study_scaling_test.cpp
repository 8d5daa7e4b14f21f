#include "ridge/study/study_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/study/study_text.h"
#include "tests/study/made_study.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of two ranks: with twice the batch a quarter longer than one; with its batch 0.7 of its time. Odd
// rounds are twice as slow for all.
struct Made : testing::MadeStudy {
  Made() : MadeStudy({}, {"ranks=1,2", "batch-size=4,8"}, 8) {
    for (std::int64_t round = 0; round < 8; ++round)
      for (std::int64_t v = 0; v < 4; ++v) {
        const double seconds[] = {1.0, 1.9, 0.7, 1.25};
        measure(v, round, seconds[v] * (round % 2 == 1 ? 2 : 1));
      }
  }
};

TEST(StudyScaling, ComparesRanksWithOne) {
  Made study;
  const std::vector<ScalingPoint> points = scaling_of(study.result());
  ASSERT_EQ(points.size(), 3u);
  EXPECT_TRUE(points[0].is_weak);
  EXPECT_EQ(points[0].ranks, 2);
  EXPECT_EQ(points[0].batch_of_rank, 4);
  EXPECT_NEAR(points[0].efficiency.value, 1 / 1.25, 1e-9);
  ASSERT_TRUE(points[0].efficiency.interval);
  EXPECT_NEAR(points[0].efficiency.interval->low, 0.8, 1e-9) << "rounds are compared in pairs";
  EXPECT_FALSE(points[1].is_weak);
  EXPECT_EQ(points[1].batch, 4);
  EXPECT_NEAR(points[1].efficiency.value, 1 / 0.7 / 2, 1e-9);
  EXPECT_EQ(points[2].batch, 8);
  EXPECT_NEAR(points[2].efficiency.value, 1.9 / 1.25 / 2, 1e-9);
}

TEST(StudyScaling, IsToldInTextAndJson) {
  Made study;
  const StudyResult result = study.result();
  EXPECT_THAT(study_text(result), HasSubstr("What is the scaling efficiency?"));
  EXPECT_THAT(study_text(result), HasSubstr("80.0 % (80.0 to 80.0)"));
  EXPECT_THAT(study_markdown(result, {}), HasSubstr("## Several ranks"));
  const auto json = nlohmann::json::parse(study_json(result));
  ASSERT_EQ(json["scaling"].size(), 3u);
  EXPECT_EQ(json["scaling"][0]["scaling"], "weak");
}

TEST(StudyScaling, IsNotOfOneRankOrOfNumbersWithoutOne) {
  for (const char* ranks : {"ranks=1", "ranks=2,4"}) {
    testing::MadeStudy study({}, {ranks, "batch-size=4,8"}, 1);
    for (std::size_t v = 0; v < study.definition.variants.size(); ++v)
      study.measure(static_cast<std::int64_t>(v), 0, 1.0);
    EXPECT_TRUE(scaling_of(study.result()).empty());
    EXPECT_THAT(study_text(study.result()), Not(HasSubstr("Scaling: ")));
  }
}

}  // namespace
}  // namespace ridge
