// What each schedule, and each pass alone, does to the graphs of a table of configurations:
// kernels, bytes, memory. A pass that no longer applies leaves every result as it was; only such
// counts show it. tests/passes/effects.tsv has what they were when somebody last looked at them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ridge/passes/schedules.h"
#include "tests/passes/effects.h"

namespace ridge {
namespace {

using testing::AllConfigurations;
using testing::Configuration;
using testing::Counts;
using testing::EffectRow;
using testing::EffectsFile;

constexpr const char* how_to_update =
    "If that is meant: RIDGE_UPDATE_EFFECTS=1 ridge_library_tests --gtest_filter='*Effects*' "
    "writes what "
    "it "
    "is now to tests/passes/effects.tsv; read the difference, and say in the last column why a "
    "pass "
    "has no effect where it says '?'.";

class Effects : public ::testing::TestWithParam<Configuration> {};

TEST_P(Effects, AreThoseOfTheTable) {
  const std::vector<EffectRow> found = testing::effects_of(GetParam());
  EffectsFile file;
  if (std::getenv("RIDGE_UPDATE_EFFECTS")) file.replace(GetParam().name, found);
  const std::vector<std::string> differences =
      testing::differences(file.rows_of(GetParam().name), found);
  for (const std::string& difference : differences) ADD_FAILURE() << difference;
  if (!differences.empty()) FAIL() << how_to_update;
}

INSTANTIATE_TEST_SUITE_P(Configurations, Effects, ::testing::ValuesIn(AllConfigurations()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == ':'; }, '_');
                           return name;
                         });

// A row of the table belongs to a configuration, and says why if its pass finds nothing.
TEST(EffectsTable, SaysWhyAPassHasNoEffect) {
  std::set<std::string> known;
  for (const Configuration& configuration : AllConfigurations()) known.insert(configuration.name);
  const EffectsFile file;
  for (const EffectRow& row : file.rows()) {
    EXPECT_TRUE(known.contains(row.configuration)) << row.configuration;
    if (!row.is_of_pass()) continue;
    EXPECT_EQ(row.counts == Counts{}, !row.why.empty()) << row.name();
    EXPECT_NE(row.why, "?") << row.name() << ": say in the last column why it has no effect";
  }
}

// A rewrite that no configuration here has work for could be lost without a word.
TEST(EffectsTable, HasWorkForEachPass) {
  std::set<std::string> effective;
  const EffectsFile file;
  for (const EffectRow& row : file.rows())
    if (row.is_of_pass() && row.counts != Counts{}) effective.insert(row.pass);
  for (const Pass& pass : passes())
    EXPECT_EQ(effective.contains(std::string(pass.name)), pass.apply != nullptr) << pass.name;
}

// `block:N` recomputes N blocks: each adds as many kernels as the one before.
TEST(EffectsTable, RecomputesAsManyBlocksAsAsked) {
  const auto kernels = [](std::string recompute) {
    Configuration configuration = testing::configuration_named("llama");
    configuration.options.n_layers = 5;
    configuration.options.recompute = std::move(recompute);
    const RunOptions& options = configuration.options;
    return testing::counts_of(options, options.schedule(testing::a_gpu())).kernels;
  };
  for (const std::string part : {"attention", "block"}) {
    const std::int64_t none = kernels("none"), one = kernels(part + ":1") - none;
    EXPECT_GT(one, 0);
    for (const int blocks : {2, 3, 4, 5})
      EXPECT_EQ(kernels(fmt::format("{}:{}", part, blocks)) - none, blocks * one) << part;
    EXPECT_EQ(kernels(part) - none, 5 * one);
    EXPECT_EQ(kernels(part + ":6") - none, 5 * one);
  }
}

// Heads that a GPU's attention kernels cannot hold keep their scores stored there, and are not
// refused. They show in the peak, which grows with the square of the sequence.
TEST(WideHeads, StoreTheirScoresOnAGpuAlone) {
  Configuration configuration = testing::configuration_named("llama-equal-heads");
  RunOptions& options = configuration.options;
  options.n_heads = options.n_kv_heads = 2;
  options.seq_len = 512;
  const std::int64_t scores =  // of a layer
      4 * options.batch_size * options.n_heads * options.seq_len * options.seq_len;
  const auto peak = [&](std::int64_t columns, const char* version, const Target& target) {
    options.hidden_dim = options.n_heads * columns;
    options.version = version;
    return testing::counts_of(options, options.schedule(target)).peak;
  };
  for (const char* version : {"v3", "v4"}) {
    EXPECT_LT(peak(256, version, testing::a_gpu()), peak(256, "v1", testing::a_gpu()) - scores);
    EXPECT_LT(peak(258, version, testing::a_cpu()), peak(258, version, testing::a_gpu()) - scores);
  }
}

}  // namespace
}  // namespace ridge
