#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/profile/node_stats.h"
#include "ridge/profile/recording.h"

namespace ridge {

enum class GroupBy : std::uint8_t { op, shape, module, phase };
enum class SortBy : std::uint8_t {
  total,
  self,
  share,
  calls,
  average,
  flops,
  flop_rate,
  bytes,
  bandwidth,
  name
};

// "operator", "shape", "module", "phase"; and "total", "self", "share", "calls", "average",
// "flops", "gflops", "bytes", "gbps", "name". UsageError for any other, naming these.
GroupBy group_by_named(std::string_view name);
SortBy sort_by_named(std::string_view name);
std::string_view name_of(GroupBy group_by);
std::string_view name_of(SortBy sort_by);

// Calls of kernels, their time and their exact work.
struct Work {
  std::int64_t calls = 0;
  std::int64_t ns = 0;
  Cost cost;

  Work& operator+=(const Work& other);
  double average_ns() const;  // all these are 0 where there is nothing to divide by
  double flops_per_second() const;
  double bytes_per_second() const;
};

// The total of a module includes its submodules; of anything else it is what itself does.
struct OperatorRow {
  std::string name;
  Work self, total;
};

// Where the time of the recorded steps went. It closes: the self times of all rows and the two gaps
// of `time` add up to the steps' own time.
struct OperatorTable {
  GroupBy group_by = GroupBy::op;
  SortBy sort_by = SortBy::total;
  std::vector<OperatorRow> rows;  // the largest first, names in alphabetical order
  Work all;
  StepTime time;
  std::int64_t first_step = 0, last_step = 0;
  std::string device, hardware;
  int threads = 0;
  std::uint64_t dropped = 0;  // records the recording had no room for: everything is too small

  double share(std::int64_t ns) const;  // of the steps' time
};

OperatorTable operator_table(const Recording& recording, GroupBy group_by = GroupBy::op,
                             SortBy sort_by = SortBy::total);

// For the terminal: the first `top` rows (0: all), what the others take together, the gaps. Without
// FLOPs, bytes and their rates where the times are those of launches.
enum class OperatorColumns : std::uint8_t { all, times };
std::string operator_table_text(const OperatorTable& table, std::size_t top = 10,
                                OperatorColumns shown = OperatorColumns::all);
// The ten operators on which the host spent most; empty where it launched captured graphs, whose
// nodes have no times of the host's.
std::string host_times_text(const Recording& host, OperatorColumns shown);
// operators.json: every row; and as text.
nlohmann::ordered_json json_of(const OperatorTable& table);
std::string operator_table_json(const OperatorTable& table);
std::string operators_csv(const OperatorTable& table);  // every row and the gaps

// nodes.json: every node that ran, in the graph's order. The other tables are sums over its rows.
std::string nodes_json(const Recording& recording);

}  // namespace ridge
