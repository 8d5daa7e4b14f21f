// Sessions of several ranks do together what one does alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/safetensors.h"
#include "ridge/cpu/device.h"
#include "ridge/session/session.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_cache.h"
#include "tests/base/temporary_directory.h"
#include "tests/session/courses.h"

namespace ridge {
namespace {

class Ranks : public ::testing::TestWithParam<std::string> {
 protected:
  TemporaryCache cache_;
};

TEST_P(Ranks, TrainALlamaAsOneDoes) {
  expect_as_one(llama(GetParam()), {2, 3, 4, 8}, {2e-6, 2e-5});
}

TEST_P(Ranks, DoSoWithTiedWeightsClippingAndAccumulation) {
  RunOptions o = llama(GetParam());
  o.tie_embeddings = true;
  o.max_grad_norm = 0.1;
  expect_as_one(o, {2, 4}, {2e-6, 2e-5});
  o.gradient_accumulation_steps = 3;
  o.n_kv_heads = 4;
  expect_as_one(o, {2, 3}, {2e-6, 2e-5});
}

TEST_P(Ranks, DoSoInHalfPrecision) {
  RunOptions o = llama(GetParam());
  o.dtype = "bf16";
  expect_as_one(o, {2, 8}, {2e-3, 3e-2});
}

TEST_P(Ranks, DoSoWithRecomputation) {
  RunOptions o = llama(GetParam());
  o.recompute = "block";
  expect_as_one(o, {2}, {2e-6, 2e-5});
}

INSTANTIATE_TEST_SUITE_P(InEachVersion, Ranks, ::testing::Values("v1", "v2", "v3", "v4"),
                         [](const auto& named) { return named.param; });

// What ranks keep a part of changes where things are, and not what they are.
TEST_P(Ranks, DoSoWhateverTheyShareOut) {
  for (const std::int64_t zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    RunOptions o = llama(GetParam());
    o.zero = zero;
    o.max_grad_norm = 0.1;
    expect_as_one(o, {2, 3, 8}, {2e-6, 2e-5});
    o.tie_embeddings = true;
    o.gradient_accumulation_steps = 3;
    o.recompute = "block";
    expect_as_one(o, {2, 4}, {2e-6, 2e-5});
  }
}

TEST_P(Ranks, DoSoIn16BitsWhateverTheyShareOut) {
  for (const char* dtype : {"bf16", "fp16"})
    for (const std::int64_t zero : {1, 2, 3}) {
      SCOPED_TRACE(zero);
      RunOptions o = llama(GetParam());
      o.zero = zero;
      o.dtype = dtype;
      expect_as_one(o, {2, 4}, {2e-3, 3e-2});
    }
}

TEST_P(Ranks, GiveTheSameBitsIfDeterministic) {
  RunOptions o = deterministic_llama(GetParam());
  expect_same_bits(o, {2, 4, 8});
  o.tie_embeddings = true;
  o.gradient_accumulation_steps = 3;
  expect_same_bits(o, {2, 8});
}

TEST_P(Ranks, GiveTheSameBitsIn16BitsIfDeterministic) {
  for (const char* dtype : {"bf16", "fp16"}) {
    RunOptions o = deterministic_llama(GetParam());
    o.dtype = dtype;
    expect_same_bits(o, {2, 8});
  }
}

// Without clipping, which needs a norm that parts add up in another order.
TEST_P(Ranks, GiveTheSameBitsWhateverTheyShareOut) {
  for (const std::int64_t zero : {1, 2, 3}) {
    RunOptions o = deterministic_llama(GetParam());
    o.zero = zero;
    if (zero > 1) o.max_grad_norm = 0;
    SCOPED_TRACE(zero);
    expect_same_bits(o, {2, 4, 8});
  }
}

// Whose sums are those of the whole batch.
TEST_P(Ranks, LearnFromTheWholeBatchIfDeterministic) {
  RunOptions o = llama(GetParam());
  const Course whole = courses(o, 1, 2).front();
  o.deterministic = true;
  o.gradient_accumulation_steps = 1;
  const Course parts = courses(o, 4, 2).front();
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(parts.losses[i], whole.losses[i], 2e-6);
  EXPECT_LT(worst(whole.parameters, parts.parameters), 2e-5);
}

// Which drop values, or whole samples, by their places in the batch.
TEST(RanksOfNetworks, TrainAsOneDoes) {
  const TemporaryCache cache;
  for (const auto& [network, mode] : {std::pair{"alexnet", "none"},
                                      {"squeezenet1_1", "none"},
                                      {"squeezenet1_1", "max-autotune"},
                                      {"swin_t", "none"}}) {
    RunOptions o = network_options(network, Use::training, mode);
    o.batch_size = 4;
    SCOPED_TRACE(network);
    expect_as_one(o, {2}, {1e-5, 1e-3}, 2);
  }
}

TEST(RanksOfNetworks, GiveTheSameBitsOfMicroBatches) {
  const TemporaryCache cache;
  for (const auto& [network, mode] :
       {std::pair{"squeezenet1_1", "none"}, {"swin_t", "max-autotune"}}) {
    RunOptions o = network_options(network, Use::training, mode);
    o.batch_size = 8;
    o.micro_batches = 4;
    SCOPED_TRACE(network);
    expect_same_bits(o, {2, 4}, 2);
  }
}

// With synchronized batch norms, which know what all have.
TEST(RanksOfNetworks, WithSynchronizedBatchNormsTrainAsOneDoes) {
  const TemporaryCache cache;
  for (const char* mode : {"none", "default"}) {
    const RunOptions o = synchronized_resnet18(mode);
    SCOPED_TRACE(mode);
    expect_as_one(o, {2, 4}, {1e-4, 1e-2}, 2);
  }
}

// With batch norm each rank normalizes by its own samples, as PyTorch's do; all stay alike.
TEST(RanksOfNetworks, WithBatchNormStayAlike) {
  RunOptions o = network_options("resnet18", Use::training);
  o.batch_size = 8;
  const std::vector<Course> all = courses(o, 2, 3);
  EXPECT_EQ(all[0].losses, all[1].losses);
  EXPECT_EQ(all[0].parameters, all[1].parameters);
  EXPECT_TRUE(std::isfinite(all[0].losses.back()));
}

TEST(RanksOfSessions, EvaluateWhatOneDoes) {
  const RunOptions o = [] {
    RunOptions options = llama("v1");
    options.resolve();
    return options;
  }();
  CpuDevice alone(1);
  Session one(o, alone);
  const Evaluation expected = one.evaluate(3);
  RunOptions shared = o;
  shared.ranks = 4;
  shared.resolve();
  on_ranks(4, [&](Device& device) {
    Session session(shared, device);
    const Evaluation found = session.evaluate(3);
    EXPECT_NEAR(found.loss, expected.loss, 2e-6);
    EXPECT_EQ(found.samples, expected.samples);
  });
}

// Images of noise, each with a label of three.
void write_images(const std::filesystem::path& file, std::int64_t count) {
  constexpr std::int64_t size = 8;
  std::vector<float> pixels(static_cast<std::size_t>(count * size * size));
  fill_normal(pixels, 1.0f, 5, stream_of("pixels"));
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int32_t>(i * i % 3));
  const NamedType tensors[] = {{"images", {DType::f32, {count, size, size}}},
                               {"labels", {DType::i32, {count}}}};
  write_safetensors(file, tensors, {}, [&](std::size_t i) {
    return i == 0 ? std::as_bytes(std::span(pixels)) : std::as_bytes(std::span(labels));
  });
}

// Loss and accuracy are of all samples, of which the last batch may have a few: some ranks then
// have none.
TEST(RanksOfSessions, EvaluateLabelsAsOneDoes) {
  const TemporaryDirectory directory;
  write_images(directory.path / "images.safetensors", 61);
  RunOptions o = network_options("squeezenet1_1", Use::inference);
  o.data = (directory.path / "images.safetensors").string();
  o.batch_size = 8;
  o.validation_fraction = 0.5;
  std::vector<Evaluation> found;
  for (const int ranks : {1, 2, 4}) {
    o.ranks = ranks;
    o.resolve();
    std::mutex mutex;
    on_ranks(ranks, [&](Device& device) {
      Session session(o, device, {.fixed_input = false});
      const Evaluation evaluation = session.evaluate(0);
      const std::lock_guard lock(mutex);
      found.push_back(evaluation);
    });
  }
  ASSERT_EQ(found.size(), 7u);
  EXPECT_NE(found[0].samples % 8, 0) << "the last batch is to have a part";
  for (const Evaluation& evaluation : found) {
    EXPECT_EQ(evaluation.samples, found[0].samples);
    EXPECT_EQ(evaluation.right, found[0].right);
    EXPECT_NEAR(evaluation.loss, found[0].loss, 1e-6);
  }
}

// A checkpoint is written by all of them and resumed by any number.
TEST(RanksOfSessions, ResumeOnOtherNumbers) {
  const TemporaryDirectory directory;
  const auto file = directory.path / "checkpoint.safetensors";
  RunOptions o = llama("v4");
  o.num_steps = 6;
  const std::vector<double> whole = courses(o, 1, 6).front().losses;
  o.ranks = 4;
  o.resolve();
  on_ranks(4, [&](Device& device) {
    Session session(o, device);
    losses_of(session, 3);
    session.save(file);
    EXPECT_TRUE(std::filesystem::exists(file));
  });
  for (const int ranks : {1, 2, 3}) {
    RunOptions other = o;
    other.ranks = ranks;
    other.resolve();
    on_ranks(ranks, [&](Device& device) {
      Session session(other, device);
      session.resume(file);
      const std::vector<double> losses = losses_of(session, 6);
      for (std::size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], whole[3 + i], 2e-6) << ranks;
    });
  }
}

