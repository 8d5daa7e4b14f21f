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
    testing::expect_rounded_parts({1, 2, 3}, on_one_card(deterministic));
  }
}

TEST_F(CollectivesOnGpu, AreExactByNccl) {
  const std::vector<int> counts = up_to_cards({2, 3, 4, 8});
  if (counts.empty()) GTEST_SKIP() << "one GPU is not enough";
  for (const bool deterministic : {false, true}) {
    testing::expect_sums_and_means(counts, on_own_cards(deterministic));
    testing::expect_sums_of_parts(counts, on_own_cards(deterministic));
    testing::expect_gathered_parts(counts, on_own_cards(deterministic));
    testing::expect_rounded_parts(counts, on_own_cards(deterministic));
  }
}

struct CapturedRun {
  std::vector<Reals> outputs;
  std::size_t copies = 0;  // that the device's own tracing saw in one replay
};

// What a captured step of one operator gives, in memory that ranks allocate jointly, where tensors
// lie `gap` bytes further apart than in an arena. All of five replays give the same.
CapturedRun run_captured(Device& device, const Op& op, const std::vector<TensorType>& in,
                         const std::vector<Reals>& values, std::size_t gap = 0) {
  const std::vector<TensorType> out = infer(op, in);
  PreparedKernel prepared = device.prepare(op, in, out);
  std::size_t bytes = 0;
  const auto place = [&](const TensorType& type) {
    const std::size_t at = bytes;
    bytes += (type.bytes() + 255) / 256 * 256 + gap;
    return at;
  };
  std::vector<std::size_t> in_at, out_at;
  for (const TensorType& type : in) in_at.push_back(place(type));
  for (std::uint32_t o = 0; o < out.size(); ++o) {
    const auto alias = aliased_input(op, o, in);
    out_at.push_back(alias ? in_at[alias->input] : place(out[o]));
  }
  const std::size_t all_bytes = bytes + prepared.workspace;
  auto* const memory = static_cast<std::byte*>(device.allocate_jointly(all_bytes));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const std::size_t at : in_at) inputs.push_back(memory + at);
  for (const std::size_t at : out_at) outputs.push_back(memory + at);
  const auto launch = [&] { prepared.kernel->launch({inputs, outputs, memory + bytes}); };
  launch();  // ways to other cards are opened at first use, which cannot be captured
  device.synchronize();
  const KernelPtr step = device.capture(std::array{DeviceWork{.enqueue = launch}});

  Tracer& tracer = *device.tools().tracer();
  CapturedRun run;
  for (int replay = 0; replay < 5; ++replay) {
    for (std::size_t t = 0; t < in.size(); ++t) {
      const auto encoded = encode(values[t], in[t].dtype);
      device.upload(memory + in_at[t], encoded.data(), encoded.size());
    }
    device.synchronize();
    const bool traced = replay == 4 && device.rank() == 0;
    if (traced) tracer.start();
    device.communicator()->wait_for_all();  // tracing begins when no card of the process works
    step->launch({});
    device.synchronize();
    if (traced)
      for (const Activity& activity : tracer.stop().activities)
        run.copies += activity.kind == Activity::Kind::copy && activity.in_graph ? 1 : 0;
    device.communicator()->wait_for_all();  // before other ranks copy results, which counts too
    std::vector<Reals> results;
    for (std::size_t t = 0; t < out.size(); ++t) {
      std::vector<std::byte> result(out[t].bytes());
      device.download(result.data(), memory + out_at[t], result.size());
      results.push_back(decode(result, out[t].dtype));
    }
    if (replay == 0)
      run.outputs = results;
    else
      EXPECT_EQ(results, run.outputs) << "replay " << replay;
  }
  device.deallocate(memory, all_bytes);
  return run;
}

// Of long messages copies are expected, which rank 0 counts.
void expect_run(const CapturedRun& run, const std::vector<Reals>& outputs, bool by_copies,
                const Device& device) {
  EXPECT_EQ(run.outputs, outputs);
  if (device.rank() == 0) {
    EXPECT_EQ(run.copies > 0, by_copies) << run.copies;
  }
}

