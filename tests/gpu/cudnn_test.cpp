// Attention by cuDNN: that its kernels compute what ours do, in pairs with ours too, and how the
// choice between the two is made. Skipped where there is no GPU or no cuDNN.

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/gpu/vendor/cudnn.h"
#include "ridge/gpu/vendor/dnn.h"
#include "ridge/ops/attention.h"
#include "ridge/run/autotuner.h"
#include "tests/base/temporary_cache.h"
#include "tests/cli/program.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/sample_runner.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Reals;
using ::testing::StartsWith;

#ifdef CUDNN_MAJOR
// The declarations of gpu/vendor/cudnn.h agree with the library's own headers.
using namespace gpu::cudnn;
template <class T, class U>
constexpr bool same(T ours, U theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(DataType::f32, CUDNN_DATA_FLOAT) && same(DataType::f16, CUDNN_DATA_HALF) &&
              same(DataType::i32, CUDNN_DATA_INT32) && same(DataType::bf16, CUDNN_DATA_BFLOAT16) &&
              same(DataType::boolean, CUDNN_DATA_BOOLEAN));
static_assert(same(PointwiseMode::mul, CUDNN_POINTWISE_MUL) &&
              same(PointwiseMode::div, CUDNN_POINTWISE_DIV) &&
              same(PointwiseMode::sub, CUDNN_POINTWISE_SUB) &&
              same(PointwiseMode::add, CUDNN_POINTWISE_ADD) &&
              same(PointwiseMode::exp, CUDNN_POINTWISE_EXP) &&
              same(PointwiseMode::log, CUDNN_POINTWISE_LOG) &&
              same(PointwiseMode::identity, CUDNN_POINTWISE_IDENTITY) &&
              same(PointwiseMode::greater_equal, CUDNN_POINTWISE_CMP_GE) &&
              same(PointwiseMode::index, CUDNN_POINTWISE_GEN_INDEX) &&
              same(PointwiseMode::select, CUDNN_POINTWISE_BINARY_SELECT));
static_assert(same(PointwiseMode::min, CUDNN_POINTWISE_MIN) &&
              same(PointwiseMode::max, CUDNN_POINTWISE_MAX) &&
              same(PointwiseMode::relu, CUDNN_POINTWISE_RELU_FWD) &&
              same(PointwiseMode::swish, CUDNN_POINTWISE_SWISH_FWD));
