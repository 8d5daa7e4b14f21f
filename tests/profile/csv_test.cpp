// The CSV files hold what the JSON files beside them hold, column by column.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ridge/profile/operator_table.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

using Json = nlohmann::json;
using Row = std::map<std::string, std::string>;  // by heading

// Of cells without commas; quotes are left out.
std::vector<std::string> cells_of(std::string line) {
  std::erase(line, '"');
  std::istringstream in(line);
  std::vector<std::string> cells;
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

std::vector<Row> rows_of(const std::string& csv) {
  std::istringstream in(csv);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> headings = cells_of(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) row[headings.at(i)] = cells[i];
  }
  return rows;
}

// A cell against a number, to the digits that the cell has.
void expect_same(const Row& row, const std::string& column, double expected) {
  const std::string& cell = row.at(column);
  const std::size_t point = cell.find('.');
  const double digits = point == cell.npos ? 0 : static_cast<double>(cell.size() - point - 1);
  EXPECT_NEAR(std::stod(cell), expected, 0.51 * std::pow(10.0, -digits))
      << row.at("Name") << ": " << column;
}

TEST(OperatorsCsv, IsTheJsonInColumns) {
  const RealRecording run;
  for (const GroupBy by : {GroupBy::op, GroupBy::phase}) {
    const OperatorTable table = operator_table(run.recording(), by);
    const Json json = Json::parse(operator_table_json(table));
    const std::vector<Row> rows = rows_of(operators_csv(table));
    const Json& expected = json.at("rows");
    ASSERT_EQ(rows.size(), expected.size() + 2) << "and the gaps";
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Row& row = rows[i];
      const Json &total = expected[i].at("total"), &self = expected[i].at("self");
      EXPECT_EQ(row.size(), 11u);
      EXPECT_EQ(row.at("Name"), expected[i].at("name").get<std::string>());
      expect_same(row, "Calls", total.at("calls"));
      expect_same(row, "SelfDurationNs", self.at("time_ns"));
      expect_same(row, "TotalDurationNs", total.at("time_ns"));
      expect_same(row, "Share", total.at("share"));
      expect_same(row, "AverageNs", total.at("average_ns"));
      expect_same(row, "Flops", total.at("flops"));
      expect_same(row, "GflopPerS", total.at("flops_per_second").get<double>() * 1e-9);
      expect_same(row, "BytesRead", total.at("bytes_read"));
      expect_same(row, "BytesWritten", total.at("bytes_written"));
      expect_same(row, "GBPerS", total.at("bytes_per_second").get<double>() * 1e-9);
    }
    expect_same(rows[expected.size()], "TotalDurationNs", json.at("between_operators_ns"));
    expect_same(rows[expected.size() + 1], "TotalDurationNs", json.at("outside_phases_ns"));
  }
}

}  // namespace
}  // namespace ridge