class CollectivesByCopies : public testing::GpuTest {
 protected:
  // f(device, tensors) on ranks with a card each.
  template <class F>
  void on_cards(const F& f) {
    const std::vector<int> counts = up_to_cards({2, 4});
    if (counts.empty()) GTEST_SKIP() << "one GPU is not enough";
    if (!gpu::allows_row_copies()) GTEST_SKIP() << "NCCL_CTA_POLICY forbids copies";
    for (const int count : counts)
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        SCOPED_TRACE(fmt::format("{} ranks, {}", count, name_of(dtype)));
        on_ranks(
            count, [&](Device& device) { f(device, dtype); }, on_own_cards());
      }
  }
};

TEST_F(CollectivesByCopies, SumTensorsThatAreLongAndLieInOne) {
  on_cards([](Device& device, DType dtype) {
    const AllReduce op{.ranks = device.ranks()};
    const auto expect = [&](const std::vector<TensorType>& types, std::size_t gap, bool by_copies) {
      std::vector<Reals> sums;
      for (std::size_t t = 0; t < types.size(); ++t)
        sums.push_back(part_of_rank(
            types[t], 0, 1, [&](std::int64_t i) { return sum_over(device.ranks(), false, t, i); }));
      expect_run(run_captured(device, op, types, operands(device.rank(), types), gap), sums,
                 by_copies, device);
    };
    const std::vector<TensorType> types{{dtype, {1031, 1021}}, {dtype, {3}}, {dtype, {2'000'000}}};
    expect(types, 0, true);
    expect(types, 4096, false);
    expect({{dtype, {4096}}}, 0, false);
  });
}

TEST_F(CollectivesByCopies, SumPartsThatAreLong) {
  on_cards([](Device& device, DType dtype) {
    const auto expect = [&](const std::vector<TensorType>& types, bool by_copies) {
      const ReduceScatter op{.ranks = device.ranks(), .rank = device.rank()};
      std::vector<Reals> sums;
      for (std::size_t t = 0; t < types.size(); ++t)
        sums.push_back(part_of_rank(types[t], device.rank(), device.ranks(), [&](std::int64_t i) {
          return sum_over(device.ranks(), false, t, i);
        }));
      expect_run(run_captured(device, op, types, operands(device.rank(), types)), sums, by_copies,
                 device);
    };
    // A short one goes by kernels, beside long ones too.
    expect({{dtype, {2048, 1024}}, {dtype, {97}}, {dtype, {1024, 3072}}}, true);
    // Those that are short or have no equal parts are packed together if there is enough.
    expect({{dtype, {2'097'253}}, {dtype, {4096}}, {dtype, {2048, 1024}}}, true);
    // The first rank's part is so much longer that what follows it lies elsewhere on that rank.
    expect({{dtype, {2'097'153}}, {dtype, {4096}}, {dtype, {2048, 1024}}}, false);
    expect({{dtype, {4096}}, {dtype, {97}}}, false);
  });
}

TEST_F(CollectivesByCopies, GatherPartsThatAreLong) {
  on_cards([](Device& device, DType dtype) {
    const auto expect = [&](const std::vector<TensorType>& types, bool by_copies) {
      AllGather op{.ranks = device.ranks(), .rank = device.rank()};
      std::vector<TensorType> in;
      std::vector<Reals> values, wholes;
      for (std::size_t t = 0; t < types.size(); ++t) {
        const auto element = [&](std::int64_t i) { return testing::operand(0, t, i); };
        values.push_back(part_of_rank(types[t], device.rank(), device.ranks(), element));
        in.push_back({types[t].dtype, {std::ssize(values.back())}});
        wholes.push_back(part_of_rank(types[t], 0, 1, element));
        op.shapes.push_back(types[t].shape);
      }
      expect_run(run_captured(device, op, in, values), wholes, by_copies, device);
    };
    expect({{dtype, {2048, 1024}}, {dtype, {97}}, {dtype, {1024, 3072}}}, true);
    expect({{dtype, {2'097'253}}, {dtype, {4096}}, {dtype, {2048, 1024}}}, true);
    expect({{dtype, {4096}}, {dtype, {97}}}, false);
  });
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
