// All versions run the same training: the same bits from run to run, checkpoints that any of them
// goes on with, the same steps to rounding.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "ridge/base/safetensors.h"
#include "ridge/cpu/device.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/evaluation.h"
#include "ridge/session/hf.h"
#include "ridge/session/session.h"
#include "tests/base/temporary_cache.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr const char* names[] = {"v1", "v2", "v3", "v4"};
constexpr const char* dtypes[] = {"fp32", "bf16"};

RunOptions small_options(const char* version = "v1", const char* dtype = "fp32") {
  RunOptions o = small_llama({.intermediate_dim = 40, .seq_len = 37});
  o.num_steps = 12;
  o.learning_rate = 1e-3;
  o.max_grad_norm = 0.5;
  o.version = version;
  o.dtype = dtype;
  o.resolve();
  return o;
}

class VersionRuns : public ::testing::Test {
 protected:
  // The losses of some steps, whose checkpoint is at `path`.
  std::vector<double> run(const RunOptions& options, int threads = 2, int steps = 3) {
    CpuDevice device(threads);
    Session session(options, device);
    const std::vector<double> losses = losses_of(session, steps);
    session.save(path);
    return losses;
  }

  TemporaryCache cache_;
  TemporaryDirectory directory_;
  fs::path path = directory_.path / "c";
};

TEST_F(VersionRuns, AnyNumberOfThreadsGivesTheSameBits) {
  for (const char* version : names)
    for (const char* dtype : dtypes) {
      SCOPED_TRACE(fmt::format("{} {}", version, dtype));
      const RunOptions options = small_options(version, dtype);
      const std::vector<double> losses = run(options, 4);
      const std::string checkpoint = content(path);
      ASSERT_FALSE(checkpoint.empty());
      for (const int threads : {1, 2, 3, 4}) {
        EXPECT_EQ(run(options, threads), losses) << threads << " threads";
        EXPECT_TRUE(content(path) == checkpoint) << threads << " threads";
      }
    }
}

// Where the libraries are as fast as each other, only luck would show that they were chosen anew.
TEST_F(VersionRuns, ChooseALibraryOnceForAllNumbersOfThreads) {
  const auto choices = [&] {
    const auto cache = nlohmann::json::parse(content(cache_.path() / "ridge/tuning.json"));
    EXPECT_EQ(cache["choices"].size(), 1u) << "one processor";
    std::map<std::string, int> libraries;
    for (const auto& [key, choice] : cache["choices"].front().items())
      if (key.find("oneDNN") != std::string::npos) libraries[key] = choice["candidate"];
    return libraries;
  };
  run(small_options("v4"), 4, 1);
  const auto first = choices();
  EXPECT_GT(first.size(), 5u);
  run(small_options("v4"), 1, 1);
  EXPECT_EQ(choices(), first);
}

TEST_F(VersionRuns, PlannedOrNotGivesTheSameBits) {
  for (const char* version : names)
    for (const char* recompute : {"none", "block"})
      for (const char* dtype : dtypes) {
        SCOPED_TRACE(fmt::format("{} {} {}", version, dtype, recompute));
        RunOptions options = small_options(version, dtype);
        options.recompute = recompute;
        options.gradient_accumulation_steps = 2;
        options.enable_pass = "planned-memory";
        const std::vector<double> losses = run(options);
        const Tensors tensors = tensors_in(path);
        options.enable_pass = "";
        options.disable_pass = "planned-memory";
        EXPECT_EQ(run(options), losses);
        EXPECT_TRUE(tensors_in(path) == tensors);
      }
}

