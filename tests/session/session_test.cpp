#include "ridge/session/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/exercise/devices.h"
#include "tests/base/temporary_directory.h"
#include "tests/run/failing_devices.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

RunOptions small_options() {
  RunOptions o = small_llama();
  o.num_steps = 8;
  o.learning_rate = 1e-3;
  o.resolve();
  return o;
}

// A directory of this test's own, removed with it.
class SessionTest : public ::testing::Test {
 protected:
  TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path;
};

TEST_F(SessionTest, LearnsWhatRepeats) {
  std::ofstream(dir_ / "text") << std::string([] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the same words again and again. ";
    return text;
  }());
  RunOptions o = small_options();
  o.vocab_size = 0;
  o.data = (dir_ / "text").string();
  o.learning_rate = 3e-3;
  o.resolve();
  CpuDevice device(2);
  Session session(o, device);
  const double first = session.step().loss;
  EXPECT_NEAR(first, std::log(256.0), 0.1);
  double last = 0;
  for (int i = 0; i < 60; ++i) last = session.step().loss;
  EXPECT_LT(last, 1.5);
  EXPECT_LT(session.evaluate(4).loss, 1.5);
}

// No step after the third captures anything: averages would have its time.
TEST_F(SessionTest, CapturesWhileItWarmsUp) {
  struct Case {
    std::int64_t warmup_steps;  // 3: phases are timed apart; 1: they are not
    std::int64_t kv_heads, vocabulary, accumulation;
    const char* dtype;
  };
  for (const Case& c : {Case{3, 1, 32, 1, "fp32"}, Case{1, 1, 32, 1, "fp32"},
                        Case{3, 2, 61, 1, "bf16"}, Case{3, 2, 77, 3, "fp32"}}) {
    RunOptions o = small_options();
    o.version = "v4";
    o.warmup_steps = c.warmup_steps;
    o.n_heads = 2;
    o.n_kv_heads = c.kv_heads;
    o.vocab_size = c.vocabulary;
    o.gradient_accumulation_steps = c.accumulation;
    o.dtype = c.dtype;
    o.resolve();
    CpuDevice cpu(2);
    testing::LossyDevice device(cpu);
    Session session(o, device);
    for (int i = 0; i < 3; ++i) session.step();
    const std::size_t captures = device.captures();
    EXPECT_GE(captures, 2U);
    for (int i = 0; i < 5; ++i) session.step();
    EXPECT_EQ(device.captures(), captures) << c.warmup_steps << " steps warm up";
  }
}

TEST_F(SessionTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const char* dtype : {"fp32", "bf16"}) {
    RunOptions o = small_options();
    o.dtype = dtype;
    o.max_grad_norm = 0.5;
    std::vector<std::string> checkpoints;
    std::vector<std::vector<double>> losses;
    for (const int threads : {1, 2, 4}) {
      o.threads = threads;
      o.output_dir = fmt::format("elsewhere-{}", threads);
      CpuDevice device(threads);
      Session session(o, device);
      losses.push_back(losses_of(session, 4));
      session.save(dir_ / "c");
      checkpoints.push_back(content(dir_ / "c"));
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(losses[0], losses[2]);
    EXPECT_TRUE(checkpoints[0] == checkpoints[1] && checkpoints[0] == checkpoints[2]) << dtype;
  }
}

TEST_F(SessionTest, ResumingContinuesBitForBit) {
  RunOptions o = small_options();
  o.lr_schedule = "cosine";
  o.lr_warmup_steps = 2;
  o.gradient_accumulation_steps = 2;
  o.max_grad_norm = 0.1;
  CpuDevice device(2);
  Session undisturbed(o, device);
  const std::vector<double> all = losses_of(undisturbed, 8);
  undisturbed.save(dir_ / "all");

  Session first(o, device);
  losses_of(first, 3);
  first.save(dir_ / "part");
  Session second(o, device);
  second.resume(dir_ / "part");
  EXPECT_EQ(second.steps_done(), 3);
  EXPECT_EQ(losses_of(second, 8), std::vector<double>(all.begin() + 3, all.end()));
  second.save(dir_ / "resumed");
  EXPECT_TRUE(content(dir_ / "all") == content(dir_ / "resumed"));
}

