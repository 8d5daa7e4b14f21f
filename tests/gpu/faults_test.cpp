// What goes wrong on a GPU, as users meet it: what is said, and what is left. The program `ridge`
// is taken from beside this one. Not for compute-sanitizer: some of it is broken on purpose.

#include "ridge/gpu/device/faults.h"

#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/gpu/device/context.h"
#include "ridge/ops/op.h"
#include "ridge/ops/unary.h"
#include "ridge/run/executor.h"
#include "tests/base/message_of.h"
#include "tests/cli/program.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Values of cudaError_t.
constexpr int out_of_memory = 2, old_driver = 35, no_device = 100, ecc = 214, illegal_address = 700,
              other_driver = 803;

TEST(GpuFaults, SayWhatToDo) {
  const auto said = [](int status) {
    return message_of<DeviceError>([&] { gpu::check(status, "a launch"); });
  };
  EXPECT_THAT(said(ecc), AllOf(StartsWith("the GPU failed in a launch: "),
                               HasSubstr("cudaErrorECCUncorrectable"), HasSubstr("must be reset")));
  EXPECT_THAT(said(illegal_address),
              AllOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("start it again")));
  EXPECT_THAT(said(other_driver), HasSubstr("restart the machine"));
  EXPECT_THAT(message_of<OutOfMemoryError>([&] { gpu::check(out_of_memory, "tables"); }),
              HasSubstr("not enough for tables"));
  EXPECT_NO_THROW(gpu::check(0, "a launch"));
}

TEST(GpuFaults, TellDriversAndCardsThatAreNotThere) {
  const auto said = [](int status, int count, int driver) {
    return message_of<DeviceError>([&] { gpu::check_cards(status, count, driver, 13000); });
  };
  EXPECT_THAT(said(old_driver, 0, 0), HasSubstr("no NVIDIA driver is installed"));
  EXPECT_THAT(said(old_driver, 0, 12040),
              AllOf(HasSubstr("supports CUDA 12.4, but Ridge was built with 13.0"),
                    HasSubstr("update the driver or use --device cpu")));
  EXPECT_THAT(said(no_device, 0, 13000), HasSubstr("the driver shows no GPU"));
  EXPECT_THAT(said(0, 0, 13000), HasSubstr("the driver shows no GPU"));
  EXPECT_THAT(said(other_driver, 0, 13000), HasSubstr("restart the machine"));
  EXPECT_NO_THROW(gpu::check_cards(0, 1, 13000, 13000));
}

const Words train_small{
    "ridge",          "train", "--device",     "cuda", "--version",       "v4",
    "--hidden-dim",   "128",   "--n-layers",   "2",    "--n-heads",       "4",
    "--vocab-size",   "200",   "--seq-len",    "64",   "--num-steps",     "40",
    "--batch-size",   "4",     "--save-every", "8",    "--learning-rate", "1e-3",
    "--deterministic"};

void expect_one_line(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
  EXPECT_THAT(result.err, StartsWith("ridge: "));
}

// Runs the program with another value of a variable.
ProgramResult run_under(const std::string& name, const std::string& value, const Sandbox& sandbox,
                        const Words& command) {
  const char* const set = ::getenv(name.c_str());
  const std::optional<std::string> before = set ? std::optional<std::string>(set) : std::nullopt;
  ::setenv(name.c_str(), value.c_str(), 1);
  const ProgramResult result = sandbox.run(command);
  before ? ::setenv(name.c_str(), before->c_str(), 1) : ::unsetenv(name.c_str());
  return result;
}

TEST(GpuFaults, DriverThatIsTooOldIsALineAndAnExitCode) {
  const char* const driver = RIDGE_OLD_DRIVER;  // a directory: see old_driver.cpp
  if (!std::filesystem::exists(driver)) GTEST_SKIP() << "there is no " << driver << " here";
  const char* const set = ::getenv("LD_LIBRARY_PATH");
  const Sandbox sandbox;
  const ProgramResult result = run_under(
      "LD_LIBRARY_PATH", fmt::format("{}:{}", driver, set ? set : ""), sandbox, train_small);
  expect_one_line(result);
  EXPECT_THAT(result.err, HasSubstr("the driver supports CUDA 12.4, but Ridge was built with"));
}

