// What filters find is tested on a store of a few runs; that they are safe, on their SQL.

#include "ridge/study/filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeStore;
using ::testing::Not;

// Runs 1 to 4.
struct Filters : ::testing::Test {
  Filters() {
    store().add(document_of({.version = "v1", .hidden_dim = 512, .seed = 1}, {"baseline", "it's"}));
    store().add(document_of({.version = "v4",
                             .dtype = "bf16",
                             .device = "cuda",
                             .gpu = "NVIDIA H100 80GB HBM3",
                             .created = 1'793'491'200,  // 2026-11-01
                             .batch_size = 16,
                             .median_seconds = 0.01}));
    store().add(document_of({.workload = "resnet50",
                             .mode = "inference",
                             .version = "v4",
                             .outcome = "interrupted",
                             .host = "build 7",
                             .created = 1'793'577'599,  // the last second of that day
                             .image_size = 224}));
    store().add(document_of(
        {.workload = "100%_\\ sure", .version = "v2", .created = 1'793'577'600, .diverged = true},
        {"100%"}));
  }
  Store& store() { return made.store; }
  std::vector<std::int64_t> found(const std::string& filter) {
    std::vector<std::int64_t> ids;
    for (const RunRow& row :
         store().list({.filter = filter, .order = "id", .descending = false}).runs)
      ids.push_back(row.id);
    return ids;
  }
  std::string refusal(const std::string& filter) {
    return message_of<UsageError>([&] { store().count(filter); });
  }
  MadeStore made;
};

TEST_F(Filters, CompareColumns) {
  EXPECT_THAT(found(""), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(found("version=v4"), ElementsAre(2, 3));
  EXPECT_THAT(found("version == v4"), ElementsAre(2, 3));
  EXPECT_THAT(found("version!=v4"), ElementsAre(1, 4));
  EXPECT_THAT(found("version>v1"), ElementsAre(2, 3, 4));
  EXPECT_THAT(found("schedule=v1"), ElementsAre(1)) << "another name";
  EXPECT_THAT(found("BATCH-SIZE>=16"), ElementsAre(2));
  EXPECT_THAT(found("batch_size<1.6e1"), ElementsAre(1, 3, 4));
  EXPECT_THAT(found("median_seconds<=0.01"), ElementsAre(2));
  EXPECT_THAT(found("id=3"), ElementsAre(3));
  EXPECT_THAT(found("cores=2 and cpu~epyc and kernels=293"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(found("gpu=''"), ElementsAre(1, 3, 4));
  EXPECT_THAT(found("libraries~onednn and commit=c0ffee"), ElementsAre(1, 2, 3, 4));
}

TEST_F(Filters, LookForAPartOfAText) {
  EXPECT_THAT(found("gpu~h100"), ElementsAre(2));
  EXPECT_THAT(found("gpu!~H100"), ElementsAre(1, 3, 4));
  EXPECT_THAT(found("workload~'%'"), ElementsAre(4)) << "no wildcard";
  EXPECT_THAT(found("workload~'_'"), ElementsAre(1, 2, 4));
  EXPECT_THAT(found(R"(workload~'\')"), ElementsAre(4));
  EXPECT_THAT(found("workload~'%_\\ S'"), ElementsAre(4));
}

TEST_F(Filters, JoinComparisons) {
  EXPECT_THAT(found("version=v4 and gpu~H100"), ElementsAre(2));
  EXPECT_THAT(found("batch_size>8 or tag=baseline"), ElementsAre(1, 2));
  EXPECT_THAT(found("not dtype=fp32"), ElementsAre(2));
  EXPECT_THAT(found("not not dtype=fp32"), ElementsAre(1, 3, 4));
  EXPECT_THAT(found("version=v1 or version=v4 and dtype=bf16"), ElementsAre(1, 2));
  EXPECT_THAT(found("(version=v1 or version=v4) AND dtype=bf16"), ElementsAre(2));
  EXPECT_THAT(found("NOT (version=v4 OR version=v1)"), ElementsAre(4));
  EXPECT_THAT(found("not version=v4 and not version=v1"), ElementsAre(4));
}

TEST_F(Filters, CompareTags) {
  EXPECT_THAT(found("tag=baseline"), ElementsAre(1));
  EXPECT_THAT(found("tag!=baseline"), ElementsAre(2, 3, 4)) << "though run 1 has another tag too";
  EXPECT_THAT(found("tag='it''s'"), ElementsAre(1));
  EXPECT_THAT(found("tag=\"it's\""), ElementsAre(1));
  EXPECT_THAT(found("tag~0%"), ElementsAre(4));
}

TEST_F(Filters, CompareDatesAsSpans) {
  EXPECT_THAT(found("created=2026-11-01"), ElementsAre(2, 3));
  EXPECT_THAT(found("created>2026-11-01"), ElementsAre(4)) << "after that day";
  EXPECT_THAT(found("created>=2026-11-01"), ElementsAre(2, 3, 4));
  EXPECT_THAT(found("created<2026-11-01"), ElementsAre(1));
  EXPECT_THAT(found("created<=2026-11-01"), ElementsAre(1, 2, 3));
  EXPECT_THAT(found("created!=2026-11-01"), ElementsAre(1, 4));
  EXPECT_THAT(found("created=2026-11-01T23:59"), ElementsAre(3));
  EXPECT_THAT(found("created='2026-11-01 23:59:59'"), ElementsAre(3));
  EXPECT_THAT(found("created=2026"), ElementsAre(1, 2, 3, 4));
}

TEST_F(Filters, CompareOptionsAndPaths) {
  EXPECT_THAT(found("hidden_dim=512"), ElementsAre(1));
  EXPECT_THAT(found("hidden-dim<512"), ElementsAre(2, 3, 4));
  EXPECT_THAT(found("learning_rate=0.0001 and seed=1"), ElementsAre(1));
  EXPECT_THAT(found("deterministic=false"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(found("deterministic!=false"), IsEmpty());
  EXPECT_THAT(found("config.hidden_dim>=512"), ElementsAre(1));
  EXPECT_THAT(found("system_info.host='build 7'"), ElementsAre(3));
  EXPECT_THAT(found("system_info.host~BUILD"), ElementsAre(3));
  EXPECT_THAT(found("system_info.host>c"), ElementsAre(1, 2, 4));
  EXPECT_THAT(found("machine.libraries.oneDNN=3.7.0"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(found("machine.gpu~a"), ElementsAre(2));
}

TEST_F(Filters, TakeWhatIsNotKnownForUnequal) {
  EXPECT_THAT(found("image_size=224"), ElementsAre(3));
  EXPECT_THAT(found("image_size!=224"), ElementsAre(1, 2, 4));
  EXPECT_THAT(found("not image_size=224"), ElementsAre(1, 2, 4));
  EXPECT_THAT(found("image_size<1000"), ElementsAre(3));
  EXPECT_THAT(found("not image_size<1000"), ElementsAre(1, 2, 4));
  EXPECT_THAT(found("not final_loss>0"), ElementsAre(4));
  EXPECT_THAT(found("not config.image_size<1000"), ElementsAre(1, 2, 4));
}

TEST_F(Filters, AndTheirNegationsFindEveryRunOnce) {
  for (const char* filter :
       {"version=v4", "gpu~H100", "gpu!~H100", "image_size<300", "tag!=baseline", "created>2026-11",
        "hidden_dim=512", "config.image_size=224", "config.image_size~2", "final_loss>=6.5",
        "uuid=0", "not tokens_per_second>1 or batch_size=16"}) {
    const std::string denied = std::string("not (") + filter + ")";
    EXPECT_EQ(store().count(filter) + store().count(denied), 4) << filter;
  }
}

TEST_F(Filters, FindByTheBeginningOfAUuid) {
  const std::string uuid = to_string(store().find("2").uuid);
  EXPECT_THAT(found("uuid=" + uuid), ElementsAre(2));
  EXPECT_THAT(found("uuid=" + uuid.substr(0, 9)), ElementsAre(2));
}

TEST_F(Filters, SayWhereTheyAreWrong) {
  EXPECT_THAT(refusal("version"), HasSubstr("ends where one of ="));
  EXPECT_THAT(refusal("version="), HasSubstr("ends where a value"));
  EXPECT_THAT(refusal("version=v4 gpu~x"),
              HasSubstr("has \"gpu~x\" at character 12, where and, or, or its end"));
  EXPECT_THAT(refusal("version=v4 and"), HasSubstr("ends where the name"));
  EXPECT_THAT(refusal("(version=v4"), HasSubstr("should be"));
  EXPECT_THAT(refusal("version=v4)"), HasSubstr("has \")\" at character 11"));
  EXPECT_THAT(refusal("version='v4"), HasSubstr("quotes are closed"));
  EXPECT_THAT(refusal("=v4"), HasSubstr("at character 1"));
  EXPECT_THAT(refusal("a;b=1"), HasSubstr("\"a;b=1\""));
  EXPECT_THAT(refusal("batch_size=two"),
              HasSubstr("batch_size is a number; the filter compares it with \"two\""));
  EXPECT_THAT(refusal("batch_size=nan"), HasSubstr("is a number"));
  EXPECT_THAT(refusal("batch_size~8"), HasSubstr("contains nothing"));
  EXPECT_THAT(refusal("created>yesterday"), HasSubstr("\"yesterday\""));
  EXPECT_THAT(refusal("uuid>12"), HasSubstr("first hexadecimal digits"));
  EXPECT_THAT(refusal("\x1b[31m=1"), Not(HasSubstr("\x1b")));
}

TEST_F(Filters, NameWhatIsNear) {
  EXPECT_THAT(refusal("verson=v4"), HasSubstr("no \"verson\"; did you mean version?"));
  EXPECT_THAT(refusal("hiden_dim=4"), HasSubstr("did you mean hidden_dim?"));
  EXPECT_THAT(refusal("qqqqqqq=4"), HasSubstr("ridge runs --help"));
  EXPECT_THAT(refusal("system_info.hots=x"), HasSubstr("no run has \"system_info.hots\""));
}

TEST_F(Filters, OfAnySizeAreAnsweredOrRefused) {
  EXPECT_THAT(refusal(std::string(1'000'000, '(')), HasSubstr("nested more than 100"));
  std::string nots;
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  EXPECT_THAT(refusal(nots + "id=1"), HasSubstr("nested more than 100"));
  const auto chain = [](int comparisons, const std::string& word) {
    std::string filter = "id=1";
    for (int i = 1; i < comparisons; ++i) filter += word + "hidden_dim=512";
    return filter;
  };
  for (const char* word : {" or ", " and "}) {
    EXPECT_EQ(store().count(chain(500, word)), 1) << word;
    EXPECT_THAT(refusal(chain(501, word)), HasSubstr("more than 500 comparisons"));
  }
}

// Any sequence of what filters are made of is answered or refused, and never by SQLite.
TEST_F(Filters, OfRandomPartsAreAnsweredOrRefused) {
  const std::vector<std::vector<std::string>> parts{
      {"version", "batch_size", "gpu", "tag", "created", "uuid", "hidden_dim", "config.hidden_dim",
       "machine.gpu", "not tag", "(id"},
      {"=", "!=", "<", ">=", "~", "!~"},
      {"v4", "16", "2026-11", "'it''s'", "\"\"", "abcd", "-1e999"},
      {" and ", " or ", ") and ", " "},
      {"(", ")", "'", "\\", ";", "--", "nope", "a..b", ".", "\xff", "?1"}};
  const std::size_t kinds = parts.size() - 1;  // in order, but for the last
  std::mt19937 random(7);
  std::size_t answered = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string filter;
    const std::size_t length = 3 + 4 * (random() % 3);
    for (std::size_t p = 0; p < length; ++p) {
      const auto& some = parts[random() % 40 == 0 ? kinds : p % kinds];
      filter += some[random() % some.size()];
    }
    try {
      store().count(filter);
      ++answered;
    } catch (const UsageError&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << filter << ": " << error.what();
    }
  }
  EXPECT_GT(answered, 1000u);
  EXPECT_LT(answered, 19'000u);
}

TEST_F(Filters, PutNoTextOfTheirsIntoSql) {
  const std::string hostile = "x' OR 1=1; DROP TABLE runs --";
  std::string quoted;
  for (const char c : hostile) quoted.append(c == '\'' ? 2 : 1, c);
  for (const char* name : {"version", "gpu", "commit", "tag", "seed", "system_info.host"})
    for (const char* sign : {"=", "!=", "~", "<"}) {
      const std::string filter = std::string(name) + sign + "'" + quoted + "'";
      const SqlCondition condition = condition_of(
          filter, {.options = {"seed"}, .has_path = [](bool, const std::string&) { return true; }});
      EXPECT_THAT(condition.sql, AllOf(Not(HasSubstr("DROP")), Not(HasSubstr("1=1")))) << filter;
      EXPECT_THAT(found(filter).size(), ::testing::Le(4u));
    }
  EXPECT_THAT(found(""), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace ridge
