#include "ridge/study/run_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

using nlohmann::json;
using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeStore;
using ::testing::Not;

std::string exported(Store& store, const std::string& filter = "") {
  std::string text;
  export_runs(store, filter, [&](std::string_view line) { text += std::string(line) + "\n"; });
  return text;
}

Imported import(Store& store, const std::string& text) {
  std::istringstream file(text);
  return import_runs(store, file);
}

TEST(RunExchange, CarriesWholeRuns) {
  MadeStore from, to;
  RunDocument run =
      document_of({.workload = "a\"b\\c\x01日本", .host = "<&>"}, {"x y", "it's \"z\"", "\x1b[0m"});
  run.study = "s\n1";
  run.profile = R"({"operators":{"a":"</script>"}})";
  from.store.add(run);
  from.store.add(
      document_of({.version = "v4", .created = 5, .median_seconds = 0.1234567890123456789}));
  const std::string text = exported(from.store);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  const Imported imported = import(to.store, text);
  EXPECT_EQ(imported.added, 2);
  EXPECT_THAT(imported.damaged, IsEmpty());
  EXPECT_EQ(exported(to.store), text);
  const RunRow row = to.store.find("x y");
  EXPECT_EQ(row.study, "s\n1");
  EXPECT_EQ(to.store.profile(row.id), run.profile);
  EXPECT_EQ(row.workload, "a\"b\\c\x01日本");
  EXPECT_THAT(row.tags, ElementsAre("\x1b[0m", "it's \"z\"", "x y"));
}

TEST(RunExchange, ChangesNothingTheSecondTime) {
  MadeStore made;
  made.store.add(document_of({}, {"a"}));
  const std::string text = exported(made.store);
  made.store.untag(std::vector<std::int64_t>{1}, "a");
  made.store.tag(std::vector<std::int64_t>{1}, "b");
  const Imported imported = import(made.store, text);
  EXPECT_EQ(imported.read, 1);
  EXPECT_EQ(imported.added, 0);
  EXPECT_THAT(made.store.find("1").tags, ElementsAre("a", "b")) << "a tag that came along is added";
}

TEST(RunExchange, ExportsWhatAFilterFinds) {
  MadeStore made;
  for (const char* version : {"v1", "v4", "v4"}) made.store.add(document_of({.version = version}));
  EXPECT_EQ(export_runs(made.store, "version=v4", [](std::string_view) {}), 2);
}

TEST(RunExchange, NamesDamagedLinesAndTakesTheOthers) {
  MadeStore from, to;
  for (int i = 0; i < 3; ++i) from.store.add(document_of({.seed = i}));
  std::istringstream lines(exported(from.store));
  std::string first, second, third;
  std::getline(lines, first), std::getline(lines, second), std::getline(lines, third);
  const Imported imported =
      import(to.store, first + "\n\n" + second.substr(0, second.size() / 2) + "\r\n{}\n" + third);
  EXPECT_EQ(imported.added, 2);
  ASSERT_EQ(imported.damaged.size(), 2u);
  EXPECT_EQ(imported.damaged[0].line, 3);
  EXPECT_THAT(imported.damaged[0].reason, HasSubstr("not JSON"));
  EXPECT_EQ(imported.damaged[1].line, 4);
  EXPECT_THAT(imported.damaged[1].reason, HasSubstr("its schema is not ridge-run-1"));
}

TEST(RunExchange, RefusesLinesThatAreNoRuns) {
  MadeStore made;
  made.store.add(document_of({}, {"a"}));
  const json good = json::parse(run_line(made.store.document(1)));
  const auto refusal = [&](const char* member, const json& value) {
    json bad = good;
    bad[member] = value;
    return message_of<Error>([&] { row_of(run_from_line(bad.dump())); });
  };
  EXPECT_EQ(refusal("study", 7), "nothing was thrown");
  EXPECT_THAT(refusal("schema", 1), HasSubstr("schema"));
  EXPECT_THAT(refusal("uuid", "12"), HasSubstr("no uuid"));
  EXPECT_THAT(refusal("uuid", "00000000-0000-0000-0000-000000000000"), HasSubstr("no uuid"));
  EXPECT_THAT(refusal("record", "{}"), HasSubstr("no record, which is a JSON object"));
  EXPECT_THAT(refusal("context", json::array()), HasSubstr("no context"));
  EXPECT_THAT(refusal("record", json::object()), HasSubstr("schema"));
  EXPECT_THAT(refusal("tags", {""}), HasSubstr("empty"));
  EXPECT_THAT(refusal("tags", {{"a", 1}}), "nothing was thrown");
}

TEST(RunExchange, WritesRowsForPrograms) {
  MadeStore made;
  made.store.add(document_of({.workload = "say \"a,b\"\n\x1b[0m", .created = 0}, {"t1", "t2"}));
  const RunRow row = made.store.find("1");
  const json parsed = json::parse(row_json(row));
  EXPECT_EQ(parsed["id"], 1);
  EXPECT_EQ(parsed["created"], "1970-01-01T00:00:00Z");
  EXPECT_EQ(parsed["workload"], row.workload);
  EXPECT_EQ(parsed["image_size"], nullptr);
  EXPECT_EQ(parsed["tags"], json({"t1", "t2"}));
  EXPECT_EQ(parsed["uuid"], to_string(row.uuid));
  const std::string csv = row_csv(row);
  EXPECT_THAT(csv, HasSubstr(R"(,"1970-01-01T00:00:00Z","say ""a,b""\x0a\x1b[0m","training",)"));
  EXPECT_THAT(csv, Not(HasSubstr("\n")));
  EXPECT_TRUE(csv.ends_with(R"("t1 t2")"));
  const std::string heading = csv_heading();
  EXPECT_EQ(std::ranges::count(heading, ','), std::ssize(run_columns()));
}

}  // namespace
}  // namespace ridge
