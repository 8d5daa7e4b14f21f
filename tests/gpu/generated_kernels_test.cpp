// Kernels that are generated and compiled while the program runs. Source and cache are tested on
// any machine; what is compiled, where NVRTC is, which needs no GPU; what it computes, where one
// is.

#include "ridge/gpu/codegen/generated_kernels.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "ridge/base/file.h"
#include "ridge/gpu/codegen/kernel_cache.h"
#include "ridge/gpu/codegen/pointwise_source.h"
#include "ridge/gpu/codegen/runtime_compiler.h"
#include "tests/base/environment.h"
#include "tests/base/temporary_directory.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = Pointwise::Code;
using gpu::KernelCache;
using gpu::pointwise_source;
using gpu::PointwiseSource;
using gpu::RuntimeCompiler;
using testing::Reals;

PointwiseSource source_of(const Pointwise& op, Types in) {
  return pointwise_source(op, in, op.infer(in)[0].shape);
}

TEST(PointwiseSources, DependOnExtentsOnlyWhereOperandsBroadcast) {
  const Pointwise op{.steps = {{Code::add, 0, 1}, {Code::relu, 2}}, .results = {{3}}};
  const auto code = [&](const Shape& a, const Shape& b) {
    const std::vector<TensorType> in{{DType::bf16, a}, {DType::bf16, b}};
    return source_of(op, in).code;
  };
  EXPECT_EQ(code({8, 64}, {8, 64}), code({3, 5, 7}, {3, 5, 7}));
  EXPECT_EQ(code({8, 64}, {1, 8, 64}), code({3}, {3}));
  EXPECT_NE(code({8, 64}, {64}), code({8, 32}, {32}));
  EXPECT_EQ(code({8, 64}, {64}), code({16, 64}, {64})) << "a row does not depend on their number";
}

TEST(PointwiseSources, SayWhatTheyCompute) {
  const Pointwise op{.steps = {{Code::add, 0, 1},
                               {.code = Code::activation, .a = 2, .kind = ActivationKind::gelu},
                               {Code::scale, 3, 0, 0.125f}},
                     .results = {{4, DType::f16}}};
  const std::vector<TensorType> in{{DType::f16, {128, 96}}, {DType::f16, {96}}};
  const PointwiseSource source = source_of(op, in);
  EXPECT_THAT(source.name, HasSubstr("pointwise_add_gelu_scale_"));
  for (const char* line :
       {"const float v2 = add(x0, x1);", "const float v3 = GeluOf()(v2);",
        "const float v4 = multiply(0.125f, v3);", "source_of_x1(Index i) { return i % 96u; }",
        "const auto a1 = load_pack<8>(x1 + source_of_x1(first));"})
    EXPECT_THAT(source.code, HasSubstr(line));
}

TEST(PointwiseSources, ShortenNamesOfLongChains) {
  Pointwise op{.steps = {}, .results = {{12}}};
  for (std::uint16_t s = 0; s < 12; ++s) op.steps.push_back({Code::add, s, s});
  const std::vector<TensorType> in{{DType::f32, {64}}};
  EXPECT_THAT(source_of(op, in).name, HasSubstr("pointwise_add_add_add_add_and_8_more_"));
}

class Compiling : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      compiler_ = std::make_unique<RuntimeCompiler>();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<RuntimeCompiler> compiler_;
};

TEST_F(Compiling, EverySampleInEveryDtype) {
  std::set<std::string> known;
  for (const Sample<Pointwise>& sample : Pointwise::samples())
    for (const DType dtype : f32_and_16_bit) {
      const std::vector<TensorType> in = testing::operand_types(sample, dtype);
      const PointwiseSource source = source_of(sample.op, in);
      if (!known.insert(source.code).second) continue;
      SCOPED_TRACE(source.code);
      const std::vector<char> image = compiler_->compile(source.name, source.code, "sm_90");
      ASSERT_GE(image.size(), 4u);
      EXPECT_EQ(std::string_view(image.data() + 1, 3), "ELF");
    }
}

TEST_F(Compiling, OfTheOldestAndNewestCards) {
  const Sample<Pointwise> sample = Pointwise::samples().front();
  for (const DType dtype : f32_and_16_bit) {
    const std::vector<TensorType> in = testing::operand_types(sample, dtype);
    const PointwiseSource source = source_of(sample.op, in);
    for (const int capability : {75, 80, 100})
      EXPECT_FALSE(compiler_->compile(source.name, source.code, RuntimeCompiler::target(capability))
                       .empty());
  }
}