// To the bit, if they are deterministic.
TEST(RanksOfSessions, ResumeOnOtherNumbersWithTheSameBits) {
  const TemporaryDirectory directory;
  const auto file = directory.path / "checkpoint.safetensors";
  const RunOptions o = deterministic_llama("v4");
  const Course whole = courses(o, 1, 6).front();
  for (const auto& [before, after] : {std::pair{8, 1}, {1, 4}, {2, 8}}) {
    RunOptions first = o, second = o;
    first.ranks = before, second.ranks = after;
    first.resolve(), second.resolve();
    on_ranks(before, [&](Device& device) {
      Session session(first, device);
      losses_of(session, 3);
      session.save(file);
    });
    on_ranks(after, [&](Device& device) {
      Session session(second, device);
      session.resume(file);
      EXPECT_EQ(losses_of(session, 6), std::vector(whole.losses.begin() + 3, whole.losses.end()));
      EXPECT_EQ(read(session, session.training().parameters), whole.parameters)
          << before << " ranks, then " << after;
    });
  }
}

// A checkpoint is the same file, whatever the ranks that wrote it had shared out, and resumed
// likewise.
TEST(RanksOfSessions, WriteTheSameFileWhateverTheyShareOut) {
  const TemporaryDirectory directory;
  RunOptions o = deterministic_llama("v4");
  o.max_grad_norm = 0;
  const auto after = [&](std::int64_t zero, int ranks, const std::filesystem::path& from,
                         int steps) {
    const auto file = directory.path / fmt::format("{}-{}-{}.safetensors", zero, ranks, steps);
    RunOptions options = o;
    options.zero = zero, options.ranks = ranks;
    options.resolve();
    on_ranks(ranks, [&](Device& device) {
      Session session(options, device);
      if (!from.empty()) session.resume(from);
      losses_of(session, steps);
      session.save(file);
    });
    return file;
  };
  const auto alone = after(0, 1, {}, 2);
  const std::string expected = content(alone), at_last = content(after(0, 1, alone, 3));
  for (const std::int64_t zero : {1, 2, 3})
    for (const int ranks : {2, 8}) {
      EXPECT_TRUE(content(after(zero, ranks, {}, 2)) == expected) << zero << ", " << ranks;
      EXPECT_TRUE(content(after(zero, ranks, alone, 3)) == at_last) << zero << ", " << ranks;
    }
}

// The rank that cannot write says so; the others go on.
TEST(RanksOfSessions, SurviveACheckpointThatCannotBeWritten) {
  RunOptions o = llama("v1");
  o.ranks = 2;
  o.zero = 3;
  o.resolve();
  on_ranks(2, [&](Device& device) {
    Session session(o, device);
    const auto save = [&] { session.save("/proc/nowhere/checkpoint.safetensors"); };
    if (device.rank() == 0)
      EXPECT_THROW(save(), IoError);
    else
      EXPECT_NO_THROW(save());
    EXPECT_TRUE(std::isfinite(session.step().loss));
  });
}

TEST(RanksOfSessions, NeedADeviceForEach) {
  RunOptions o = llama("v1");
  o.ranks = 2;
  o.resolve();
  CpuDevice alone(1);
  EXPECT_EQ(
      message_of<UsageError>([&] { Session(o, alone); }),
      "--ranks 2 needs as many processes, and this is one of 1: ridge train, bench and verify "
      "start them");
  o.ranks = 5;
  EXPECT_EQ(message_of<UsageError>([&] { o.resolve(); }),
            "--batch-size 24 does not divide among 5 ranks: use a multiple of 5");
}

}  // namespace
}  // namespace ridge
