// Several ranks on GPUs: each on a card of its own where there are enough, so that NCCL connects
// them, and all on one card through the host.

#include "ridge/gpu/device.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/collectives.h"
#include "tests/session/courses.h"

namespace ridge {
namespace {

OpenRank on_one_card(bool deterministic = false) {
  return [=](int) { return open_gpu({.index = 0, .deterministic = deterministic}); };
}

OpenRank on_own_cards(bool deterministic = false) {
  return [=](int rank) { return open_gpu({.index = rank, .deterministic = deterministic}); };
}

// Counts of ranks that can have a card each.
std::vector<int> up_to_cards(const std::vector<int>& counts) {
  std::vector<int> possible;
  for (const int count : counts)
    if (count <= gpu_count()) possible.push_back(count);
  return possible;
}

using CollectivesOnGpu = testing::GpuTest;

TEST_F(CollectivesOnGpu, AreExactThroughTheHost) {
  for (const bool deterministic : {false, true}) {
    testing::expect_sums_and_means({2, 3, 4, 8}, on_one_card(deterministic));
    testing::expect_sums_of_parts({1, 2, 3, 4, 8}, on_one_card(deterministic));
    testing::expect_gathered_parts({1, 2, 3, 4, 8}, on_one_card(deterministic));
  }
}

TEST_F(CollectivesOnGpu, AreExactByNccl) {
  const std::vector<int> counts = up_to_cards({2, 3, 4, 8});
  if (counts.empty()) GTEST_SKIP() << "one GPU is not enough";
  for (const bool deterministic : {false, true}) {
    testing::expect_sums_and_means(counts, on_own_cards(deterministic));
    testing::expect_sums_of_parts(counts, on_own_cards(deterministic));
    testing::expect_gathered_parts(counts, on_own_cards(deterministic));
  }
}

// f(counts, how ranks open their devices), on one card and on several.
template <class F>
void each_way(const std::vector<int>& counts, bool deterministic, const F& f) {
  f(counts, on_one_card(deterministic));
  if (const auto own = up_to_cards(counts); !own.empty()) {
    SCOPED_TRACE("by NCCL");
    f(own, on_own_cards(deterministic));
  }
}

class RanksOnGpus : public testing::GpuTest, public ::testing::WithParamInterface<std::string> {
 protected:
  TemporaryCache cache_;
};

TEST_P(RanksOnGpus, TrainALlamaAsOneDoes) {
  each_way({2, 4}, false, [](const std::vector<int>& counts, const OpenRank& open) {
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(zero);
      RunOptions o = llama(GetParam());
      o.zero = zero;
      o.max_grad_norm = 0.1;
      expect_as_one(o, counts, {2e-5, 2e-4}, 5, open);
      o.dtype = "bf16";
      o.gradient_accumulation_steps = 2;
      o.tie_embeddings = true;
      expect_as_one(o, counts, {3e-3, 3e-2}, 5, open);
    }
  });
}

// Of products whose kernels are not chosen by time.
TEST_P(RanksOnGpus, GiveTheSameBitsIfDeterministic) {
  each_way({2, 4}, true, [](const std::vector<int>& counts, const OpenRank& open) {
    for (const char* dtype : {"fp32", "bf16"}) {
      RunOptions o = deterministic_llama(GetParam());
      o.dtype = dtype;
      if (o.version == "v4") o.disable_pass = "tuned-products";
      expect_same_bits(o, counts, 5, open);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(InEachVersion, RanksOnGpus, ::testing::Values("v1", "v2", "v3", "v4"),
                         [](const auto& named) { return named.param; });

using RanksOfNetworksOnGpus = testing::GpuTest;

TEST_F(RanksOfNetworksOnGpus, WithSynchronizedBatchNormsTrainAsOneDoes) {
  const TemporaryCache cache;
  each_way({2, 4}, false, [](const std::vector<int>& counts, const OpenRank& open) {
    for (const char* mode : {"none", "max-autotune"}) {
      const RunOptions o = synchronized_resnet18(mode);
      SCOPED_TRACE(mode);
      expect_as_one(o, counts, {1e-4, 1e-2}, 3, open);
    }
  });
}

}  // namespace
}  // namespace ridge