TEST(GpuFaults, NoGpuIsALineAndAnExitCode) {
  const Sandbox sandbox;
  const ProgramResult result = run_under("CUDA_VISIBLE_DEVICES", "", sandbox, train_small);
  expect_one_line(result);
  EXPECT_THAT(result.err,
              AllOf(StartsWith("ridge: --device cuda: "), HasSubstr("use --device cpu")));
  EXPECT_FALSE(sandbox.has("output"));
}

class FaultsOnGpu : public testing::GpuTest {};

// Runs training with another library under the name of a vendor's.
ProgramResult train_with_stranger(const std::string& file, const Sandbox& sandbox,
                                  const Words& options = {}) {
  std::filesystem::create_symlink("/lib/x86_64-linux-gnu/libm.so.6", sandbox.path(file));
  const char* const set = ::getenv("LD_LIBRARY_PATH");
  return run_under("LD_LIBRARY_PATH",
                   fmt::format("{}:{}", sandbox.path("").string(), set ? set : ""), sandbox,
                   train_small + options);
}

TEST_F(FaultsOnGpu, CublasLtThatIsNotTheOneIsDoneWithoutAndToldOf) {
  const Sandbox sandbox;
  const ProgramResult result = train_with_stranger("libcublasLt.so.13", sandbox);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("by portable kernels"), HasSubstr("has no cublasLt"),
                                HasSubstr("ridge doctor")));
}

TEST_F(FaultsOnGpu, CudnnThatIsNotTheOneIsDoneWithout) {
  const Sandbox sandbox;
  const ProgramResult result = train_with_stranger(
      "libcudnn.so.9", sandbox, {"--seq-len", "128", "--dtype", "bf16", "--num-steps", "4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("cuDNN")));  // as which kernel was the fastest
}

json summary_in(const Sandbox& sandbox, const std::string& directory) {
  return json::parse(sandbox.read(directory + "/performance_summary.json"))["performance_summary"];
}

// After this the process cannot use the card: a process of its own, which must come to its end.
TEST_F(FaultsOnGpu, KernelThatWritesWhereItMustNotCostsTheProcessNotMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lose_the_card = [] {
    Graph graph;
    const Value x = graph.input("x", {DType::f32, {1024}});
    graph.keep(scale(x, 2.0f), "y");
    const std::unique_ptr<Device> gpu = open_gpu();
    std::string first, second;
    {
      Executor executor(graph, *gpu, {.planned = true});
      const TensorType type{DType::f32, {1024}};
      const PreparedKernel kernel = gpu->prepare(Op{Fill{type, 1.0f}}, {}, Types(&type, 1));
      void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{64});
      kernel.kernel->launch({.outputs = std::span(&nowhere, 1)});
      first = message_of<DeviceError>([&] { gpu->synchronize(); });
      second = message_of<DeviceError>([&] { executor.run(Phase::forward), gpu->synchronize(); });
    }
    fmt::print(stderr, "first: {}\nsecond: {}\n", first, second);
    std::exit(first.find("start it again") != std::string::npos ? 3 : 4);
  };
  EXPECT_EXIT(lose_the_card(), ::testing::ExitedWithCode(3), "second: .*the GPU failed");
}

TEST_F(FaultsOnGpu, ModelThatCannotFitIsRefusedBeforehand) {
  for (const char* version : {"v1", "v4"}) {
    const Sandbox sandbox;
    const ProgramResult result =
        sandbox.run(train_small + Words{"--version", version, "--hidden-dim", "16384", "--n-layers",
                                        "24", "--n-heads", "128"});
    expect_one_line(result);
    EXPECT_THAT(result.err, AllOf(HasSubstr("parameters "), HasSubstr("optimizer state "),
                                  HasSubstr(" left of "), HasSubstr("not even a batch of 1 fits")));
    EXPECT_FALSE(sandbox.has("output"));
  }
}

// While somebody else has most of the card.
TEST_F(FaultsOnGpu, BatchThatIsSaidToFitDoes) {
  constexpr std::size_t left = std::size_t{6} << 30;
  const std::size_t bytes = device().available_memory() - left;
  void* const memory = device().allocate(bytes);
  for (const char* version : {"v1", "v3", "v4"}) {
    SCOPED_TRACE(version);
    const Sandbox sandbox;
    const Words command = train_small + Words{"--version",  version, "--hidden-dim", "512",
                                              "--n-layers", "4",     "--num-steps",  "2"};
    const ProgramResult refused = sandbox.run(command + Words{"--batch-size", "20000"});
    expect_one_line(refused);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("intermediates "), HasSubstr("would fit in the ")));
    fmt::print("{}: {}", version, refused.err);
    const std::string before = "--batch-size ";
    const auto at = refused.err.find(before);
    ASSERT_NE(at, std::string::npos);
    const std::string batch = words_of(refused.err.substr(at + before.size())).front();
    EXPECT_GT(std::stoi(batch), 100);
    const ProgramResult fitting = sandbox.run(command + Words{"--batch-size", batch});
    EXPECT_EQ(fitting.exit_code, 0) << fitting.err;
  }
  device().deallocate(memory, bytes);
}

