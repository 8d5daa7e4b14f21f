#include "ridge/dist/rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ridge/base/error.h"

namespace ridge {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

std::optional<Rank> rank_in(const Variables& variables) {
  return rank_from([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Rank, IsWhatEachLauncherSays) {
  EXPECT_EQ(rank_in({}), std::nullopt);
  EXPECT_EQ(rank_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}),
            (Rank{1, 2, 2, 1, "torchrun"}));
  EXPECT_EQ(rank_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "64"}}),
            (Rank{0, 64, 64, 0, "Open MPI"}));
  EXPECT_EQ(rank_in({{"PMI_RANK", "7"}, {"PMI_SIZE", "8"}}), (Rank{7, 8, 8, 7, "mpiexec"}));
  EXPECT_EQ(rank_in({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}),
            (Rank{3, 4, 4, 3, "srun"}));
}

TEST(Rank, KnowsHowManyAreOnItsMachine) {
  EXPECT_EQ(rank_in({{"RANK", "9"}, {"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}})->on_host, 8);
  EXPECT_EQ(rank_in({{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
                ->on_host,
            2);
  const Rank second_host =
      *rank_in({{"RANK", "9"}, {"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}});
  EXPECT_EQ(second_host.index_on_host, 1);
  EXPECT_EQ(rank_in({{"SLURM_PROCID", "5"},
                     {"SLURM_STEP_NUM_TASKS", "8"},
                     {"SLURM_NTASKS_PER_NODE", "4"},
                     {"SLURM_LOCALID", "2"}})
                ->index_on_host,
            2);
  EXPECT_THROW(rank_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}),
               UsageError);
}

TEST(Rank, IsThatOfTheInnermostLauncher) {
  Variables variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  variables.insert({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(rank_in(variables), (Rank{1, 3, 3, 1, "mpiexec"}));
  variables.insert({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(rank_in(variables), (Rank{2, 4, 4, 2, "Open MPI"}));
  variables.insert({{"RANK", "5"}, {"WORLD_SIZE", "16"}});
  EXPECT_EQ(rank_in(variables), (Rank{5, 16, 16, 5, "torchrun"}));
}

// A batch script of Slurm is one process, however many tasks its job may start.
TEST(Rank, IsNoneWhereALauncherOnlyPreparedOne) {
  EXPECT_EQ(rank_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), std::nullopt);
  EXPECT_EQ(rank_in({{"RANK", "0"}}), std::nullopt);
  EXPECT_EQ(rank_in({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}}), std::nullopt);
}

TEST(Rank, MustMakeSense) {
  for (const char* const index : {"2", "-1", "", "1x", "0x1", " 1", "1.0", "99999999999"})
    EXPECT_THROW(rank_in({{"RANK", index}, {"WORLD_SIZE", "2"}}), UsageError) << index;
  for (const char* const count : {"0", "-2", "", "two", "1000001"})
    EXPECT_THROW(rank_in({{"RANK", "0"}, {"WORLD_SIZE", count}}), UsageError) << count;
  try {
    rank_in({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "the environment variable PMI_RANK is '4': it must be a number from 0 to 3");
  }
}

}  // namespace
}  // namespace ridge
