// Several ranks on GPUs: each on a card of its own where there are enough, so that NCCL connects
// them, and all on one card through the host.

#include <array>

#include "ridge/gpu/device.h"
#include "ridge/gpu/device/links.h"
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
using testing::decode, testing::encode, testing::operands, testing::part_of_rank, testing::Reals,
    testing::sum_over;

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

// Tensors one after another in memory that ranks allocate jointly, summed by a captured step, which
// replays some times. Copies between cards that the device's own tracing saw in one replay.
std::size_t copies_of_captured_sums(Device& device, const std::vector<TensorType>& types,
                                    bool in_one) {
  const AllReduce op{.ranks = device.ranks()};
  PreparedKernel prepared = device.prepare(op, types, types);
  const std::size_t gap = in_one ? 0 : 4096;
  std::vector<std::size_t> places;
  std::size_t bytes = 0;
  for (const TensorType& type : types) {
    places.push_back(bytes);
    bytes += (type.bytes() + 255) / 256 * 256 + gap;
  }
  auto* const memory = static_cast<std::byte*>(device.allocate_jointly(bytes + prepared.workspace));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const std::size_t place : places)
    in.push_back(memory + place), out.push_back(memory + place);
  const auto launch = [&] { prepared.kernel->launch({in, out, memory + bytes}); };
  const KernelPtr step = device.capture(std::array{DeviceWork{.enqueue = launch}});
  const std::vector<Reals> values = operands(device.rank(), types);
  Tracer& tracer = *device.tools().tracer();
  std::size_t copies = 0;
  for (int replay = 0; replay < 5; ++replay) {
    for (std::size_t t = 0; t < types.size(); ++t) {
      const auto encoded = encode(values[t], types[t].dtype);
      device.upload(memory + places[t], encoded.data(), encoded.size());
    }
    device.synchronize();
    const bool traced = replay == 4 && device.rank() == 0;
    if (traced) tracer.start();
    device.communicator()->wait_for_all();  // tracing begins when no card of the process works
    step->launch({});
    device.synchronize();
    if (traced)
      for (const Activity& activity : tracer.stop().activities)
        copies += activity.kind == Activity::Kind::copy ? 1 : 0;
    for (std::size_t t = 0; t < types.size(); ++t) {
      std::vector<std::byte> sums(types[t].bytes());
      device.download(sums.data(), memory + places[t], sums.size());
      EXPECT_EQ(decode(sums, types[t].dtype),
                part_of_rank(types[t], 0, 1,
                             [&](std::int64_t i) { return sum_over(device.ranks(), false, t, i); }))
          << t << " in replay " << replay;
    }
  }
  device.deallocate(memory, bytes + prepared.workspace);
  return copies;
}

TEST_F(CollectivesOnGpu, GoByCopiesInCapturedStepsWhereTheyAreLongAndInOne) {
  const std::vector<int> counts = up_to_cards({2, 4});
  if (counts.empty()) GTEST_SKIP() << "one GPU is not enough";
  if (!gpu::asks_for_row_copies()) GTEST_SKIP() << "NCCL_CTA_POLICY is not 2";
  for (const int count : counts)
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      const std::vector<TensorType> types{
          {dtype, {1031, 1021}}, {dtype, {3}}, {dtype, {2'000'000}}};
      const auto run = [&](Device& device) {
        const std::size_t by_copies = copies_of_captured_sums(device, types, true);
        const std::size_t apart = copies_of_captured_sums(device, types, false);
        const std::size_t small = copies_of_captured_sums(device, {{dtype, {4096}}}, true);
        EXPECT_EQ(apart, 0u);
        EXPECT_EQ(small, 0u);
        // NCCL has them since 2.28, for cards that reach each other by NVLink.
        EXPECT_TRUE(by_copies > 0 || device.rank() != 0) << "no copies: an older NCCL?";
      };
      on_ranks(count, run, on_own_cards());
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