// What is computed again is the same again, so that training does not see it.
TEST_F(VersionRuns, RecomputationGivesTheSameBits) {
  for (const char* version : names)
    for (const char* dtype : dtypes) {
      RunOptions options = small_options(version, dtype);
      const std::vector<double> losses = run(options);
      const Tensors tensors = tensors_in(path);
      for (const char* recompute : {"attention", "block"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", version, dtype, recompute));
        options.recompute = recompute;
        EXPECT_EQ(run(options), losses);
        EXPECT_TRUE(tensors_in(path) == tensors);
      }
    }
}

TEST_F(VersionRuns, ACheckpointGoesThroughEveryVersionUnchanged) {
  CpuDevice device(2);
  for (const char* dtype : dtypes)
    for (const char* writer : names) {
      run(small_options(writer, dtype));
      const Tensors written = tensors_in(path);
      ASSERT_EQ(written.size(), 3u * 21u);  // parameters and two moments of each
      for (const char* reader : names) {
        SCOPED_TRACE(fmt::format("written by {}, read by {}, {}", writer, reader, dtype));
        Session session(small_options(reader, dtype), device);
        session.resume(path);
        EXPECT_EQ(session.steps_done(), 3);
        session.save(directory_.path / "again");
        EXPECT_TRUE(tensors_in(directory_.path / "again") == written);
      }
    }
}

// How many weights a session keeps rounded to bf16 as well, each of which has to be what it rounds.
int rounded_weights(Session& session) {
  Graph& graph = session.graph();
  int count = 0;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueId original = graph.info(id).copy_of;
    if (original == no_value) continue;
    ++count;
    std::vector<float> wanted = session.executor().read_floats(graph.value(original));
    const bool split = graph.value(original).dtype() == DType::split_f32;
    for (float& x : wanted) {
      BFloat16 rounded(x);
      if (split) rounded.bits = SplitFloat(x).upper;
      x = static_cast<float>(rounded);
    }
    EXPECT_EQ(session.executor().read_floats(graph.value(id)), wanted) << graph.info(id).name;
  }
  return count;
}

TEST_F(VersionRuns, KeepRoundedWeightsThatAreTheirWeights) {
  CpuDevice device(2);
  for (const char* version : names)
    for (const bool tied : {false, true})
      for (const int accumulation : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} {}", version, tied, accumulation));
        RunOptions options = small_options(version, "bf16");
        options.tie_embeddings = tied;
        options.gradient_accumulation_steps = accumulation;
        // Queries, keys and values, output, gate and up, down of each layer, and of the model.
        const int expected = version == names[0] ? 0 : 2 * 4 + 1;
        Session session(options, device);
        EXPECT_EQ(rounded_weights(session), expected) << "initialized";
        session.step();
        EXPECT_EQ(rounded_weights(session), expected) << "updated";
        session.save(path);
        const double before = session.evaluate(1).loss;
        session.step();
        session.resume(path);
        EXPECT_EQ(rounded_weights(session), expected) << "restored";
        EXPECT_EQ(session.evaluate(1).loss, before);
      }
}

// They begin as the same bits. Steps differ where a weight lies halfway between two numbers of
// bf16, which is one of 65,536: a loss hardly so.
TEST_F(VersionRuns, WeightsInHalvesAreTheWeightsBesideTheirCopies) {
  CpuDevice device(2);
  for (const bool tied : {false, true})
    for (const int accumulation : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} {}", tied, accumulation));
      RunOptions options = small_options("v4", "bf16");
      options.tie_embeddings = tied;
      options.gradient_accumulation_steps = accumulation;
      std::vector<Tensors> written;
      std::vector<std::size_t> bytes;
      std::vector<std::vector<double>> losses;
      for (const char* disabled : {"", "split-weights"}) {
        options.disable_pass = disabled;
        Session session(options, device);
        session.save(path);
        written.push_back(tensors_in(path));
        losses.push_back(losses_of(session, 6));
        std::size_t parameters = 0;
        const Lifetimes life = lifetimes_of(session.graph());
        for (ValueId id = 0; id < session.graph().value_count(); ++id)
          if (session.graph().info(id).role == Role::parameter) parameters += life.bytes[id];
        bytes.push_back(parameters);
      }
      EXPECT_TRUE(written[0] == written[1]);
      for (std::size_t i = 0; i < losses[0].size(); ++i)
        EXPECT_NEAR(losses[0][i], losses[1][i], 1e-4);
      // Of 21 parameters, all but the norms' and the table's, which is the output too if tied.
      const std::size_t layer = 32 * (32 + 32 + 32) + 3 * 32 * 40;
      EXPECT_EQ(bytes[1] - bytes[0], 2 * (2 * layer + (tied ? 0 : 50 * 32)));
    }
}

