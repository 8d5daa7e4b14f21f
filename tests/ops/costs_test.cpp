// What each operator costs, of its samples in f32: FLOPs, multiply-accumulates and bytes, as
// tests/ops/costs.tsv has them since somebody last counted. Everything that is told of a run's work
// rests on these numbers, and no result depends on them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "tests/ops/cases.h"

namespace ridge {
namespace {

constexpr const char* path = RIDGE_SOURCE_DIR "/tests/ops/costs.tsv";

using Costs = std::map<std::string, std::string>;  // by operator, sample and operands

template <class T>
void add_costs(Costs& costs) {
  std::size_t number = 0;
  for (const Sample<T>& sample : T::samples()) {
    const std::vector<TensorType> in = testing::operand_types(sample, DType::f32);
    const std::vector<TensorType> out = sample.op.infer(in);
    const Cost cost = sample.op.cost(in, out);
    std::string operands;
    for (std::size_t i = 0; i < std::min<std::size_t>(in.size(), 4); ++i)
      operands += (i > 0 ? ", " : "") + in[i].to_string();
    if (in.size() > 4) operands += ", ..";
    costs[fmt::format("{:<24}\t{:>2}\t{:<75}", T::name, number++, operands)] =
        fmt::format("{:>9}\t{:>9}\t{:>9}\t{:>9}\t{:>9}", cost.flops, cost.macs, cost.causal_flops,
                    cost.bytes_read, cost.bytes_written);
  }
}

template <class... T>
Costs costs_of(std::type_identity<std::variant<T...>>) {
  Costs costs;
  (add_costs<T>(costs), ...);
  return costs;
}

Costs known_costs() {
  std::ifstream file(path);
  Costs costs;
  std::string line;
  std::getline(file, line);  // headings
  while (std::getline(file, line)) {
    std::size_t tab = 0;
    for (int column = 0; column < 3; ++column) tab = line.find('\t', tab) + 1;
    costs[line.substr(0, tab - 1)] = line.substr(tab);
  }
  return costs;
}

void write_costs(const Costs& costs) {
  std::ofstream file(path);
  file << fmt::format("{:<24}\t{:>2}\t{:<75}\t{:>9}\t{:>9}\t{:>9}\t{:>9}\t{:>9}\n", "operator", "#",
                      "operands", "flops", "macs", "causal", "read", "written");
  for (const auto& [sample, cost] : costs) file << sample << '\t' << cost << '\n';
}

TEST(Costs, AreThoseOfTheTable) {
  const Costs costs = costs_of(std::type_identity<OpVariant>());
  if (std::getenv("RIDGE_UPDATE_COSTS")) write_costs(costs);
  const Costs known = known_costs();
  for (const auto& [sample, cost] : costs) {
    const auto row = known.find(sample);
    if (row == known.end())
      ADD_FAILURE() << sample << ": not in the table";
    else
      EXPECT_EQ(cost, row->second) << sample << ": flops, macs, causal, read, written";
  }
  EXPECT_EQ(costs.size(), known.size());
  if (HasFailure())
    FAIL() << "If that is meant: RIDGE_UPDATE_COSTS=1 ridge_kernel_tests --gtest_filter=Costs.* "
              "writes tests/ops/costs.tsv anew; count by hand what it changes.";
}

}  // namespace
}  // namespace ridge
