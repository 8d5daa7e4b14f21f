#include "ridge/study/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeStore;
using testing::record_of;
using ::testing::SizeIs;

std::vector<std::int64_t> ids_of(const RunPage& page) {
  std::vector<std::int64_t> ids;
  for (const RunRow& row : page.runs) ids.push_back(row.id);
  return ids;
}

TEST(Store, GivesBackWhatItWasGiven) {
  MadeStore made;
  RunDocument run = document_of({}, {"second", "first"});
  run.study = "widths";
  const std::int64_t id = made.store.add(run);
  const RunDocument back = made.store.document(id);
  EXPECT_NE(back.uuid, Uuid{}) << "it has a name of its own";
  EXPECT_EQ(back.study, "widths");
  EXPECT_THAT(back.tags, ElementsAre("first", "second"));
  EXPECT_EQ(back.record, record_of({}).dump()) << "on one line, with all it has";
  EXPECT_EQ(nlohmann::json::parse(back.context), nlohmann::json::parse(run.context));

  const RunRow row = made.store.find("1");
  EXPECT_EQ(row.uuid, back.uuid);
  EXPECT_EQ(row.study, "widths");
  EXPECT_EQ(row.median_seconds, 0.1);
  EXPECT_EQ(row.commit, "c0ffee");
  EXPECT_EQ(row.image_size, std::nullopt);
}

TEST(Store, KeepsARunOnce) {
  MadeStore made;
  RunDocument run = document_of({}, {"a"});
  run.uuid = random_uuid();
  const Store::Added first = made.store.add(std::span(&run, 1));
  EXPECT_EQ(first.added, 1);
  run.tags = {"b"};
  run.record = record_of({.version = "v4"}).dump();
  const Store::Added second = made.store.add(std::span(&run, 1));
  EXPECT_EQ(second.added, 0);
  EXPECT_EQ(second.ids, first.ids);
  EXPECT_THAT(made.store.find("1").tags, ElementsAre("a", "b"));
  EXPECT_EQ(made.store.find("1").version, "v1") << "what is kept does not change";
}

TEST(Store, KeepsProfilesApart) {
  MadeStore made;
  RunDocument profiled = document_of({.seed = 1});
  profiled.profile = R"({"operators":{"name":"日本"}})";
  const std::vector<std::int64_t> ids =
      made.store
          .add(std::vector<RunDocument>{profiled, document_of({.seed = 1}),
                                        document_of({.seed = 2})})
          .ids;
  EXPECT_EQ(made.store.profile(ids[0]), profiled.profile);
  EXPECT_EQ(made.store.profile(ids[1]), "");
  EXPECT_EQ(made.store.document(ids[0]).profile, "") << "which nobody else waits for";
  EXPECT_EQ(made.store.profiled_run(ids[0]), ids[0]);
  EXPECT_EQ(made.store.profiled_run(ids[1]), ids[0]) << "with the same options";
  EXPECT_EQ(made.store.profiled_run(ids[2]), std::nullopt);
  EXPECT_EQ(made.store.profiled_run(99), std::nullopt);
  made.store.set_profile(ids[1], "{}");
  EXPECT_EQ(made.store.profiled_run(ids[1]), ids[1]) << "its own";
  EXPECT_EQ(made.store.profiled_run(ids[0]), ids[0]);
  made.store.prune({});
  EXPECT_EQ(made.store.profile(ids[0]), "");
}

TEST(Store, AddsAllOrNone) {
  MadeStore made;
  std::vector<RunDocument> runs{document_of({}), document_of({})};
  runs[1].record = "{}";
  EXPECT_THROW(made.store.add(runs), FormatError);
  runs[1] = document_of({}, {""});
  EXPECT_THROW(made.store.add(runs), UsageError);
  EXPECT_EQ(made.store.count(""), 0);
}