TEST_F(Compiling, NamesWhatTheCompilerRefuses) {
  try {
    compiler_->compile("wrong", "#include \"ridge/gpu/device/runtime.h\"\nint wrong = missing;\n",
                       "sm_90");
    FAIL() << "it compiles";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("NVRTC"));
    EXPECT_THAT(error.what(), HasSubstr("wrong.cu(2)"));
    EXPECT_THAT(error.what(), HasSubstr("missing"));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

class Caching : public ::testing::Test {
 protected:
  TemporaryDirectory temporary_;
  std::filesystem::path directory_ = temporary_.path / "kernels";
  KernelCache cache_{directory_};
  std::vector<char> image_ = std::vector<char>(5000, '\x7f');
};

TEST_F(Caching, FindsWhatWasKeptUnderThisKeyAlone) {
  EXPECT_FALSE(cache_.find("chain", "key"));
  EXPECT_TRUE(cache_.keep("chain", "key", image_));
  EXPECT_EQ(cache_.find("chain", "key"), image_);
  EXPECT_EQ(KernelCache(directory_).find("chain", "key"), image_);
  EXPECT_FALSE(cache_.find("chain", "another key"));
  // As if two keys had the same digest.
  std::filesystem::rename(cache_.file_of("chain", "key"), cache_.file_of("chain", "another key"));
  EXPECT_FALSE(cache_.find("chain", "another key"));
}

TEST_F(Caching, DoesWithoutDamagedFilesAndWritesThemAnew) {
  EXPECT_TRUE(cache_.keep("chain", "key", image_));
  const std::filesystem::path file = cache_.file_of("chain", "key");
  const std::string whole = read_text_file(file, 1 << 20);
  std::vector<std::string> damaged{"", whole.substr(0, 20), whole.substr(0, whole.size() - 1),
                                   whole + "x", std::string(whole.size(), '\0')};
  for (const std::size_t at : {0, 16, 62, 64, 100, 4000}) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 1;
  }
  for (const std::string& text : damaged) {
    write_text_file(file, text);
    EXPECT_FALSE(cache_.find("chain", "key"));
  }
  EXPECT_TRUE(cache_.keep("chain", "key", image_));
  EXPECT_EQ(cache_.find("chain", "key"), image_);
}

TEST_F(Caching, DeletesWhatWasNotUsedForMonths) {
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const char* key : {"forgotten", "used again"}) {
    EXPECT_TRUE(cache_.keep("chain", key, image_));
    std::filesystem::last_write_time(cache_.file_of("chain", key), now - std::chrono::hours(2400));
  }
  EXPECT_TRUE(cache_.find("chain", "used again"));
  EXPECT_TRUE(cache_.keep("chain", "new", image_));
  EXPECT_FALSE(std::filesystem::exists(cache_.file_of("chain", "forgotten")));
  EXPECT_TRUE(cache_.find("chain", "used again"));
  EXPECT_TRUE(cache_.find("chain", "new"));
}

TEST_F(Caching, GoesOnWhereNothingCanBeWritten) {
  EXPECT_FALSE(KernelCache({}).keep("chain", "key", image_));
  EXPECT_FALSE(KernelCache({}).find("chain", "key"));
  std::filesystem::create_directories(directory_.parent_path());
  write_text_file(directory_, "a file where the directory should be");
  EXPECT_FALSE(cache_.keep("chain", "key", image_));
  EXPECT_FALSE(cache_.find("chain", "key"));
}