TEST_F(FaultsOnGpu, AllocationThatFailsLeavesTheDeviceUsable) {
  EXPECT_THAT(message_of<OutOfMemoryError>([&] { device().allocate(std::size_t{1} << 45); }),
              AllOf(HasSubstr(" left of "), HasSubstr("32.00 TiB")));
  EXPECT_THAT(message_of<OutOfMemoryError>([&] { gpu::check(out_of_memory, "tables"); }),
              HasSubstr("not enough for tables"));
  const TensorType type{DType::f32, {1024}};
  const PreparedKernel kernel = device().prepare(Op{Fill{type, 7.0f}}, {}, Types(&type, 1));
  void* memory = device().allocate(type.bytes());
  kernel.kernel->launch({.outputs = std::span(&memory, 1)});
  float last = 0;
  device().download(&last, static_cast<float*>(memory) + 1023, sizeof(float));
  EXPECT_EQ(last, 7.0f);
  device().deallocate(memory, type.bytes());
}

// A captured run with two steps in flight.
TEST_F(FaultsOnGpu, InterruptedRunFinishesItsStepsAndSaves) {
  const Sandbox sandbox;
  RunningProgram program(sandbox, train_small + Words{"--num-steps", "100000000", "--save-every",
                                                      "100000000", "--log-interval", "50"});
  ASSERT_TRUE(program.wait_for("Step 200/"));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Saved output/checkpoint.safetensors"),
                                HasSubstr("Interrupted\n"), HasSubstr("Performance Summary:")));
  const json first = summary_in(sandbox, "output");
  EXPECT_EQ(first["outcome"], "interrupted");
  const std::int64_t steps = first["last_step"];
  EXPECT_GE(steps, 200);
  // What was saved is the step that was reported last: it goes on as if nothing had happened.
  const std::string end = std::to_string(steps + 5);
  const Words resume{"ridge",
                     "train",
                     "--device",
                     "cuda",
                     "--version",
                     "v4",
                     "--deterministic",
                     "--resume",
                     "output/checkpoint.safetensors",
                     "--num-steps",
                     end,
                     "--output-dir",
                     "resumed"};
  ASSERT_EQ(sandbox.run(resume).exit_code, 0);
  ASSERT_EQ(sandbox
                .run(train_small + Words{"--num-steps", end, "--save-every", "0", "--log-interval",
                                         "1000", "--output-dir", "whole"})
                .exit_code,
            0);
  const auto whole = summary_in(sandbox, "whole")["losses"].get<std::vector<double>>();
  EXPECT_EQ(summary_in(sandbox, "resumed")["losses"],
            json(std::vector<double>(whole.end() - 5, whole.end())));
}

TEST_F(FaultsOnGpu, KilledRunGoesOnFromItsCheckpoint) {
  const Sandbox sandbox;
  const Words whole = train_small + Words{"--output-dir", "whole", "--num-steps", "100"};
  {
    RunningProgram program(sandbox, train_small + Words{"--num-steps", "1000000"});
    ASSERT_TRUE(program.wait_for("at step 24"));
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().signal, SIGKILL);
  }
  const ProgramResult resumed = sandbox.run(
      train_small + Words{"--resume", "output/checkpoint.safetensors", "--num-steps", "100"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_EQ(sandbox.run(whole).exit_code, 0);
  EXPECT_TRUE(sandbox.read("whole/checkpoint.safetensors") ==
              sandbox.read("output/checkpoint.safetensors"));
}

}  // namespace
}  // namespace ridge
