#include "ridge/analyze/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/profile/operator_table.h"
#include "tests/analyze/small_training.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Roof roof() {
  return {.threads = 1,
          .peaks = {{ProductKind::f32, 100e9}, {ProductKind::bf16, 200e9}},
          .levels = {{"L1", 32 << 10, 400e9}, {"memory", 0, 10e9}}};
}

RooflinePoint point(std::string name, std::int64_t flops, std::int64_t bytes, double seconds) {
  return {.name = std::move(name),
          .calls = 1,
          .seconds = seconds,
          .flops = flops,
          .bytes = bytes,
          .share = 0.5};
}

TEST(RooflinePoint, KnowsItsIntensityAndRates) {
  const RooflinePoint p = point("p", 600, 200, 1e-6);
  EXPECT_DOUBLE_EQ(p.intensity(), 3);
  EXPECT_DOUBLE_EQ(p.flops_per_second(), 600e6);
  EXPECT_DOUBLE_EQ(p.bytes_per_second(), 200e6);
  EXPECT_EQ(point("none", 0, 0, 0).intensity(), 0);
  EXPECT_EQ(point("none", 5, 0, 0).flops_per_second(), 0);
}

TEST(RooflinePoints, AreTheRowsOfTheTableMostTimeFirst) {
  SmallTraining training;
  const Recording& recording = training.record(2);
  const OperatorTable table = operator_table(recording);
  const ProfiledOperators profile =
      roofline_points_from_json(operator_table_json(table), "operators.json");
  EXPECT_EQ(profile.threads, recording.threads);
  EXPECT_EQ(profile.device, "cpu");
  EXPECT_EQ(profile.hardware, recording.hardware);
  const std::vector<RooflinePoint>& points = profile.points;
  ASSERT_EQ(points.size(), table.rows.size());
  ASSERT_GT(points.size(), 5u);
  EXPECT_TRUE(std::ranges::is_sorted(points, std::greater{}, &RooflinePoint::seconds));
  for (const RooflinePoint& point : points) {
    const auto row = std::ranges::find(table.rows, point.name, &OperatorRow::name);
    ASSERT_NE(row, table.rows.end()) << point.name;
    EXPECT_EQ(point.flops, row->total.cost.flops);
    EXPECT_EQ(point.bytes, row->total.cost.bytes());
    EXPECT_DOUBLE_EQ(point.seconds, static_cast<double>(row->total.ns) * 1e-9);
  }
  EXPECT_THROW(roofline_points_from_json("{}", "f"), FormatError);
  EXPECT_THROW(roofline_points_from_json("{\"rows\": [1]}", "f"), FormatError);
  EXPECT_THROW(roofline_points_from_json("no", "f"), FormatError);
}

TEST(RooflineRange, HoldsEveryPointAndTheRidge) {
  const RooflineRange range =
      roofline_range({point("far", 5000, 1, 1), point("slow", 1, 1000, 1)}, roof());
  EXPECT_DOUBLE_EQ(range.min_intensity, 1e-3);
  EXPECT_DOUBLE_EQ(range.max_intensity, 1e4);
  EXPECT_DOUBLE_EQ(range.min_rate, 1);
  EXPECT_DOUBLE_EQ(range.max_rate, 1e12);
}

// The row, from the top, of the first line that has `mark` on the chart, and its column.
std::pair<std::size_t, std::size_t> find_mark(const std::string& text, char mark) {
  std::size_t row = 0, begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    const std::size_t bar = line.find('|');
    if (bar == std::string::npos) break;
    if (const std::size_t at = line.find(mark, bar); at != std::string::npos) return {row, at};
    begin = end + 1, ++row;
  }
  return {0, 0};
}

TEST(RooflineText, PlacesPointsByIntensityAndRate) {
  // "a" is of more FLOPs per byte and per second than "b"; the third does none.
  const std::string text =
      roofline_text({point("product", 9'000'000, 90'000, 1e-3), point("sum", 10'000, 100'000, 1e-4),
                     point("permute", 0, 1000, 1e-5)},
                    roof());
  const auto a = find_mark(text, 'a'), b = find_mark(text, 'b');
  EXPECT_GT(a.second, b.second);
  EXPECT_LT(a.first, b.first);
  EXPECT_EQ(find_mark(text, 'c').second, 0u);
  for (const char* expected : {"FLOP/byte", "product", "permute", "f32 peak 100 GFLOP/s",
                               "bf16 peak 200 GFLOP/s", "memory 10.0 GB/s"})
    EXPECT_THAT(text, HasSubstr(expected));
  EXPECT_NE(find_mark(text, '-').second, 0u);
  EXPECT_NE(find_mark(text, '/').second, 0u);
}

// Those without FLOPs, wherever they stand in the table, take no letter.
TEST(RooflineText, HasTheLettersOfTheChartInTheTable) {
  const std::string text =
      roofline_text({point("copy", 0, 1000, 4e-3), point("product", 9'000'000, 90'000, 1e-3),
                     point("permute", 0, 1000, 5e-4), point("sum", 10'000, 100'000, 1e-4)},
                    roof());
  for (const char* row : {"\n  | copy ", "\na | product ", "\n  | permute ", "\nb | sum "})
    EXPECT_THAT(text, HasSubstr(row));
  const auto a = find_mark(text, 'a'), b = find_mark(text, 'b');
  EXPECT_GT(a.second, b.second) << "100 FLOP/byte against 0.1";
  EXPECT_LT(a.first, b.first) << "9 GFLOP/s against 0.1";
  EXPECT_EQ(find_mark(text, 'c').second, 0u);
}

TEST(RooflineText, HasRoomForManyPointsAndNone) {
  std::vector<RooflinePoint> many;
  for (int i = 0; i < 1000; ++i) many.push_back(point("op", 1000 + i, 1000, 1e-6));
  EXPECT_THAT(roofline_text(many, roof()), HasSubstr("*"));
  EXPECT_THAT(roofline_text({}, roof(), 1, 1), HasSubstr("FLOP/byte"));
}

TEST(RooflineSvg, WritesNoNameOverAnother) {
  const std::vector<RooflinePoint> crowd(9, point("cross_entropy", 1000, 1000, 1e-6));
  const std::string svg = roofline_svg(crowd, roof(), "crowd");
  std::vector<std::pair<double, double>> corners;
  const std::regex name("class=\"name\" x=\"([0-9.]+)\" y=\"([0-9.]+)\"");
  for (std::sregex_iterator match(svg.begin(), svg.end(), name), end; match != end; ++match)
    corners.emplace_back(std::stod((*match)[1]), std::stod((*match)[2]));
  EXPECT_GE(corners.size(), 3u);
  EXPECT_LT(corners.size(), crowd.size());
  for (std::size_t i = 0; i < corners.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_TRUE(std::abs(corners[i].second - corners[j].second) >= 11 ||
                  std::abs(corners[i].first - corners[j].first) >= 13 * 6)
          << "names " << i << " and " << j;
}

TEST(RooflineSvg, EscapesNamesAndDrawsEveryPoint) {
  const std::string svg = roofline_svg(
      {point("a<script>&\"\x01", 1000, 10, 1e-6), point("still", 0, 10, 1e-6)}, roof(), "x < y");
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("a&lt;script&gt;&amp;&quot;\\x01"));
  EXPECT_THAT(svg, HasSubstr("x &lt; y"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  const std::size_t first = svg.find("<circle");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(svg.find("<circle", first + 1), std::string::npos) << "one of the points has no FLOPs";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace ridge