TEST_F(Caching, ServesProcessesAtOnce) {
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      bool right = true;
      for (int i = 0; i < 50; ++i) {
        const std::string key = fmt::format("key {}", i % 5);
        cache_.keep("chain", key, std::vector<char>(5000, static_cast<char>(i % 5)));
        const auto found = cache_.find("chain", key);
        right = right && (!found || *found == std::vector<char>(5000, static_cast<char>(i % 5)));
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(cache_.find("chain", fmt::format("key {}", i)),
              std::vector<char>(5000, static_cast<char>(i)));
}

class GeneratedOnGpu : public testing::GpuTest {
 protected:
  using Bytes = std::vector<std::vector<std::byte>>;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    try {
      const RuntimeCompiler compiler;
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  static Bytes interpreted(const Op& op, const std::vector<TensorType>& in,
                           const std::vector<Reals>& values) {
    const ScopedVariables off{{"RIDGE_GENERATED_KERNELS", "off"}};
    return testing::run_kernel(device(), op, in, infer(op, in), values);
  }

  // The generated kernel's results are the interpreter's to the bit, aligned or not.
  static Bytes check(const Pointwise& op, const std::vector<SampleInput>& inputs) {
    std::vector<TensorType> in;
    std::vector<Reals> values;
    for (const SampleInput& input : inputs) {
      values.push_back(testing::sample_values(input, input.type.dtype, in.size()));
      in.push_back(input.type);
    }
    SCOPED_TRACE(list_of(in));
    const std::vector<TensorType> out = op.infer(in);
    const gpu::GeneratedKernels& kernels = gpu::GeneratedKernels::of_process();
    const auto before = kernels.counts();
    const Bytes wanted = interpreted(op, in, values);
    EXPECT_EQ(kernels.counts().compiled + kernels.counts().found, before.compiled + before.found);
    const Bytes actual = testing::run_kernel(device(), op, in, out, values);
    EXPECT_EQ(actual, wanted) << source_of(op, in).code;
    EXPECT_EQ(testing::run_kernel(device(), op, in, out, values, {}, 1), wanted) << "unaligned";
    EXPECT_THAT(kernels.warnings(), ::testing::IsEmpty());
    return actual;
  }
};

TEST_F(GeneratedOnGpu, SamplesAreTheInterpretersToTheBit) {
  for (const Sample<Pointwise>& sample : Pointwise::samples())
    for (const DType dtype : f32_and_16_bit) {
      const std::vector<TensorType> in = testing::operand_types(sample, dtype);
      std::vector<SampleInput> inputs = sample.inputs;
      for (std::size_t i = 0; i < in.size(); ++i) inputs[i].type = in[i];
      check(sample.op, inputs);
    }
}

TEST_F(GeneratedOnGpu, RandomChainsAreTheInterpretersToTheBit) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::size_t count) { return random() % count; };
  constexpr ActivationKind kinds[] = {ActivationKind::relu6,        ActivationKind::sigmoid,
                                      ActivationKind::hard_sigmoid, ActivationKind::hard_swish,
                                      ActivationKind::gelu,         ActivationKind::tanh};
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  for (int chain = 0; chain < 60; ++chain) {
    SCOPED_TRACE(chain);
    std::vector<std::int64_t> extents(1 + pick(4));
    for (std::int64_t& extent : extents)
      extent = std::int64_t{1} << pick(7) | static_cast<std::int64_t>(pick(2));
    std::vector<SampleInput> inputs;
    for (std::size_t i = 0, count = 1 + pick(6); i < count; ++i) {
      std::vector<std::int64_t> own = extents;
      if (i > 0 && pick(2) == 0) {
        for (std::int64_t& extent : own)
          if (pick(2) == 0) extent = 1;
        own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(pick(own.size())));
      }
      inputs.push_back({{dtypes[pick(3)], Shape(own)}, -2.0, 2.0});
    }
    Pointwise op;
    std::uint16_t registers = static_cast<std::uint16_t>(inputs.size());
    for (std::size_t s = 0, count = 1 + pick(20); s < count; ++s, ++registers)
      op.steps.push_back({.code = static_cast<Code>(pick(9)),
                          .a = static_cast<std::uint16_t>(pick(registers)),
                          .b = static_cast<std::uint16_t>(pick(registers)),
                          .factor = 0.3f,
                          .kind = kinds[pick(std::size(kinds))]});
    for (std::size_t r = 0, count = 1 + pick(3); r < count; ++r)
      op.results.push_back(
          {.value = static_cast<std::uint16_t>(pick(registers)), .dtype = dtypes[pick(3)]});
    check(op, inputs);
  }
}

// Of more elements than one block has, and of more than fit its packs evenly.
TEST_F(GeneratedOnGpu, LargeAndOddSizes) {
  const Pointwise biased{.steps = {{Code::add, 0, 1}, {Code::relu, 2}, {Code::mul, 3, 0}},
                         .results = {{4, DType::bf16}}};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [x, b] : {std::pair{Shape{3001, 1027}, Shape{3001, 1027}},
                               {{70000, 96}, {96}},
                               {{4097}, {1}},
                               {{33, 50, 64}, {33, 1, 64}}})
      check(biased, {{{dtype, x}, -4.0, 4.0}, {{dtype, b}, -4.0, 4.0}});
}

