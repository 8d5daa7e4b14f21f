// That a run whose tensors come and go is refused beforehand where they would not fit.

#include "ridge/run/allocation_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/cpu/device.h"
#include "ridge/plan/memory.h"
#include "tests/passes/built_run.h"
#include "tests/run/failing_devices.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

// A model whose activations have many sizes.
RunOptions some_llama() {
  RunOptions o = small_llama({.vocab_size = 700,
                              .hidden_dim = 192,
                              .n_layers = 3,
                              .intermediate_dim = 800,
                              .batch_size = 4,
                              .seq_len = 160});
  o.threads = 1;
  o.resolve();
  return o;
}

// Whether a session is refused on a device whose memory is the peak of its tensors and so many
// sixteenths of that. If it is not, its steps have to find the memory that they need.
bool is_refused(int sixteenths) {
  CpuDevice cpu(1);
  const RunOptions options = some_llama();
  const std::size_t peak = Session(options, cpu).executor().peak_bytes();
  testing::SmallDevice device(cpu, peak + peak / 16 * static_cast<std::size_t>(sixteenths), 0);
  std::optional<Session> session;
  try {
    session.emplace(options, device);
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("planned-memory"));
    return true;
  }
  EXPECT_NO_THROW(losses_of(*session, 4)) << sixteenths << " sixteenths";
  return false;
}

TEST(AllocationTrial, RefusesWhatWouldNotFitAndNothingElse) {
  int first = 0;
  while (first < 16 && is_refused(first)) ++first;
  EXPECT_GT(first, 0) << "tensors that lie without gaps show nothing";
  EXPECT_LT(first, 8) << "so much is hardly lost";
  for (int more = first; more < 16; ++more) EXPECT_FALSE(is_refused(more)) << more;
}

// Three tensors of 1 MiB, of which the first two fill a segment.
TEST(AllocationTrial, CountsWhatTheDeviceGivesAwayAtOnce) {
  constexpr std::size_t megabyte = std::size_t{1} << 20;
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {1 << 18}});
  graph.keep(scale(scale(x, 2.0f), 2.0f), "result");
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<std::size_t> workspace(2, 0);
  const auto fits = [&](std::size_t available, std::size_t granularity) {
    return can_allocate(graph, life, workspace, 0, available, granularity);
  };
  EXPECT_TRUE(fits(3 * megabyte, 1));
  EXPECT_FALSE(fits(3 * megabyte - 1, 1));
  EXPECT_TRUE(fits(4 * megabyte, 2 * megabyte));
  EXPECT_FALSE(fits(4 * megabyte - 1, 2 * megabyte));
}

}  // namespace
}  // namespace ridge
