#include <fmt/format.h>

#include <limits>
#include <string>
#include <unordered_map>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/gpu/device/libraries.h"
#include "ridge/gpu/vendor/conv_cudnn.h"
#include "ridge/gpu/vendor/cudnn.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {
namespace {

using cudnn::DataType;
using cudnn::Extents;
using cudnn::GraphBuilder;
using cudnn::Plan;
using cudnn::PointwiseMode;
using cudnn::ReductionMode;
using cudnn::Tensor;

constexpr std::size_t workspace_alignment = 256;
// A kernel's workspace, in bytes: beyond this it is not worth its speed.
constexpr std::size_t most_workspace = std::size_t{1} << 30;

// In memory, by the numbers that runs bind.
enum Id : std::int64_t {
  id_q = 1,
  id_k,
  id_v,
  id_y,
  id_lse,
  id_dy,
  id_dq,
  id_dk,
  id_dv,
  id_delta,
  id_dq_sum
};

std::size_t align(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

std::byte* align(void* workspace) {
  return reinterpret_cast<std::byte*>(align(reinterpret_cast<std::uintptr_t>(workspace)));
}

// cuDNN's type for bf16 or f16, the only dtypes that supports() admits.
DataType type_of(DType dtype) { return dtype == DType::bf16 ? DataType::bf16 : DataType::f16; }

// What both graphs begin with.
struct Problem {
  DataType type;
  const FlashShape& shape;

  // Heads of positions whose rows are `stride` elements apart.
  Tensor heads(GraphBuilder& g, std::int64_t id, std::int64_t n_heads, std::int64_t stride) const {
    return g.in_memory(id, type, {shape.batch, n_heads, shape.seq, shape.head_dim},
                       {shape.seq * stride, shape.head_dim, stride, 1});
  }
  Tensor transposed_heads(GraphBuilder& g, std::int64_t id, std::int64_t n_heads,
                          std::int64_t stride) const {
    return g.in_memory(id, type, {shape.batch, n_heads, shape.head_dim, shape.seq},
                       {shape.seq * stride, shape.head_dim, 1, stride});
  }
  Tensor of_queries(GraphBuilder& g, std::int64_t id) const {
    return heads(g, id, shape.n_heads, shape.n_heads * shape.head_dim);
  }
  Tensor f32(GraphBuilder& g, std::int64_t id, std::int64_t columns) const {
    return g.in_memory(id, DataType::f32, {shape.batch, shape.n_heads, shape.seq, columns},
                       {shape.n_heads * shape.seq * columns, shape.seq * columns, columns, 1});
  }
  // -infinity where a key comes after its query.
  Tensor masked(GraphBuilder& g, const Tensor& scores) const {
    if (!shape.causal) return scores;
    const Tensor keep = g.pointwise(PointwiseMode::greater_equal, g.index(scores, 2),
                                    g.index(scores, 3), DataType::boolean);
    return g.select(keep, scores, g.constant(-std::numeric_limits<float>::infinity()));
  }
};

// The library has a kernel for exactly these operations: those of ops/attention.h, one by one.
Plan forward_plan(const cudnn::Library& library, cudnn::Handle handle, const Problem& p,
                  const FlashOperands& in) {
  GraphBuilder g(library);
  const Tensor q = p.heads(g, id_q, p.shape.n_heads, in.q_stride);
  const Tensor kt = p.transposed_heads(g, id_k, p.shape.n_kv_heads, in.k_stride);
  const Tensor v = p.heads(g, id_v, p.shape.n_kv_heads, in.v_stride);
  const Tensor scaled = g.pointwise(PointwiseMode::mul, g.matmul(q, kt), g.constant(p.shape.scale));
  const Tensor s = p.masked(g, scaled);
  const Tensor max = g.reduce_rows(ReductionMode::max, s);
  const Tensor exp = g.pointwise(PointwiseMode::exp, g.pointwise(PointwiseMode::sub, s, max));
  const Tensor sum = g.reduce_rows(ReductionMode::add, exp);
  const Tensor log = g.pointwise(PointwiseMode::log, sum);
  g.pointwise_into(p.f32(g, id_lse, 1), PointwiseMode::add, {.x = max, .b = &log});
  const Tensor probabilities = g.pointwise(PointwiseMode::div, exp, sum, p.type);
  g.matmul_into(p.of_queries(g, id_y), probabilities, v);
  return g.plan(handle);
}

// Gradients of keys or values: x^T y for each query head, summed over the heads of a group.
void sum_of_groups(GraphBuilder& g, const Tensor& result, const Tensor& xt, const Tensor& y,
                   DataType type) {
  if (result.dims[1] == y.dims[1]) return g.matmul_into(result, xt, y);
  g.reduce_into(result, ReductionMode::add, g.matmul(xt, y, type));
}

Plan backward_plan(const cudnn::Library& library, cudnn::Handle handle, const Problem& p,
                   const FlashOperands& in, const FlashGradients& out, bool deterministic) {
  GraphBuilder g(library);
  const FlashShape& shape = p.shape;
  const Tensor q = p.heads(g, id_q, shape.n_heads, in.q_stride);
  const Tensor kt = p.transposed_heads(g, id_k, shape.n_kv_heads, in.k_stride);
  const Tensor vt = p.transposed_heads(g, id_v, shape.n_kv_heads, in.v_stride);
  const Tensor y = p.of_queries(g, id_y), dy = p.of_queries(g, id_dy);
  const Tensor dq = p.heads(g, id_dq, shape.n_heads, out.dq_stride);
  const Tensor dk = p.heads(g, id_dk, shape.n_kv_heads, out.dk_stride);
  const Tensor dv = p.heads(g, id_dv, shape.n_kv_heads, out.dv_stride);
  const Tensor scale = g.constant(shape.scale), one = g.constant(1.0f);

  // delta = rowsum(dy y); a kernel of its own that writes it. Its factor is one without dropout.
  const Tensor row_sums = g.reduce_rows(ReductionMode::add, g.pointwise(PointwiseMode::mul, dy, y));
  const Tensor delta = p.f32(g, id_delta, 1);
  g.pointwise_into(delta, PointwiseMode::mul, {.x = row_sums, .b = &one});

  // p = exp(scale q k^T - lse), dv = p^T dy
  const Tensor scaled = g.pointwise(PointwiseMode::mul, g.matmul(q, kt), scale);
  const Tensor less = g.pointwise(PointwiseMode::sub, scaled, p.f32(g, id_lse, 1));
  const Tensor probabilities = g.pointwise(PointwiseMode::exp, p.masked(g, less));
  sum_of_groups(g, dv, g.transpose(probabilities, p.type), dy, p.type);

  // ds = scale p (dy v^T - delta), dk = ds^T q, dq = ds k
  const Tensor dp = g.pointwise(PointwiseMode::sub, g.matmul(dy, vt), delta);
  const Tensor ds =
      g.pointwise(PointwiseMode::mul, g.pointwise(PointwiseMode::mul, dp, probabilities), scale);
  sum_of_groups(g, dk, g.transpose(ds, p.type), q, p.type);
  const Tensor k = g.transpose(kt, p.type);
  if (deterministic) {
    // The library then puts ds into its workspace, 2 bytes for each score.
    g.matmul_into(dq, ds, k);
  } else {
    // Blocks add to dq in f32, in no fixed order.
    const Tensor sum = p.f32(g, id_dq_sum, shape.head_dim);
    g.matmul_into(sum, ds, k);
    g.pointwise_into(dq, PointwiseMode::identity, {.x = sum});
  }
  return g.plan(handle);
}

class CudnnAttention final : public FusedAttention {
 public:
  explicit CudnnAttention(Plan plan) : plan_(std::move(plan)) {}
  std::size_t workspace() const override { return plan_.workspace() + workspace_alignment; }
  void run(Stream stream, const FlashOperands& in, void* y, float* lse,
           void* workspace) const override {
    plan_.run(stream,
              std::array<cudnn::Binding, 5>{
                  {{id_q, in.q}, {id_k, in.k}, {id_v, in.v}, {id_y, y}, {id_lse, lse}}},
              align(workspace));
  }

 private:
  Plan plan_;
};

class CudnnAttentionGrad final : public FusedAttentionGrad {
 public:
  CudnnAttentionGrad(Plan plan, const FlashShape& shape, bool deterministic)
      : plan_(std::move(plan)), deterministic_(deterministic) {
    const auto rows = static_cast<std::size_t>(shape.batch * shape.n_heads * shape.seq);
    delta_ = align(plan_.workspace());
    dq_sum_ = delta_ + align(rows * sizeof(float));
    end_ = dq_sum_;
    if (!deterministic) end_ += rows * static_cast<std::size_t>(shape.head_dim) * sizeof(float);
  }
  std::size_t workspace() const override { return end_ + workspace_alignment; }
  void run(Stream stream, const FlashOperands& in, const void* y, const float* lse, const void* dy,
           const FlashGradients& out, void* workspace) const override {
    std::byte* const memory = align(workspace);
    const std::array<cudnn::Binding, 11> bindings{{{id_q, in.q},
                                                   {id_k, in.k},
                                                   {id_v, in.v},
                                                   {id_y, y},
                                                   {id_lse, lse},
                                                   {id_dy, dy},
                                                   {id_dq, out.dq},
                                                   {id_dk, out.dk},
                                                   {id_dv, out.dv},
                                                   {id_delta, memory + delta_},
                                                   {id_dq_sum, memory + dq_sum_}}};
    const std::span<const cudnn::Binding> all(bindings);
    plan_.run(stream, deterministic_ ? all.first(all.size() - 1) : all, memory);
  }

 private:
  Plan plan_;
  bool deterministic_;
  std::size_t delta_ = 0, dq_sum_ = 0, end_ = 0;  // where they begin in the workspace
};

// The library, and its state on one card, which only who asks for a plan needs.
class Opened {
 public:
  Opened() = default;
  ~Opened() {
    if (handle_) library.destroy(handle_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  cudnn::Library library;
  cudnn::Handle handle() {
    if (!handle_) library.check(library.create(&handle_), "opening the library");
    return handle_;
  }

 private:
  cudnn::Handle handle_ = nullptr;
};

class Cudnn final : public Dnn {
 public:
  std::string version() override {
    const std::size_t v = opened().library.version();
    return fmt::format("cuDNN {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }

  // What the last tile has behind the end of a sequence is later than every query, so that the
  // causal mask hides it; without one it would need a mask of its own in versions before 9.16.
  bool supports(DType dtype, const FlashShape& shape) const override {
    return size_of(dtype) == 2 && (shape.causal || shape.seq % 128 == 0) &&
           shape.head_dim % 8 == 0 && shape.head_dim <= 256;
  }

  std::unique_ptr<FusedAttention> attention(DType dtype, const FlashShape& shape,
                                            const FlashOperands& operands) override {
    const Problem problem{type_of(dtype), shape};
    return std::make_unique<CudnnAttention>(
        forward_plan(opened().library, opened().handle(), problem, operands));
  }

  std::unique_ptr<FusedAttentionGrad> attention_grad(DType dtype, const FlashShape& shape,
                                                     const FlashOperands& operands,
                                                     const FlashGradients& gradients,
                                                     bool deterministic) override {
    const Problem problem{type_of(dtype), shape};
    auto kernel = std::make_unique<CudnnAttentionGrad>(
        backward_plan(opened().library, opened().handle(), problem, operands, gradients,
                      deterministic),
        shape, deterministic);
    if (kernel->workspace() > most_workspace)
      throw DeviceError("cuDNN's attention wants a workspace of {}",
                        format_bytes(kernel->workspace()));
    return kernel;
  }

  std::shared_ptr<FusedConv> conv(const ConvProblem& problem, std::size_t rank) override {
    std::string key =
        fmt::format("{} {} {}", static_cast<int>(problem.kind), rank, to_string(problem));
    auto kept = convs_.find(key);
    if (kept == convs_.end()) {
      if (convs_.size() == most_convs) convs_.clear();
      kept = convs_.emplace(std::move(key), answer(problem, rank)).first;
    }
    if (!kept->second.conv) throw DeviceError("{}", kept->second.refusal);
    return kept->second.conv;
  }

 private:
  // A plan, or why there is none, which takes as long to find out.
  struct Answer {
    std::shared_ptr<FusedConv> conv;
    std::string refusal = {};
  };

  Answer answer(const ConvProblem& problem, std::size_t rank) {
    const cudnn::Library& library = opened().library;
    const cudnn::Handle handle = opened().handle();
    try {
      return {cudnn_conv(library, handle, problem, rank)};
    } catch (const DeviceError& error) {
      return {nullptr, error.what()};
    }
  }

  Opened& opened() {
    if (!opened_) opened_ = std::make_unique<Opened>();
    return *opened_;
  }

  // More than any network has with all that a tuner tries; a plan is some hundred kilobytes of
  // code.
  static constexpr std::size_t most_convs = 1000;

  std::unique_ptr<Opened> opened_;
  std::unordered_map<std::string, Answer> convs_;
};

}  // namespace

std::shared_ptr<Dnn> make_vendor_dnn() { return std::make_shared<Cudnn>(); }

std::shared_ptr<Dnn> make_dnn(const Card& card) {
  return wants_libraries() ? library_or_portable(make_vendor_dnn(), card) : make_portable_dnn(card);
}

}  // namespace ridge::gpu
