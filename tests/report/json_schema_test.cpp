#include "ridge/report/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view schema = R"({
  "type": "object",
  "properties": {
    "rows": {"type": "array", "items": {"$ref": "#/definitions/row"}},
    "columns": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
    "note": {"type": ["string", "null"]}
  },
  "required": ["rows", "note"],
  "definitions": {
    "row": {"type": "object", "properties": {"ns": {"type": "number"}}, "required": ["ns"]}
  }
})";

std::vector<std::string> places(const Json& document) {
  std::vector<std::string> all;
  for (const Breach& breach : breaches_of(document, schema)) all.push_back(breach.place);
  return all;
}

TEST(JsonSchema, NamesThePlaceOfABreach) {
  const Json sound = {
      {"rows", {{{"ns", 1}}, {{"ns", 2.5}}}}, {"columns", {{"a", {1}}}}, {"note", ""}};
  EXPECT_THAT(places(sound), IsEmpty());
  const auto with = [&](const char* pointer, const Json& value) {
    Json document = sound;
    document[Json::json_pointer(pointer)] = value;
    return places(document);
  };
  EXPECT_THAT(with("/note", nullptr), IsEmpty());
  EXPECT_THAT(with("/note", 1), ElementsAre("note"));
  EXPECT_THAT(with("/rows/1/ns", "soon"), ElementsAre("rows.1.ns"));
  EXPECT_THAT(with("/rows/1", Json::object()), ElementsAre("rows.1.ns")) << "where it would be";
  EXPECT_THAT(with("/rows", 3), ElementsAre("rows"));
  EXPECT_THAT(with("/columns/a/0", "x"), ElementsAre("columns.a.0"));
  EXPECT_THAT(places({{"rows", Json::array()}}), ElementsAre("note"));
  EXPECT_THAT(places(Json::array()), ElementsAre(""));
}

// A million of them would take all memory to be told.
TEST(JsonSchema, LooksForPlacesInTheFirstElementsAlone) {
  Json document = {{"rows", Json::array()}, {"note", nullptr}};
  for (int i = 0; i < 5000; ++i) document["rows"].push_back({{"ns", 1}});
  EXPECT_THAT(places(document), IsEmpty());
  document["rows"][4000]["ns"] = "late";
  EXPECT_THAT(places(document), ElementsAre(""));
  for (Json& row : document["rows"]) row["ns"] = "all";
  EXPECT_EQ(places(document).size(), 1000u);
}

}  // namespace
}  // namespace ridge
