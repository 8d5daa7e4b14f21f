#include "ridge/profile/operator_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/silu.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

// One step of 1 ms: two products in "a.b", a silu in "a"; 150 µs of it in no operator.
struct HandMade {
  Graph graph;
  Recording recording;

  explicit HandMade(std::string_view outer = "a") {
    const Scope scope(graph, outer);
    Value x = graph.input("x", {DType::f32, {2, 8}});
    const Value w = graph.parameter("w", {8, 8}, Init::zeros());
    {
      const Scope inner(graph, "b");
      x = matmul(matmul(x, w), w);
    }
    silu(x);
    recording.graph = &graph;
    recording.device = "cpu";
    recording.nodes = {{0, 1, 50000, 250000}, {1, 1, 250000, 750000}, {2, 1, 800000, 950000}};
    recording.phases = {{Phase::forward, 1, 20000, 960000}};
    recording.steps = {{1, 0, 1000000, 0.5}};
  }
};

std::vector<std::string> names_of(const OperatorTable& table) {
  std::vector<std::string> names;
  for (const OperatorRow& row : table.rows) names.push_back(row.name);
  return names;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(OperatorTable, CountsTimeAndWorkOfEachOperator) {
  const HandMade h;
  const OperatorTable table = operator_table(h.recording);
  ASSERT_EQ(names_of(table), (std::vector<std::string>{"matmul", "silu"}));
  const Work& matmul = table.rows[0].total;
  EXPECT_EQ(matmul.calls, 2);
  EXPECT_EQ(matmul.ns, 700000);
  EXPECT_EQ(matmul.average_ns(), 350000);
  EXPECT_EQ(matmul.cost.flops, 2 * 2 * 2 * 8 * 8);
  EXPECT_DOUBLE_EQ(matmul.flops_per_second(), 512 / 700e-6);
  EXPECT_EQ(matmul.cost.bytes(), 2 * 4 * (16 + 64 + 16));
  EXPECT_DOUBLE_EQ(matmul.bytes_per_second(), 768 / 700e-6);
  EXPECT_DOUBLE_EQ(table.share(matmul.ns), 0.7);
  EXPECT_EQ(table.time.between_nodes_ns, 90000);
  EXPECT_EQ(table.time.outside_phases_ns, 60000);
}

TEST(OperatorTable, AModulesTotalHasItsSubmodulesAndItsSelfHasNot) {
  const HandMade h;
  const OperatorTable table = operator_table(h.recording, GroupBy::module);
  ASSERT_EQ(names_of(table), (std::vector<std::string>{"(model)", "a", "a.b"}));
  EXPECT_EQ(table.rows[1].self.ns, 150000);
  EXPECT_EQ(table.rows[1].total.ns, 850000);
  EXPECT_EQ(table.rows[1].total.calls, 3);
  EXPECT_EQ(table.rows[2].self.ns, 700000);
  EXPECT_EQ(table.rows[0].self.ns, 0);
  EXPECT_EQ(table.rows[0].total.cost, table.all.cost);
}

TEST(OperatorTable, GroupsByShapeAndPhase) {
  const HandMade h;
  EXPECT_EQ(names_of(operator_table(h.recording, GroupBy::shape)),
            (std::vector<std::string>{"matmul f32[2, 8], f32[8, 8]", "silu f32[2, 8]"}));
  EXPECT_EQ(names_of(operator_table(h.recording, GroupBy::phase)),
            std::vector<std::string>{"forward"});
}

TEST(OperatorTable, SortsByAnyColumn) {
  RealRecording run;
  for (const char* by :
       {"total", "self", "share", "calls", "average", "flops", "gflops", "bytes", "gbps", "name"}) {
    const SortBy sort_by = sort_by_named(by);
    EXPECT_EQ(name_of(sort_by), by);
    const OperatorTable table = operator_table(run.recording(), GroupBy::module, sort_by);
    const auto key = [&](const OperatorRow& r) -> double {
      const std::string_view column = by;
      if (column == "self") return static_cast<double>(r.self.ns);
      if (column == "calls") return static_cast<double>(r.total.calls);
      if (column == "average") return r.total.average_ns();
      if (column == "flops") return static_cast<double>(r.total.cost.flops);
      if (column == "gflops") return r.total.flops_per_second();
      if (column == "bytes") return static_cast<double>(r.total.cost.bytes());
      if (column == "gbps") return r.total.bytes_per_second();
      return static_cast<double>(r.total.ns);
    };
    if (std::string_view(by) == "name")
      EXPECT_TRUE(std::ranges::is_sorted(table.rows, {}, &OperatorRow::name));
    else
      EXPECT_TRUE(std::ranges::is_sorted(table.rows, std::greater{}, key)) << by;
  }
  EXPECT_THROW(sort_by_named("time"), UsageError);
  EXPECT_THROW(group_by_named(""), UsageError);
  EXPECT_EQ(group_by_named("module"), GroupBy::module);
}

// Against the steps' own clock: no time is lost and none is counted twice, however it is grouped.
TEST(OperatorTable, SelfTimesAndGapsAreTheStepTime) {
  for (const std::int64_t accumulation : {1, 2}) {
    const RealRecording run(accumulation);
    std::int64_t step_ns = 0;
    for (const Recording::Step& step : run.recording().steps)
      step_ns += step.end_ns - step.begin_ns;
    for (const char* by : {"operator", "shape", "module", "phase"}) {
      const OperatorTable table = operator_table(run.recording(), group_by_named(by));
      std::int64_t sum = table.time.between_nodes_ns + table.time.outside_phases_ns;
      Cost cost;
      for (const OperatorRow& row : table.rows) {
        sum += row.self.ns;
        cost += row.self.cost;
        EXPECT_LE(row.self.ns, row.total.ns);
      }
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(step_ns),
                  0.01 * static_cast<double>(step_ns))
          << by;
      EXPECT_EQ(cost, table.all.cost) << by;
      EXPECT_GE(table.time.between_nodes_ns, 0);
      EXPECT_GE(table.time.outside_phases_ns, 0);
      // What is printed closes as well: the whole of the JSON table, and the rows of the CSV.
      std::int64_t printed = 0;
      std::istringstream csv(operators_csv(table));
      std::string line;
      std::getline(csv, line);
      while (std::getline(csv, line)) {
        const std::string rest = line.substr(line.find("\",") + 2);  // calls, self time, ...
        printed += std::stoll(rest.substr(rest.find(',') + 1));
      }
      EXPECT_EQ(printed, sum) << by;
    }
  }
}