TEST_F(SessionTest, EvaluationDisturbsNothing) {
  CpuDevice device(2);
  Session plain(small_options(), device), evaluated(small_options(), device);
  const double before = evaluated.evaluate(3).loss;
  EXPECT_EQ(before, evaluated.evaluate(3).loss);
  evaluated.step();
  evaluated.evaluate(2);
  evaluated.step();
  plain.step();
  plain.step();
  EXPECT_EQ(plain.step().loss, evaluated.step().loss);
}

// Two batches of 3 accumulated are one batch of 6: the same gradient to rounding.
TEST_F(SessionTest, AccumulatedBatchesAreOneLargerBatch) {
  RunOptions two = small_options(), one = small_options();
  two.gradient_accumulation_steps = 2;
  one.batch_size = 6;
  CpuDevice device(2);
  Session a(two, device), b(one, device);
  for (int i = 0; i < 4; ++i) {
    const StepReport x = a.step(), y = b.step();
    EXPECT_NEAR(x.loss, y.loss, 2e-4) << "step " << i;
  }
}

TEST_F(SessionTest, RefusesACheckpointOfAnotherRunAndStaysAsItWas) {
  CpuDevice device(1);
  Session session(small_options(), device);
  session.step();
  session.save(dir_ / "c");
  auto refusal = [&](auto change) -> std::string {
    RunOptions o = small_options();
    change(o);
    o.resolve();
    Session other(o, device);
    try {
      other.resume(dir_ / "c");
    } catch (const Error& error) {
      EXPECT_EQ(other.steps_done(), 0);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](RunOptions&) {}), "");
  EXPECT_NE(refusal([](RunOptions& o) {
              o.hidden_dim = 64, o.intermediate_dim = 0;
            }).find("hidden-dim is 32, not 64"),
            std::string::npos);
  EXPECT_NE(refusal([](RunOptions& o) { o.seed = 7; }).find("seed 42, not 7"), std::string::npos);
  EXPECT_NE(refusal([](RunOptions& o) { o.batch_size = 4; }).find("batch-size 3, not 4"),
            std::string::npos);
  // What may change: the length of the run, the learning rate.
  EXPECT_EQ(refusal([](RunOptions& o) { o.num_steps = 100, o.learning_rate = 1e-4; }), "");
}

TEST_F(SessionTest, RefusesAForeignFile) {
  CpuDevice device(1);
  Session session(small_options(), device);
  std::ofstream(dir_ / "text") << "no checkpoint at all, just some text";
  EXPECT_THROW(session.resume(dir_ / "text"), FormatError);
  EXPECT_THROW(session.resume(dir_ / "missing"), IoError);
}

// Counts the bytes that come from the host.
class CountingUploads final : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  void upload(void* device, const void* host, std::size_t bytes) override {
    uploaded += bytes;
    WrappedDevice::upload(device, host, bytes);
  }
  std::size_t uploaded = 0;
};

TEST(SessionFeeds, DataThatNeverChangeOnce) {
  const auto uploaded_by_the_second_step = [](const RunOptions& options, bool changes) {
    CpuDevice cpu(1);
    CountingUploads device(cpu);
    Session session(options, device);
    EXPECT_NE(session.data().always_same(), changes);
    session.step();
    device.uploaded = 0;
    session.step();
    return device.uploaded;
  };
  constexpr std::size_t tokens_and_targets = 2 * 3 * 24 * sizeof(std::int32_t);
  EXPECT_GE(uploaded_by_the_second_step(small_options(), true), tokens_and_targets);
  for (const Use use : {Use::inference, Use::training}) {
    const RunOptions images = network_options("squeezenet1_1", use, "none", "fp32", 32);
    EXPECT_LT(uploaded_by_the_second_step(images, false), 64u)
        << "no more than the step's number and learning rate";
  }
}

TEST(LearningRate, WarmsUpAndFallsAlongHalfACosine) {
  RunOptions o;
  o.learning_rate = 1.0;
  o.min_learning_rate = 0.2;
  o.num_steps = 110;
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 110), 1.0);
  o.lr_warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 60), 1.0);
  o.lr_schedule = "cosine";
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 60), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 110), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 1000), 0.2);
}

}  // namespace
}  // namespace ridge
