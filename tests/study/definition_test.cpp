#include "ridge/study/definition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ridge/base/error.h"
#include "ridge/session/workload.h"
#include "ridge/study/variant_plan.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<StudyAxis> axes(const std::vector<std::string>& texts) {
  std::vector<StudyAxis> all;
  for (const std::string& text : texts) all.push_back(parse_axis(text));
  return all;
}

std::vector<std::string> names_of(const std::vector<StudyVariant>& variants) {
  std::vector<std::string> names;
  for (const StudyVariant& variant : variants) names.push_back(name_of(variant));
  return names;
}

TEST(StudyDefinition, IsTheProductOfSizesAndAxes) {
  const std::vector<std::string> sizes{"tiny", "small"};
  const auto variants = variants_of({}, sizes, axes({"batch_size=2,4", "version=v1,v4"}), {});
  EXPECT_THAT(names_of(variants),
              ElementsAre("tiny, batch-size 2, version v1", "tiny, batch-size 2, version v4",
                          "tiny, batch-size 4, version v1", "tiny, batch-size 4, version v4",
                          "small, batch-size 2, version v1", "small, batch-size 2, version v4",
                          "small, batch-size 4, version v1", "small, batch-size 4, version v4"));
  EXPECT_EQ(variants[5].options.hidden_dim, 512);
  EXPECT_EQ(variants[5].options.intermediate_dim, 1024) << "derived of the variant's own width";
  EXPECT_EQ(variants[5].options.batch_size, 2);
  EXPECT_EQ(variants[5].options.version, "v4");
}

TEST(StudyDefinition, LeavesWhatTheUserSetToTheUser) {
  RunOptions base;
  base.seq_len = 32;
  const std::vector<std::string> sizes{"small"}, set{"seq-len"};
  const auto variants = variants_of(base, sizes, {}, set);
  EXPECT_EQ(variants[0].options.seq_len, 32);
  EXPECT_EQ(variants[0].options.n_layers, 8);
}

TEST(StudyDefinition, KeepsFilesAndReportsOutOfWhatIsMeasured) {
  RunOptions base, other;
  other.output_dir = "elsewhere";
  other.profile_memory = true;
  other.log_interval = 7;
  EXPECT_EQ(variants_of(base, {}, axes({"batch-size=2"}), {}),
            variants_of(other, {}, axes({"batch-size=2"}), {}));
}

TEST(StudyDefinition, HasTheSizesOfTheWorkshop) {
  const std::int64_t parameters[] = {2'873'600, 19'907'072, 115'319'808, 608'143'360,
                                     3'632'271'360};
  ASSERT_THAT(study_sizes(), SizeIs(5));
  std::vector<std::string> names;
  for (const StudySize& size : study_sizes()) names.emplace_back(size.name);
  const auto variants = variants_of({}, names, {}, {});
  for (std::size_t i = 0; i < variants.size(); ++i) {
    RunOptions options = variants[i].options;
    options.batch_size = 1;
    options.seq_len = 8;
    options.device = "cpu";
    const StudyVariant variant{.size = {}, .settings = {}, .options = options};
    if (i < 3) {
      EXPECT_EQ(plan_variants(std::span(&variant, 1))[0].parameters, parameters[i]);
    }
    EXPECT_EQ(options.hidden_dim % options.n_heads, 0) << names[i];
    EXPECT_EQ(study_size(names[i]).claimed_parameters.front(), '~');
  }
  EXPECT_EQ(study_size("very-large").hidden_dim, 4096);
}

TEST(StudyDefinition, RefusesWhatMakesNoSense) {
  const auto axis = [](const char* text) {
    return message_of<UsageError>([&] { parse_axis(text); });
  };
  EXPECT_THAT(axis("batch-size"), HasSubstr("has no values"));
  EXPECT_THAT(axis("batch-size="), HasSubstr("has an empty value"));
  EXPECT_THAT(axis("batch-size=1,,2"), HasSubstr("has an empty value"));
  EXPECT_THAT(axis("batch-size=1,1"), HasSubstr("has \"1\" twice"));
  EXPECT_THAT(axis("btach-size=1"), HasSubstr("did you mean batch-size?"));
  EXPECT_THAT(axis("profile-dir=a"), HasSubstr("cannot vary"));
  EXPECT_THAT(axis("network=vgg11"), HasSubstr("cannot vary"));
  const auto product = [](const std::vector<std::string>& sizes,
                          const std::vector<std::string>& texts) {
    return message_of<UsageError>([&] { variants_of({}, sizes, axes(texts), {}); });
  };
  EXPECT_THAT(product({"tinny"}, {}), HasSubstr("did you mean tiny?"));
  EXPECT_THAT(product({"tiny", "tiny"}, {}), HasSubstr("given twice"));
  EXPECT_THAT(product({}, {"seed=1", "seed=2"}), HasSubstr("--vary seed is given twice"));
  EXPECT_THAT(product({}, {"batch-size=8,0"}),
              HasSubstr("\"batch-size 0\" makes no sense: --batch-size is 0"));
  EXPECT_THAT(product({}, {"precision=bf16,bfloat16"}), HasSubstr("are the same run"))
      << "two spellings";
  std::string many = "seed=0";
  for (std::size_t i = 1; i <= max_variants; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(product({}, {many}), HasSubstr("201 variants are too many: a study has at most 200"));
  for (const char* name : {"", "a/b", ".hidden", "-x", "a\nb"})
    EXPECT_THROW(checked_study_name(name), UsageError) << name;
  EXPECT_EQ(checked_study_name("cards 2"), "cards 2");
}

TEST(StudyDefinition, ReadsWhatItWrote) {
  StudyDefinition definition{.rounds = 5, .seed = 7};
  definition.variants =
      variants_of({}, std::vector<std::string>{"tiny"}, axes({"batch-size=2,4"}), {});
  definition.output = "/somewhere";
  definition.profiles = true;
  definition.profile.counters = true;
  definition.time_limit = 60;
  const StudyDefinition back = study_from_json(to_json(definition));
  EXPECT_TRUE(back.measures_as(definition));
  EXPECT_EQ(back.output, definition.output);
  EXPECT_EQ(back.time_limit, 60);
  EXPECT_TRUE(back.profiles);
  EXPECT_EQ(back.profile, definition.profile);
  StudyDefinition other = definition;
  other.output = "/elsewhere";
  EXPECT_TRUE(other.measures_as(definition)) << "where it writes is not what it measures";
  other.rounds = 6;
  EXPECT_FALSE(other.measures_as(definition));
  EXPECT_NE(default_study_name(other), default_study_name(definition));
  EXPECT_THAT(default_study_name(definition), ::testing::MatchesRegex("tiny-batch-size-[0-9a-f]+"));
  EXPECT_THROW(study_from_json("{}"), FormatError);
  EXPECT_THROW(study_from_json("[]"), FormatError);
}

TEST(StudyDefinition, ShufflesEachRoundByItsSeed) {
  StudyDefinition definition{.seed = 42};
  definition.variants = variants_of({}, {}, axes({"seed=1,2,3,4,5,6,7,8"}), {});
  std::set<std::vector<std::size_t>> orders;
  for (std::int64_t round = 1; round <= 20; ++round) {
    std::vector<std::size_t> order = order_of_round(definition, round);
    EXPECT_EQ(order, order_of_round(definition, round));
    orders.insert(order);
    std::ranges::sort(order);
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  }
  EXPECT_GT(orders.size(), 18u);
  definition.seed = 43;
  EXPECT_FALSE(orders.contains(order_of_round(definition, 1)));
}

}  // namespace
}  // namespace ridge