static_assert(same(HeuristicMode::fallback, CUDNN_HEUR_MODE_FALLBACK) &&
              same(ConvolutionMode::cross_correlation, CUDNN_CROSS_CORRELATION) &&
              same(NumericalNote::tensor_core, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
              same(NumericalNote::down_convert_inputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
              same(NumericalNote::reduced_precision_reduction,
                   CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
              same(NumericalNote::fft, CUDNN_NUMERICAL_NOTE_FFT) &&
              same(NumericalNote::winograd, CUDNN_NUMERICAL_NOTE_WINOGRAD) &&
              same(NumericalNote::nondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
static_assert(same(DescriptorType::convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) &&
              same(DescriptorType::engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR) &&
              same(DescriptorType::convolution_operation,
                   CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) &&
              same(DescriptorType::convolution_weight_grad_operation,
                   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) &&
              same(DescriptorType::convolution_input_grad_operation,
                   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR));
static_assert(same(AttributeType::f32, CUDNN_TYPE_FLOAT) &&
              same(AttributeType::convolution_mode, CUDNN_TYPE_CONVOLUTION_MODE) &&
              same(AttributeType::numerical_note, CUDNN_TYPE_NUMERICAL_NOTE));
static_assert(same(Attribute::convolution_compute_type, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) &&
              same(Attribute::convolution_mode, CUDNN_ATTR_CONVOLUTION_CONV_MODE) &&
              same(Attribute::convolution_dilations, CUDNN_ATTR_CONVOLUTION_DILATIONS) &&
              same(Attribute::convolution_strides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) &&
              same(Attribute::convolution_post_padding, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) &&
              same(Attribute::convolution_pre_padding, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) &&
              same(Attribute::convolution_spatial_dims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) &&
              same(Attribute::engine_config_engine, CUDNN_ATTR_ENGINECFG_ENGINE) &&
              same(Attribute::engine_global_index, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) &&
              same(Attribute::engine_numerical_notes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
static_assert(
    same(Attribute::convolution_operation_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA) &&
    same(Attribute::convolution_operation_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA) &&
    same(Attribute::convolution_operation_convolution,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC) &&
    same(Attribute::convolution_operation_w, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W) &&
    same(Attribute::convolution_operation_x, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X) &&
    same(Attribute::convolution_operation_y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y) &&
    same(Attribute::convolution_input_grad_alpha,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA) &&
    same(Attribute::convolution_input_grad_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA) &&
    same(Attribute::convolution_input_grad_convolution,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC) &&
    same(Attribute::convolution_input_grad_w, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W) &&
    same(Attribute::convolution_input_grad_dx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX) &&
    same(Attribute::convolution_input_grad_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY) &&
    same(Attribute::convolution_weight_grad_alpha,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA) &&
    same(Attribute::convolution_weight_grad_beta,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA) &&
    same(Attribute::convolution_weight_grad_convolution,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC) &&
    same(Attribute::convolution_weight_grad_dw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW) &&
    same(Attribute::convolution_weight_grad_x, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X) &&
    same(Attribute::convolution_weight_grad_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
static_assert(same(ReductionMode::add, CUDNN_REDUCE_TENSOR_ADD) &&
              same(ReductionMode::max, CUDNN_REDUCE_TENSOR_MAX));
static_assert(same(HeuristicMode::a, CUDNN_HEUR_MODE_A));
static_assert(same(DescriptorType::pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR) &&
              same(DescriptorType::engine_config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) &&
              same(DescriptorType::heuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) &&
              same(DescriptorType::plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) &&
              same(DescriptorType::pointwise_operation,
                   CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) &&
              same(DescriptorType::operation_graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) &&
              same(DescriptorType::variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) &&
              same(DescriptorType::tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR) &&
              same(DescriptorType::matmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR) &&
              same(DescriptorType::matmul_operation, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) &&
              same(DescriptorType::reduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR) &&
              same(DescriptorType::reduction_operation,
                   CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) &&
              same(DescriptorType::reshape_operation, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR));
static_assert(same(AttributeType::handle, CUDNN_TYPE_HANDLE) &&
              same(AttributeType::data_type, CUDNN_TYPE_DATA_TYPE) &&
              same(AttributeType::boolean, CUDNN_TYPE_BOOLEAN) &&
              same(AttributeType::int64, CUDNN_TYPE_INT64) &&
              same(AttributeType::pointer, CUDNN_TYPE_VOID_PTR) &&
              same(AttributeType::heuristic_mode, CUDNN_TYPE_HEUR_MODE) &&
              same(AttributeType::pointwise_mode, CUDNN_TYPE_POINTWISE_MODE) &&
              same(AttributeType::descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR) &&
              same(AttributeType::reduction_mode, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE));
static_assert(same(Attribute::pointwise_mode, CUDNN_ATTR_POINTWISE_MODE) &&
              same(Attribute::pointwise_compute_type, CUDNN_ATTR_POINTWISE_MATH_PREC) &&
              same(Attribute::pointwise_axis, CUDNN_ATTR_POINTWISE_AXIS) &&
              same(Attribute::heuristic_mode, CUDNN_ATTR_ENGINEHEUR_MODE) &&
              same(Attribute::heuristic_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) &&
              same(Attribute::heuristic_results, CUDNN_ATTR_ENGINEHEUR_RESULTS) &&
              same(Attribute::plan_handle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
              same(Attribute::plan_engine_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) &&
              same(Attribute::plan_workspace_size, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) &&
              same(Attribute::pointwise_operation_pointwise,
                   CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR) &&
              same(Attribute::pointwise_operation_x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) &&
              same(Attribute::pointwise_operation_b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) &&
              same(Attribute::pointwise_operation_y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC) &&
              same(Attribute::pointwise_operation_t, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) &&
              same(Attribute::graph_handle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) &&
              same(Attribute::graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS) &&
              same(Attribute::tensor_alignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) &&
              same(Attribute::tensor_data_type, CUDNN_ATTR_TENSOR_DATA_TYPE) &&
              same(Attribute::tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS) &&
              same(Attribute::tensor_strides, CUDNN_ATTR_TENSOR_STRIDES) &&
              same(Attribute::tensor_id, CUDNN_ATTR_TENSOR_UNIQUE_ID) &&
              same(Attribute::tensor_is_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
              same(Attribute::tensor_is_by_value, CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
              same(Attribute::variant_pack_ids, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) &&
              same(Attribute::variant_pack_pointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) &&
              same(Attribute::variant_pack_workspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE) &&
              same(Attribute::matmul_compute_type, CUDNN_ATTR_MATMUL_COMP_TYPE) &&
              same(Attribute::matmul_operation_a, CUDNN_ATTR_OPERATION_MATMUL_ADESC) &&
              same(Attribute::matmul_operation_b, CUDNN_ATTR_OPERATION_MATMUL_BDESC) &&
              same(Attribute::matmul_operation_c, CUDNN_ATTR_OPERATION_MATMUL_CDESC) &&
              same(Attribute::matmul_operation_matmul, CUDNN_ATTR_OPERATION_MATMUL_DESC) &&
              same(Attribute::reduction_mode, CUDNN_ATTR_REDUCTION_OPERATOR) &&
              same(Attribute::reduction_compute_type, CUDNN_ATTR_REDUCTION_COMP_TYPE) &&
              same(Attribute::reduction_operation_x, CUDNN_ATTR_OPERATION_REDUCTION_XDESC) &&
              same(Attribute::reduction_operation_y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC) &&
              same(Attribute::reduction_operation_reduction, CUDNN_ATTR_OPERATION_REDUCTION_DESC) &&
              same(Attribute::reshape_operation_x, CUDNN_ATTR_OPERATION_RESHAPE_XDESC) &&
              same(Attribute::reshape_operation_y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
static_assert(same(gpu::cudnn::success, CUDNN_STATUS_SUCCESS));
#endif

// Takes the candidate of this number wherever there is one, and remembers what it was.
struct Wish final : Tuner {
  std::size_t candidate = 0;
  std::string key, work, told;

  explicit Wish(std::size_t wished) : candidate(wished) {}
  std::size_t choose(std::string_view asked, std::size_t candidates,
                     const std::function<void(std::size_t)>&) override {
    key = asked;
    return std::min(candidate, candidates - 1);
  }
  void tell(std::string_view what, std::string_view choice) override {
    work = what;
    told = choice;
  }
};

// Candidates of attention: the first is ours, the last the library's.
constexpr std::size_t ours = 0, library = 99;

class CudnnOnGpu : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    try {
      version_ = gpu::make_vendor_dnn()->version();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  struct Case {
    AttentionHeads heads;
    std::int64_t batch, seq;
    bool packed = true;
  };

  static std::vector<TensorType> qkv_types(const Case& c) {
    const auto of = [&](std::int64_t columns) {
      return TensorType{DType::bf16, {c.batch, c.seq, columns}};
    };
    const std::int64_t q = c.heads.q_dim(), kv = c.heads.kv_dim();
    if (c.packed) return {of(q + 2 * kv)};
    return {of(q), of(kv), of(kv)};
  }

  static Reals rounded(Reals values, DType dtype) {
    for (double& x : values)
      x = dtype == DType::bf16 ? static_cast<float>(BFloat16(static_cast<float>(x)))
                               : static_cast<float>(x);
    return values;
  }

  // The kernel of a candidate, against the reference.
  std::vector<Reals> run(const Op& op, Types in, const std::vector<Reals>& values,
                         std::size_t candidate) {
    Wish wish(candidate);
    const std::vector<TensorType> out = infer(op, in);
    const KernelChoice choice{.tuner = &wish};
    const auto actual = testing::run_kernel(device(), op, in, out, values, choice);
    EXPECT_THAT(wish.told, StartsWith(candidate == ours ? "own kernels, " : version_));
    EXPECT_THAT(wish.key, AllOf(HasSubstr(version_), HasSubstr(name_of(op))));
    const auto expected = testing::run_reference(op, in, out, values);
    std::vector<Reals> results;
    for (std::size_t o = 0; o < out.size(); ++o) {
      SCOPED_TRACE(fmt::format("{} by candidate {}, output {}", name_of(op), candidate, o));
      results.push_back(testing::decode(actual[o], out[o].dtype));
      testing::expect_close(results.back(), expected[o], {1.5e-2, 1.5e-2});
    }
    return results;
  }

  // Forward by one candidate, and the gradient from its results by another.
  void check_pair(const Case& c, std::size_t forward, std::size_t backward) {
    SCOPED_TRACE(
        fmt::format("head_dim {}, {}/{} heads, {} x {}, causal {}, theta {}, packed {}: "
                    "forward by {}, backward by {}",
                    c.heads.head_dim, c.heads.n_heads, c.heads.n_kv_heads, c.batch, c.seq,
                    c.heads.causal, c.heads.rope_theta, c.packed, forward, backward));
    const std::vector<TensorType> qkv = qkv_types(c);
    std::vector<Reals> values;
    for (std::size_t i = 0; i < qkv.size(); ++i)
      values.push_back(testing::sample_values({qkv[i]}, DType::bf16, i));
    const std::vector<Reals> results = run(Attention{c.heads}, qkv, values, forward);
    const TensorType y{DType::bf16, {c.batch, c.seq, c.heads.q_dim()}};
    std::vector<TensorType> in{y, y, {DType::f32, {c.batch, c.heads.n_heads, c.seq}}};
    in.insert(in.end(), qkv.begin(), qkv.end());
    std::vector<Reals> given{testing::sample_values({y}, DType::bf16, 9), results[0], results[1]};
    given.insert(given.end(), values.begin(), values.end());
    run(AttentionGrad{c.heads}, in, given, backward);
  }

  static Case sample(std::int64_t head_dim, std::int64_t n_heads, std::int64_t n_kv_heads,
                     std::int64_t batch, std::int64_t seq, float theta = 10000.0f,
                     bool causal = true, bool packed = true) {
    return {.heads = {.n_heads = n_heads,
                      .n_kv_heads = n_kv_heads,
                      .head_dim = head_dim,
                      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
                      .causal = causal,
                      .rope_theta = theta},
            .batch = batch,
            .seq = seq,
            .packed = packed};
  }

  std::string version_;
};

TEST_F(CudnnOnGpu, AttentionAgreesWithTheReference) {
  for (const Case& c :
       {sample(32, 2, 1, 1, 256), sample(128, 2, 2, 1, 384), sample(64, 3, 3, 2, 128, 0.0f),
        sample(64, 4, 1, 1, 128, 500.0f, true, false),
        sample(128, 2, 1, 1, 256, 0.0f, false, false)})
    check_pair(c, library, library);
}

// It takes heads of widths that ours do not, and sequences that end within a tile.
TEST_F(CudnnOnGpu, AttentionOfAnyWidthAndLengthAgreesToo) {
  for (const Case& c :
       {sample(256, 2, 1, 1, 777), sample(160, 3, 1, 2, 64), sample(80, 4, 2, 1, 551),
        sample(224, 2, 2, 1, 130, 0.0f), sample(40, 5, 5, 2, 200), sample(192, 2, 1, 1, 1000)})
    check_pair(c, library, library);
}

TEST_F(CudnnOnGpu, PairsWithOurs) {
  const Case c = sample(64, 4, 2, 2, 128);
  check_pair(c, ours, library);
  check_pair(c, library, ours);
}

// This device is asked for the same bits every time; there are enough blocks to mix up an order.
TEST_F(CudnnOnGpu, GivesTheSameBitsIfAskedTo) {
  const Case c = sample(64, 8, 4, 4, 512);
  const TensorType qkv = qkv_types(c)[0], y{DType::bf16, {c.batch, c.seq, c.heads.q_dim()}};
  const std::vector<TensorType> in{y, y, {DType::f32, {c.batch, c.heads.n_heads, c.seq}}, qkv};
  std::vector<Reals> values;
  for (std::size_t i = 0; i < in.size(); ++i)
    values.push_back(testing::sample_values({in[i]}, in[i].dtype, i));
  for (double& lse : values[2]) lse += std::log(512.0);
  Wish wish(library);
  const std::vector<TensorType> out{qkv};
  const Op op{AttentionGrad{c.heads}};
  const auto first = testing::run_kernel(device(), op, in, out, values, {.tuner = &wish});
  EXPECT_EQ(wish.told, version_);
  for (int again = 0; again < 3; ++again)
    EXPECT_EQ(testing::run_kernel(device(), op, in, out, values, {.tuner = &wish}), first);
}

// Sums of gradients in no fixed order are as good, only not the same bits each time.
TEST_F(CudnnOnGpu, FasterGradientsAgreeToo) {
  const std::unique_ptr<Device> gpu = open_gpu({.deterministic = false});
  const Case c = sample(64, 4, 2, 2, 256);
  const TensorType qkv = qkv_types(c)[0], y{DType::bf16, {c.batch, c.seq, c.heads.q_dim()}};
  const Reals x = testing::sample_values({qkv}, DType::bf16, 0);
  const std::vector<TensorType> lse{{DType::f32, {c.batch, c.heads.n_heads, c.seq}}};
  const auto forward =
      testing::run_reference(Attention{c.heads}, std::array{qkv}, std::array{y, lse[0]}, {x});
  const std::vector<Reals> values{testing::sample_values({y}, DType::bf16, 9),
                                  rounded(forward[0], DType::bf16), rounded(forward[1], DType::f32),
                                  x};
  const Op op{AttentionGrad{c.heads}};
  const std::vector<TensorType> in{y, y, lse[0], qkv}, out{qkv};
  Wish wish(library);
  const auto actual = testing::run_kernel(*gpu, op, in, out, values, {.tuner = &wish});
  EXPECT_EQ(wish.told, version_);
  testing::expect_close(testing::decode(actual[0], DType::bf16),
                        testing::run_reference(op, in, out, values)[0], {1.5e-2, 1.5e-2});
}

TEST_F(CudnnOnGpu, IsTimedAgainstOurs) {
  Autotuner tuner({.cache = {}, .hardware = "a card", .seconds_per_search = 0.01});
  const Case c = sample(64, 4, 2, 2, 128);
  const std::vector<TensorType> in = qkv_types(c);
  const auto prepare = [&] {
    device().prepare(Attention{c.heads}, in, infer(Attention{c.heads}, in), {.tuner = &tuner});
  };
  prepare();
  prepare();
  EXPECT_EQ(tuner.searched(), 1);
  EXPECT_EQ(tuner.cached(), 1);
  EXPECT_THAT(tuner.told(),
              ElementsAre(::testing::Pair("attention bf16[2 x 128, 4/2 heads of 64]",
                                          AnyOf(StartsWith("own kernels"), version_))));
}

// Trains once, has the tuner's file say that cuDNN was the faster, and trains again: steps that are
// captured with its kernels in them learn the same.
TEST_F(CudnnOnGpu, TrainsInCapturedSteps) {
  const Sandbox sandbox;
  const TemporaryCache cache;
  const auto train = [&](const std::string& directory) {
    const ProgramResult result =
        sandbox.run({"ridge",        "train", "--device",   "cuda", "--version",    "v4",
                     "--dtype",      "bf16",  "--seq-len",  "128",  "--hidden-dim", "256",
                     "--num-steps",  "20",    "--n-heads",  "4",    "--n-kv-heads", "2",
                     "--batch-size", "4",     "--n-layers", "2",    "--output-dir", directory});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto summary =
        nlohmann::json::parse(sandbox.read(directory + "/performance_summary.json"));
    return std::pair(result.out, summary["performance_summary"]["final_loss"].get<double>());
  };
  const auto [first_out, first_loss] = train("first");
  auto file = nlohmann::json::parse(read_text_file(default_tuning_cache(), 1 << 20));
  int changed = 0;
  for (auto& [hardware, choices] : file["choices"].items())
    for (auto& [key, choice] : choices.items())
      if (key.starts_with(version_)) {
        choice["candidate"] = choice["of"].get<int>() - 1;
        ++changed;
      }
  EXPECT_EQ(changed, 2);
  write_text_file(default_tuning_cache(), file.dump());
  const auto [out, loss] = train("second");
  EXPECT_THAT(out, AllOf(HasSubstr("heads of 64]: " + version_), Not(HasSubstr("own kernels"))));
  EXPECT_NEAR(loss, first_loss, 5e-3);
}

// In a fixed order it keeps 2 bytes for each score.
TEST_F(CudnnOnGpu, IsNotTakenForMoreMemoryThanItIsWorth) {
  Wish wish(library);
  for (const std::int64_t seq : {512, 8192}) {
    const Case c = sample(64, 16, 16, 2, seq);
    const TensorType qkv = qkv_types(c)[0], y{DType::bf16, {c.batch, c.seq, c.heads.q_dim()}};
    const std::vector<TensorType> in{y, y, {DType::f32, {c.batch, c.heads.n_heads, c.seq}}, qkv};
    device().prepare(AttentionGrad{c.heads}, in, std::array{qkv}, {.tuner = &wish});
    EXPECT_THAT(wish.told, StartsWith(seq == 512 ? version_ : "own kernels"));
  }
}

TEST_F(CudnnOnGpu, IsNoCandidateWhereItHasNothing) {
  Wish wish(library);
  const auto prepare = [&wish](const Case& of) {
    const std::vector<TensorType> in = qkv_types(of);
    device().prepare(Attention{of.heads}, in, infer(Attention{of.heads}, in), {.tuner = &wish});
  };
  prepare(sample(64, 2, 2, 1, 100, 0.0f, false));
  EXPECT_THAT(wish.told, StartsWith("own kernels, "));
  wish.key.clear();
  prepare(sample(36, 2, 2, 1, 128));
  const Case c = sample(64, 2, 2, 1, 128);
  TensorType f32 = qkv_types(c)[0];
  f32.dtype = DType::f32;
  const std::array in{f32};
  device().prepare(Attention{c.heads}, in, infer(Attention{c.heads}, in), {.tuner = &wish});
  EXPECT_EQ(wish.key, "");
}

}  // namespace
}  // namespace ridge