// Each step in f32 is what its operator alone computes: no sum takes a product unrounded.
TEST_F(GeneratedOnGpu, GivesTheBitsOfItsSteps) {
  const TensorType x{DType::f32, {300, 257}}, row{DType::f32, {257}};
  const std::vector<TensorType> in{x, row};
  const std::vector<Reals> values{testing::sample_values({x, -4.0, 4.0}, DType::f32, 0),
                                  testing::sample_values({row, -4.0, 4.0}, DType::f32, 1)};
  const auto run = [&](const Op& op, const std::vector<TensorType>& types,
                       const std::vector<Reals>& of) {
    return testing::decode(
        testing::run_kernel(device(), op, types, std::vector<TensorType>{x}, of)[0], DType::f32);
  };
  const Reals product = run(Mul{}, {x, row}, values);
  const Reals sum = run(Add{}, {x, row}, {product, values[1]});
  const Reals gelu = run(Activation{ActivationKind::gelu}, {x}, {sum});
  const Reals silu = run(Silu{}, {x}, {gelu});
  const Reals wanted = run(Add{}, {x, x}, {silu, product});
  const Pointwise chain{.steps = {{Code::mul, 0, 1},
                                  {Code::add, 2, 1},
                                  {.code = Code::activation, .a = 3, .kind = ActivationKind::gelu},
                                  {Code::silu, 4},
                                  {Code::add, 5, 2}},
                        .results = {{6}}};
  EXPECT_EQ(run(chain, in, values), wanted);
}

// Its code is loaded when it is prepared: a capture may be the first to launch it.
TEST_F(GeneratedOnGpu, IsCapturedAtItsFirstLaunch) {
  const std::vector<TensorType> in(2, {DType::f32, {1000}});
  const Op op = Pointwise{
      .steps = {{Code::add, 0, 1}, {Code::scale, 2, 0, 0.625f}, {Code::relu, 3}}, .results = {{4}}};
  const PreparedKernel prepared = device().prepare(op, in, infer(op, in));
  std::vector<void*> memory;
  const std::vector<float> ones(1000, 1.0f);
  for (int i = 0; i < 3; ++i) {
    memory.push_back(device().allocate(4000));
    device().upload(memory.back(), ones.data(), 4000);
  }
  const std::vector<const void*> inputs{memory[0], memory[1]};
  const std::vector<DeviceWork> works{
      {.enqueue =
           [&] {
             prepared.kernel->launch({.inputs = inputs, .outputs = std::span(memory).subspan(2)});
           },
       .after = {}}};
  const KernelPtr captured = device().capture(works);
  captured->launch({});
  std::vector<float> result(1000);
  device().download(result.data(), memory[2], 4000);
  EXPECT_THAT(result, ::testing::Each(1.25f));
  for (void* m : memory) device().deallocate(m, 4000);
}

TEST_F(GeneratedOnGpu, IsFoundByTheNextProcess) {
  const TemporaryDirectory temporary;
  const std::filesystem::path& home = temporary.path;
  const ScopedVariables cache{{"XDG_CACHE_HOME", home.string()}};
  // A factor that no other test has, so that this process does not know the kernel.
  const Pointwise op{.steps = {{Code::scale, 0, 0, 0.7182818f}, {Code::relu, 1}}, .results = {{2}}};
  const std::vector<TensorType> in{{DType::f32, {100}}};
  gpu::GeneratedKernels& kernels = gpu::GeneratedKernels::of_process();
  const auto before = kernels.counts();
  device().prepare(op, in, op.infer(in));
  device().prepare(op, in, op.infer(in));
  EXPECT_EQ(kernels.counts().compiled, before.compiled + 1);
  EXPECT_EQ(kernels.counts().found, before.found);
  const auto files = std::distance(std::filesystem::directory_iterator(home / "ridge" / "kernels"),
                                   std::filesystem::directory_iterator());
  EXPECT_EQ(files, 1);
}

// Last: it leaves a warning behind.
TEST_F(GeneratedOnGpu, WhatCannotBeCompiledIsToldOnce) {
  gpu::GeneratedKernels& kernels = gpu::GeneratedKernels::of_process();
  const gpu::Context context{.card = {.compute_capability = 90}};
  const auto before = kernels.warnings().size();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(kernels.prepare(context, "wrong", "int wrong = missing;\n"), nullptr);
  ASSERT_EQ(kernels.warnings().size(), before + 1);
  EXPECT_THAT(kernels.warnings().back(), HasSubstr("missing"));
}

}  // namespace
}  // namespace ridge
