// A process that a launcher started as one of several.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

// Variables of Open MPI's mpirun, for as long as it lives.
struct Started {
  Started(const char* index, const char* count) {
    ::setenv("OMPI_COMM_WORLD_RANK", index, 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", count, 1);
  }
  ~Started() {
    ::unsetenv("OMPI_COMM_WORLD_RANK");
    ::unsetenv("OMPI_COMM_WORLD_SIZE");
  }
};

const Words train{"ridge",     "train", "--hidden-dim", "32", "--n-layers",  "1",
                  "--n-heads", "2",     "--n-kv-heads", "2",  "--num-steps", "2",
                  "--seq-len", "8",     "--batch-size", "1"};
const Words bench{"ridge", "bench", "--network", "squeezenet1_0", "--iterations", "1"};

TEST(Ranks, OfSeveralRunNothingAndLeaveNothing) {
  const Started started("1", "2");
  for (const Words& command : {train, bench}) {
    const Sandbox sandbox;
    EXPECT_THAT(complaint_of(sandbox.run(command), 2),
                HasSubstr("Open MPI started this as process 1 of 2"));
    EXPECT_FALSE(sandbox.has("output"));
  }
}

TEST(Ranks, OfOneRun) {
  const Started started("0", "1");
  const Sandbox sandbox;
  EXPECT_THAT(output_of(sandbox.run(train)), HasSubstr("Step 2/2"));
}

TEST(Ranks, OfSeveralTellOfThemselves) {
  const Started started("1", "2");
  const Sandbox sandbox;
  EXPECT_THAT(output_of(sandbox.run({"ridge", "train", "--help"})), HasSubstr("--num-steps"));
  EXPECT_THAT(output_of(sandbox.run({"ridge", "passes"})), HasSubstr("flash-attention"));
}

TEST(Ranks, ThatMakeNoSenseAreNamed) {
  const Started started("2", "2");
  const Sandbox sandbox;
  EXPECT_THAT(complaint_of(sandbox.run(train), 2),
              HasSubstr("OMPI_COMM_WORLD_RANK is '2': it must be a number from 0 to 1"));
}

}  // namespace
}  // namespace ridge