TEST(Store, SharesWhatManyRunsHaveInCommon) {
  MadeStore made;
  for (int i = 0; i < 10; ++i)
    made.store.add(document_of({.created = 1'790'000'000 + i, .seed = i % 2}));
  EXPECT_EQ(made.store.stats().machines, 1);
  EXPECT_EQ(made.store.stats().programs, 1);
  Database database(made.file, Database::Access::write);
  EXPECT_EQ(database.integer("SELECT count(*) FROM options"), 2);
}

TEST(Store, ListsTheNewestFirst) {
  MadeStore made;
  for (const std::int64_t created : {3, 1, 4, 1, 5})
    made.store.add(document_of({.created = created}));
  EXPECT_THAT(ids_of(made.store.list({})), ElementsAre(5, 3, 1, 4, 2));
  EXPECT_THAT(ids_of(made.store.list({.descending = false})), ElementsAre(2, 4, 1, 3, 5));
  const RunPage page = made.store.list({.limit = 2});
  EXPECT_THAT(ids_of(page), ElementsAre(5, 3));
  EXPECT_EQ(page.total, 5);
}

// With a filter and a limit a query goes through the runs in another way.
TEST(Store, SortsByAnyColumn) {
  MadeStore made;
  made.store.add(document_of({.workload = "b", .gpu = "y", .median_seconds = 0.2}));
  made.store.add(
      document_of({.workload = "a", .gpu = "z", .image_size = 224, .median_seconds = 0.3}));
  made.store.add(
      document_of({.workload = "c", .gpu = "x", .image_size = 64, .median_seconds = 0.1}));
  made.store.add(document_of({.workload = "c", .gpu = "y", .median_seconds = 0.4}));
  const auto sorted = [&](const std::string& order, bool descending, const std::string& filter,
                          std::int64_t limit) {
    const RunPage page = made.store.list(
        {.filter = filter, .order = order, .descending = descending, .limit = limit});
    EXPECT_EQ(page.total, 4);
    return ids_of(page);
  };
  for (const char* filter : {"", "id>0"}) {
    EXPECT_THAT(sorted("median_seconds", false, filter, 4), ElementsAre(3, 1, 2, 4));
    EXPECT_THAT(sorted("median_seconds", true, filter, 2), ElementsAre(4, 2));
    EXPECT_THAT(sorted("workload", false, filter, 3), ElementsAre(2, 1, 3));
    EXPECT_THAT(sorted("workload", true, filter, 3), ElementsAre(4, 3, 1));
    EXPECT_THAT(sorted("gpu", false, filter, 4), ElementsAre(3, 1, 4, 2));
    EXPECT_THAT(sorted("image_size", false, filter, 4), ElementsAre(3, 2, 1, 4))
        << "unknown is last";
    EXPECT_THAT(sorted("image_size", false, filter, 2), ElementsAre(3, 2));
    EXPECT_THAT(sorted("workload", true, filter, 1), ElementsAre(4)) << "the newer of two alike";
    EXPECT_THAT(sorted("image_size", true, filter, 4), ElementsAre(2, 3, 4, 1));
    EXPECT_THAT(sorted("id", true, filter, 1), ElementsAre(4));
  }
  EXPECT_THAT(message_of<UsageError>([&] { made.store.list({.order = "median"}); }),
              HasSubstr("no column \"median\"; did you mean median_seconds?"));
}

TEST(Store, ListsFilteredRunsAsItGoesThroughThem) {
  MadeStore made;
  for (int i = 0; i < 300; ++i)
    made.store.add(
        document_of({.version = i % 3 == 0 ? "v4" : "v1", .created = 1000 + (i * 7919) % 300}));
  for (const char* filter : {"version=v4", "version=v4 and created<1970-01-02"}) {
    const RunPage some = made.store.list({.filter = filter, .limit = 10});
    const RunPage all = made.store.list({.filter = filter});
    EXPECT_EQ(some.total, 100);
    EXPECT_EQ(all.total, 100);
    const auto ids = ids_of(all);
    EXPECT_EQ(ids_of(some), std::vector<std::int64_t>(ids.begin(), ids.begin() + 10));
  }
}

// Rows that improve on all before them are gathered, and cut off by the thousand.
TEST(Store, ListsTheFirstOfThousandsWhateverTheirOrder) {
  MadeStore made;
  constexpr std::int64_t runs = 3000;
  std::vector<RunDocument> documents;
  for (std::int64_t n = 0; n < runs; ++n)
    documents.push_back(document_of({.created = 1'790'000'000 + n,
                                     .seed = n,
                                     .peak_bytes = 1 + (n * 1103) % runs,
                                     .steps = 1}));
  made.store.add(documents);
  const auto fourth_to_sixth = [&](const std::string& order, bool descending) {
    std::vector<std::int64_t> peaks;
    const RunPage page = made.store.list({.filter = "version=v1",
                                          .order = order,
                                          .descending = descending,
                                          .limit = 3,
                                          .offset = 3});
    EXPECT_EQ(page.total, runs);
    for (const RunRow& row : page.runs) peaks.push_back(row.peak_bytes.value_or(-1));
    return peaks;
  };
  const auto peak = [&](std::int64_t n) { return 1 + (n * 1103) % runs; };
  using Peaks = std::vector<std::int64_t>;
  EXPECT_EQ(fourth_to_sixth("created", true),
            (Peaks{peak(runs - 4), peak(runs - 5), peak(runs - 6)}));
  EXPECT_EQ(fourth_to_sixth("created", false), (Peaks{peak(3), peak(4), peak(5)}));
  EXPECT_EQ(fourth_to_sixth("peak_bytes", true), (Peaks{runs - 3, runs - 4, runs - 5}));
  EXPECT_EQ(fourth_to_sixth("peak_bytes", false), (Peaks{4, 5, 6}));
}

TEST(Store, FindsARunByIdTagOrUuid) {
  MadeStore made;
  made.store.add(document_of({.created = 5}, {"base"}));
  made.store.add(document_of({.created = 9}, {"base"}));
  made.store.add(document_of({.created = 7}, {"base"}));
  EXPECT_EQ(made.store.find("3").id, 3);
  EXPECT_EQ(made.store.find("base").id, 2) << "the newest";
  const std::string uuid = to_string(made.store.find("3").uuid);
  EXPECT_EQ(made.store.find(uuid).id, 3);
  EXPECT_EQ(made.store.find(uuid.substr(0, 12)).id, 3);
  const auto refusal = [&](const char* name) {
    return message_of<UsageError>([&] { made.store.find(name); });
  };
  EXPECT_THAT(refusal("4"), HasSubstr("there is no run \"4\""));
  EXPECT_THAT(refusal("bas"), HasSubstr("did you mean the tag \"base\"?"));
  EXPECT_THAT(refusal(""), HasSubstr("there is no run"));
}

TEST(Store, RefusesAnAmbiguousUuid) {
  MadeStore made;
  for (const char* uuid :
       {"abcd1000-0000-4000-8000-000000000000", "abcd2000-0000-4000-8000-000000000000"}) {
    RunDocument run = document_of({});
    run.uuid = *uuid_from(uuid);
    made.store.add(run);
  }
  EXPECT_THAT(message_of<UsageError>([&] { made.store.find("abcd"); }), HasSubstr("several runs"));
  EXPECT_EQ(made.store.find("abcd2").id, 2);
}

TEST(Store, TagsAndUntagsRuns) {
  MadeStore made;
  for (int i = 0; i < 3; ++i) made.store.add(document_of({}));
  const std::vector<std::int64_t> two{1, 2}, more{2, 3, 99};
  EXPECT_EQ(made.store.tag(two, "a"), 2);
  EXPECT_EQ(made.store.tag(more, "a"), 1) << "run 2 had it, and there is no run 99";
  EXPECT_THAT(made.store.tags(), ElementsAre("a"));
  EXPECT_EQ(made.store.untag(two, "a"), 2);
  EXPECT_EQ(made.store.untag(two, "a"), 0);
  EXPECT_EQ(made.store.count("tag=a"), 1);
  EXPECT_THAT(message_of<UsageError>([&] { made.store.tag(two, "12"); }),
              HasSubstr("taken for the id"));
  EXPECT_THAT(message_of<UsageError>([&] { made.store.tag(two, ""); }), HasSubstr("empty"));
}

TEST(Store, DrawsATrend) {
  MadeStore made;
  made.store.add(document_of({.commit = "b", .created = 20, .median_seconds = 0.2}));
  made.store.add(document_of({.commit = "a", .created = 10, .median_seconds = 0.1}));
  made.store.add(document_of({.created = 15, .median_seconds = 0}));
  made.store.add(document_of({.version = "v4", .created = 12}));
  const std::vector<SeriesPoint> points = made.store.series("version=v1", "median_seconds");
  ASSERT_THAT(points, SizeIs(2)) << "one run has no median";
  EXPECT_EQ(points[0].run, 2);
  EXPECT_EQ(made.store.commit(points[0].program), "a");
  EXPECT_EQ(points[0].value, 0.1);
  EXPECT_EQ(points[1].created, 20);
  EXPECT_THROW(made.store.series("", "gpu"), UsageError);
  EXPECT_THROW(made.store.series("", "uuid"), UsageError);
}

TEST(Store, RemovesRunsWithAllTheyHave) {
  MadeStore made;
  for (int i = 0; i < 10; ++i)
    made.store.add(
        document_of({.outcome = i % 2 == 0 ? "completed" : "failed", .created = i, .seed = i},
                    i == 0 ? std::vector<std::string>{"baseline"} : std::vector<std::string>{}));
  EXPECT_THAT(made.store.prunable({.filter = "outcome=failed"}), ElementsAre(10, 8, 6, 4, 2));
  EXPECT_THAT(made.store.prunable({.filter = "outcome=failed", .keep = 3}), ElementsAre(4, 2));
  EXPECT_EQ(made.store.prune({.filter = "outcome=failed", .keep = 3}), 2);
  EXPECT_EQ(made.store.count(""), 8);
  // All that are left but for the newest two: the tagged one stays until it is asked for.
  EXPECT_THAT(made.store.prunable({.keep = 2}), ElementsAre(8, 7, 6, 5, 3));
  EXPECT_EQ(made.store.prune({.keep = 2}), 5);
  EXPECT_THAT(ids_of(made.store.list({})), ElementsAre(10, 9, 1));
  EXPECT_EQ(made.store.prune({.filter = "tag=baseline", .tagged = true}), 1);
  EXPECT_THAT(made.store.tags(), IsEmpty());
  made.store.compact();
  Database database(made.file, Database::Access::write);
  EXPECT_EQ(database.integer("SELECT count(*) FROM records"), 2);
  EXPECT_EQ(database.integer("SELECT count(*) FROM options"), 2);
  EXPECT_EQ(made.store.add(document_of({})), 11) << "an id is never given twice";
}

TEST(Store, GivesTheSpaceOfRemovedRunsBack) {
  MadeStore made;
  for (int i = 0; i < 100; ++i) made.store.add(document_of({.steps = 500}));
  made.store.compact();
  const std::uint64_t before = made.store.stats().bytes;
  made.store.prune({.keep = 10});
  made.store.compact();
  EXPECT_LT(made.store.stats().bytes, before / 4);
}

TEST(Store, KeepsHostileNamesAndTags) {
  MadeStore made;
  const std::string names[] = {"'; DROP TABLE runs; --",
                               "\x1b[2J\x07\r\n\t",
                               "\"quoted\" <b>&amp;</b>",
                               std::string(10'000, 'x'),
                               "\xff\xfe invalid \xc3\x28",
                               "\u202egnp.exe",
                               "%_*?[]{}",
                               "日本語 🙂",
                               " "};
  std::vector<std::string> tags;
  for (const std::string& name : names) {
    const std::int64_t id = made.store.add(
        document_of({.workload = stored_text(name), .host = stored_text(name)}, {name}));
    EXPECT_EQ(made.store.find(name).id, id) << "by the tag as it was given";
    EXPECT_EQ(made.store.find(name).workload, stored_text(name));
    std::string quoted;
    for (const char c : name) quoted.append(c == '\'' ? 2 : 1, c);
    EXPECT_EQ(made.store.count("workload='" + quoted + "'"), 1) << name;
    EXPECT_EQ(made.store.count("tag='" + quoted + "'"), 1) << name;
  }
  EXPECT_EQ(made.store.count(""), std::ssize(names));
  EXPECT_THAT(made.store.faults(), IsEmpty());
}

}  // namespace
}  // namespace ridge
