#include "ridge/gpu/vendor/conv_cudnn.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "ridge/base/error.h"

namespace ridge::gpu {
namespace {

using cudnn::DataType;
using cudnn::Extents;
using cudnn::GraphBuilder;
using cudnn::Plan;
using cudnn::PointwiseMode;
using cudnn::Tensor;

constexpr std::size_t workspace_alignment = 256;

// An engine for gradients of weights 3 x 3 that has no numerical note (in 9.14), but four times the
// error of a sum in f32 one term after the other, as Winograd's transform makes.
constexpr std::int64_t untold_winograd = 17;

enum Id : std::int64_t { id_x = 1, id_weight, id_y, id_bias, id_residual };

DataType type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return DataType::f32;
    case DType::bf16:
      return DataType::bf16;
    case DType::f16:
      return DataType::f16;
    default:
      throw DeviceError("cuDNN does not convolve {}", name_of(dtype));
  }
}

// A tensor is described as [N, C, H, W], with the strides of its layout.
Tensor image(GraphBuilder& g, std::int64_t id, DataType type, const ImageShape& s,
             ImageLayout layout) {
  const ImageStrides at(s, layout);
  return g.in_memory(id, type, {s.n, s.c, s.h, s.w}, {at.n, at.c, at.h, at.w});
}

// Operations one after another, all in f32 but for the last, which writes y.
class Chain {
 public:
  Chain(GraphBuilder& g, const Tensor& y, int operations) : g_(g), y_(y), left_(operations) {}

  Tensor next() { return --left_ == 0 ? y_ : g_.like(y_); }
  Tensor apply(PointwiseMode mode, const Tensor& x) {
    const Tensor result = next();
    g_.pointwise_into(result, mode, {.x = x});
    return result;
  }
  Tensor apply(PointwiseMode mode, const Tensor& x, const Tensor& b) {
    const Tensor result = next();
    g_.pointwise_into(result, mode, {.x = x, .b = &b});
    return result;
  }
  Tensor clamp(const Tensor& x) {  // to [0, 6]
    return apply(PointwiseMode::min, apply(PointwiseMode::max, x, g_.constant(0.0f)),
                 g_.constant(6.0f));
  }

 private:
  GraphBuilder& g_;
  const Tensor& y_;
  int left_;
};

int operations_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      return 0;
    case Epilogue::relu6:
      return 2;
    case Epilogue::hard_swish:
      return 5;
    default:
      return 1;
  }
}

void append(GraphBuilder& g, Chain& chain, Epilogue epilogue, const Tensor& x) {
  switch (epilogue) {
    case Epilogue::none:
      return;
    case Epilogue::relu:
      chain.apply(PointwiseMode::relu, x);
      return;
    case Epilogue::relu6:
      chain.clamp(x);
      return;
    case Epilogue::silu:
      chain.apply(PointwiseMode::swish, x);
      return;
    case Epilogue::hard_swish: {
      const Tensor sixth = chain.apply(PointwiseMode::mul, x, g.constant(1.0f / 6));
      const Tensor moved = chain.apply(PointwiseMode::add, x, g.constant(3.0f));
      chain.apply(PointwiseMode::mul, chain.clamp(moved), sixth);
      return;
    }
    case Epilogue::gelu:
      throw DeviceError("no convolution has GELU behind it");
  }
}

// Whether cuDNN's plan of this rank would cut the operands of tf32 to 11 bits where others round
// them, which makes sums smaller by 7e-4. Of cuDNN 9.14 (docs/log.md) those plans do that it
// compiles for what follows a convolution, where pixels do not fill 16 bytes (measured with 3
// channels), and beyond the sixth plan.
bool cuts_operands(const ConvProblem& p, std::size_t rank) {
  constexpr std::size_t plans_that_round = 6;
  return p.kind == ConvProblem::Kind::forward && p.dtype == DType::f32 && p.tf32 &&
         !is_ready_made(p) && (p.x.c % 4 != 0 || rank >= plans_that_round);
}

Plan plan_of(const cudnn::Library& library, cudnn::Handle handle, const ConvProblem& p,
             std::size_t rank) {
  using Kind = ConvProblem::Kind;
  if (cuts_operands(p, rank)) throw DeviceError("cuDNN would cut operands to tf32");
  GraphBuilder g(library);
  const ImageLayout layout = p.geometry.layout;
  const DataType type = type_of(p.dtype);
  const Tensor x = image(g, id_x, type, p.x, layout);
  const Tensor weight = image(g, id_weight, type, p.weight, layout);
  const Tensor y = image(g, id_y, type, p.y, layout);
  const cudnn::Convolution how{p.geometry.stride, p.geometry.padding, p.geometry.dilation};
  cudnn::EngineLimits limits{.inexact = p.dtype != DType::f32 || p.tf32,
                             .deterministic = p.deterministic};
  if (!limits.inexact && p.kind == Kind::weight_grad) limits.except = untold_winograd;
  const auto plan = [&] {
    return rank == 0 ? g.plan(handle, limits) : g.plan_of_rank(handle, rank, limits);
  };
  if (p.kind == Kind::input_grad) {
    g.convolution_input_grad_into(x, how, y, weight);
    return plan();
  }
  if (p.kind == Kind::weight_grad) {
    g.convolution_weight_grad_into(weight, how, y, x);
    return plan();
  }
  Chain chain(g, y, 1 + p.bias + p.residual + operations_of(p.epilogue));
  Tensor sum = chain.next();
  g.convolution_into(sum, how, x, weight);
  if (p.bias) {
    const std::int64_t c = p.y.c;
    sum = chain.apply(PointwiseMode::add, sum,
                      g.in_memory(id_bias, type, {1, c, 1, 1}, {c, 1, c, c}));
  }
  if (p.residual)
    sum = chain.apply(PointwiseMode::add, sum, image(g, id_residual, type, p.y, layout));
  append(g, chain, p.epilogue, sum);
  return plan();
}

class CudnnConv final : public FusedConv {
 public:
  explicit CudnnConv(Plan plan) : plan_(std::move(plan)) {}
  std::size_t workspace() const override { return plan_.workspace() + workspace_alignment; }
  void run(Stream stream, const ConvPointers& o, void* workspace) const override {
    std::vector<cudnn::Binding> bindings{{id_x, o.x}, {id_weight, o.weight}, {id_y, o.y}};
    if (o.bias) bindings.push_back({id_bias, o.bias});
    if (o.residual) bindings.push_back({id_residual, o.residual});
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    const std::uintptr_t aligned =
        (address + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
    plan_.run(stream, bindings, reinterpret_cast<void*>(aligned));
  }

 private:
  Plan plan_;
};

}  // namespace

std::unique_ptr<FusedConv> cudnn_conv(const cudnn::Library& library, cudnn::Handle handle,
                                      const ConvProblem& problem, std::size_t rank) {
  return std::make_unique<CudnnConv>(plan_of(library, handle, problem, rank));
}

}  // namespace ridge::gpu