TEST(OperatorTable, PrintsTheFirstRowsTheOthersAndTheGaps) {
  const HandMade h;
  const std::string text = operator_table_text(operator_table(h.recording), 1);
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 11u) << text;
  EXPECT_EQ(lines[0], "Top Operations by Total Time:");
  EXPECT_EQ(lines[1], "Step 1 on cpu: 1.000 ms, 3 kernels of 2 kinds");
  EXPECT_TRUE(
      lines[2].starts_with("Operation           | Calls | Total Time |   Share |  Average"));
  EXPECT_TRUE(
      lines[4].starts_with("matmul              |     2 |   0.700 ms |  70.0 % | 350.0 µs"));
  EXPECT_TRUE(
      lines[6].starts_with("(1 other)           |     1 |   0.150 ms |  15.0 % | 150.0 µs"));
  EXPECT_TRUE(lines[7].starts_with("(between operators) |       |   0.090 ms |   9.0 %"));
  EXPECT_TRUE(lines[8].starts_with("(outside phases)    |       |   0.060 ms |   6.0 %"));
  const std::string all = operator_table_text(operator_table(h.recording));
  EXPECT_TRUE(all.starts_with("All Operations by Total Time:\n"));
  EXPECT_NE(all.find("\nStep time           |       |   1.000 ms | 100.0 %"), std::string::npos);
}

TEST(OperatorTable, WritesValidJsonWhateverTheNames) {
  const HandMade h("\"\x01\xff😀\n" + std::string(10000, 'n'));
  const auto json =
      nlohmann::json::parse(operator_table_json(operator_table(h.recording, GroupBy::module)));
  EXPECT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][0]["total"]["time_ns"], 850000);
  EXPECT_EQ(json["step_time_ns"], 1000000);
  const std::string text = operator_table_text(operator_table(h.recording, GroupBy::module));
  EXPECT_EQ(text.find('\x01'), std::string::npos);
  EXPECT_LT(text.size(), 3000u);
  EXPECT_EQ(text.find("kernels of"), std::string::npos) << "modules are not kinds of kernels";
}

TEST(OperatorTable, IsEmptyButWholeWithoutSteps) {
  HandMade h;
  h.recording.nodes.clear();
  h.recording.phases.clear();
  h.recording.steps.clear();
  const OperatorTable table = operator_table(h.recording);
  EXPECT_TRUE(table.rows.empty());
  EXPECT_NE(operator_table_text(table).find("no complete step"), std::string::npos);
  EXPECT_NO_THROW(nlohmann::json::parse(operator_table_json(table)));
}

TEST(NodesJson, IsWhatTheTablesAreSumsOf) {
  const RealRecording run;
  const auto json = nlohmann::json::parse(nodes_json(run.recording()));
  EXPECT_EQ(json["steps"], 3);
  std::map<std::string, std::int64_t> ns, flops, bytes;
  for (const auto& node : json["nodes"]) {
    ns[node["operator"]] += node["time_ns"].get<std::int64_t>();
    flops[node["operator"]] += node["flops"].get<std::int64_t>();
    bytes[node["operator"]] +=
        node["bytes_read"].get<std::int64_t>() + node["bytes_written"].get<std::int64_t>();
    EXPECT_EQ(node["calls"], 3);
    EXPECT_LE(node["min_ns"], node["max_ns"]);
  }
  const OperatorTable table = operator_table(run.recording());
  EXPECT_EQ(ns.size(), table.rows.size());
  for (const OperatorRow& row : table.rows) {
    EXPECT_EQ(ns[row.name], row.total.ns) << row.name;
    EXPECT_EQ(flops[row.name], row.total.cost.flops) << row.name;
    EXPECT_EQ(bytes[row.name], row.total.cost.bytes()) << row.name;
  }
}

TEST(OperatorTable, SaysHowManyThreadsRan) {
  const RealRecording run;
  const std::string json = operator_table_json(operator_table(run.recording()));
  EXPECT_EQ(nlohmann::json::parse(json)["threads"], run.recording().threads);
}

TEST(OperatorTable, LeavesOutRatesOfLaunches) {
  const RealRecording run;
  const OperatorTable table = operator_table(run.recording());
  const std::string all = operator_table_text(table);
  const std::string times = operator_table_text(table, 10, OperatorColumns::times);
  EXPECT_NE(all.find("GFLOP/s"), std::string::npos);
  EXPECT_EQ(times.find("GFLOP"), std::string::npos) << times;
  EXPECT_NE(times.find("Average"), std::string::npos);
}

}  // namespace
}  // namespace ridge