TEST_F(VersionRuns, ResumingInAnotherVersionContinuesTheCurve) {
  CpuDevice device(2);
  for (const char* dtype : dtypes) {
    const double rounding = dtype == dtypes[0] ? 3e-6 : 3e-3;
    Session undisturbed(small_options("v1", dtype), device);
    const std::vector<double> all = losses_of(undisturbed, 12);
    for (const char* first : names) {
      const std::vector<double> before = run(small_options(first, dtype), 2, 6);
      for (const char* second : names) {
        SCOPED_TRACE(fmt::format("{} to {}, {}", first, second, dtype));
        Session resumed(small_options(second, dtype), device);
        resumed.resume(path);
        const std::vector<double> after = losses_of(resumed, 12);
        for (std::size_t i = 0; i < 6; ++i) {
          EXPECT_NEAR(before[i], all[i], rounding);
          EXPECT_NEAR(after[i], all[i + 6], rounding);
        }
      }
    }
  }
}

// Evaluation and export read what is in the file, whoever wrote it.
TEST_F(VersionRuns, EvaluateAndExportTheSameModel) {
  CpuDevice device(2);
  run(small_options("v4"));
  const fs::path other = directory_.path / "of_v1";
  Session v1(small_options("v1"), device);
  v1.resume(path);
  v1.save(other);
  const auto loss_of = [&](const fs::path& checkpoint, const char* version) {
    RunOptions options = options_of_checkpoint(checkpoint);
    options.version = version;
    // Kernels that are taken by their time sum in one order or another.
    if (options.version == "v4") options.disable_pass = "tuned-products";
    return evaluate(options, device,
                    [&](Graph& graph) { initialize_from_checkpoint(checkpoint, graph); })
        .loss;
  };
  // One version computes the same bits from either file; two versions sum in orders of their own.
  const double of_v1 = v1.evaluate(small_options().eval_batches).loss;
  EXPECT_EQ(loss_of(path, "v1"), of_v1);
  EXPECT_EQ(loss_of(other, "v1"), of_v1);
  const double of_v4 = loss_of(path, "v4");
  EXPECT_EQ(loss_of(other, "v4"), of_v4);
  EXPECT_NEAR(of_v4, of_v1, 1e-6);
  export_hf(path, directory_.path / "a");
  export_hf(other, directory_.path / "b");
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_FALSE(content(directory_.path / "a" / file).empty());
    EXPECT_TRUE(content(directory_.path / "a" / file) == content(directory_.path / "b" / file));
  }
}

// Validation of a version that writes the gradient over the logits, or keeps no scores.
TEST_F(VersionRuns, ValidateAlike) {
  CpuDevice device(2);
  Session v1(small_options("v1"), device);
  const double expected = v1.evaluate(3).loss;
  for (const char* version : names) {
    Session session(small_options(version), device);
    EXPECT_NEAR(session.evaluate(3).loss, expected, 1e-6) << version;
    session.step();
    const double after = session.evaluate(3).loss;
    EXPECT_NE(after, expected);
    EXPECT_EQ(session.evaluate(3).loss, after) << version;
  }
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST_F(VersionRuns, AccumulateAndClipAlike) {
  CpuDevice device(2);
  for (const char* dtype : dtypes) {
    const bool half = dtype == dtypes[1];
    const auto options = [&](const char* version) {
      RunOptions o = small_options(version, dtype);
      o.gradient_accumulation_steps = 2;
      o.max_grad_norm = 0.1;
      return o;
    };
    Session v1(options("v1"), device);
    std::vector<StepReport> expected;
    std::map<std::string, std::vector<float>> sums;  // after the first step
    for (int step = 0; step < 5; ++step) {
      expected.push_back(v1.step());
      EXPECT_GT(*expected.back().grad_norm, 0.1) << "nothing is clipped";
      if (step == 0)
        for (const Value& sum : v1.training().accumulators)
          sums[v1.graph().info(sum.id).name] = v1.executor().read_floats(sum);
    }
    ASSERT_EQ(sums.size(), 21u);
    for (const char* version : names) {
      SCOPED_TRACE(fmt::format("{} {}", version, dtype));
      Session session(options(version), device);
      for (int step = 0; step < 5; ++step) {
        const StepReport report = session.step();
        const auto i = static_cast<std::size_t>(step);
        EXPECT_NEAR(report.loss, expected[i].loss, half ? 2e-3 : 2e-6);
        EXPECT_NEAR(*report.grad_norm / *expected[i].grad_norm, 1, half ? 1e-2 : 1e-5);
        if (step > 0) continue;
        for (const auto& [name, sum] : sums)
          EXPECT_LT(distance(session.executor().read_floats(session.graph().find(name)), sum),
                    half ? 5e-2 : 5e-6)
              << name;
      }
    }
  }
}

}  // namespace
}  // namespace ridge
