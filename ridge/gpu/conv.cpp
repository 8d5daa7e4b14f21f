#include "ridge/ops/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/gpu/conv_direct.h"
#include "ridge/gpu/dnn.h"
#include "ridge/gpu/kernel_ways.h"
#include "ridge/ops/check.h"

namespace ridge {
namespace {

using gpu::ConvPointers;
using gpu::ConvProblem;
using gpu::FusedConv;
using Kind = ConvProblem::Kind;
using PrepareOwn = std::function<KernelPtr(GpuPrepare&)>;
using PointersOf = std::function<ConvPointers(const Launch&)>;

constexpr std::size_t vendors_alignment = 16;

ConvProblem problem_of(Kind kind, const ConvGeometry& geometry, const GpuPrepare& prepare,
                       const Shape& x, const Shape& weight, const Shape& y) {
  return {.kind = kind,
          .geometry = geometry,
          .x = {x, geometry.layout},
          .y = {y, geometry.layout},
          .weight = {weight, geometry.layout},
          .dtype = prepare.in[0].dtype,
          .tf32 = prepare.choice.tf32,
          .deterministic = prepare.gpu.deterministic};
}

bool is_aligned(const Launch& call) {
  const auto aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % vendors_alignment == 0;
  };
  return std::ranges::all_of(call.inputs, aligned) && std::ranges::all_of(call.outputs, aligned);
}

// By the library; by our own kernel where operands are aligned to their elements only. Where the
// library cannot finish an f32 result as it should, we do that after it. DeviceError if it cannot
// convolve so at all.
KernelPtr vendors_conv(GpuPrepare& prepare, const ConvProblem& problem, const PointersOf& pointers,
                       const PrepareOwn& own) {
  std::shared_ptr<FusedConv> conv;
  bool finishes = true;
  try {
    conv = prepare.gpu.dnn->conv(problem);
  } catch (const DeviceError&) {
    if (problem.kind != Kind::forward || problem.dtype != DType::f32) throw;
    ConvProblem plain = problem;
    plain.bias = plain.residual = false;
    plain.epilogue = ConvEpilogue::none;
    conv = prepare.gpu.dnn->conv(plain);
    finishes = false;
  }
  GpuPrepare of_own = prepare;
  of_own.workspace = 0;
  std::shared_ptr<Kernel> unaligned = own(of_own);
  prepare.workspace = std::max(conv->workspace(), of_own.workspace);
  return make_kernel(
      [&gpu = prepare.gpu, problem, conv, finishes, unaligned, pointers](const Launch& call) {
        if (!is_aligned(call)) return unaligned->launch(call);
        ConvPointers operands = pointers(call);
        const ConvPointers all = operands;
        if (!finishes) operands.bias = operands.residual = nullptr;
        conv->run(gpu.stream, operands, call.workspace);
        if (!finishes) gpu::finish_conv(gpu, problem, all);
      });
}

// The library's kernels, but our own where each channel is convolved for itself, unless the tuner
// finds the others faster; and where the library has none.
KernelPtr convolution(std::string_view name, GpuPrepare& prepare, const ConvProblem& problem,
                      const Shape& image, const Shape& weight, const PointersOf& pointers,
                      const PrepareOwn& own) {
  const auto vendors = [&](GpuPrepare& p) { return vendors_conv(p, problem, pointers, own); };
  if (gpu::is_depthwise(problem.geometry, image, weight)) {
    if (!prepare.choice.tuner) return own(prepare);
    const std::string work =
        fmt::format("{} {}, {} channels apart, stride {}", name, list_of(prepare.in),
                    problem.geometry.groups, problem.geometry.stride[0]);
    return gpu::fastest_kernel(prepare, work, work, {{"own kernels", own}, {"cuDNN", vendors}});
  }
  try {
    return vendors(prepare);
  } catch (const DeviceError&) {
    return own(prepare);
  }
}

}  // namespace

KernelPtr Conv2d::gpu(GpuPrepare& prepare) const {
  ConvProblem problem = problem_of(Kind::forward, *this, prepare, prepare.in[0].shape,
                                   prepare.in[1].shape, prepare.out[0].shape);
  problem.bias = bias;
  problem.residual = residual;
  problem.epilogue = epilogue;
  return convolution(
      name, prepare, problem, prepare.in[0].shape, prepare.in[1].shape,
      [op = *this](const Launch& call) {
        return ConvPointers{call.inputs[0], call.inputs[1], call.outputs[0],
                            op.bias ? call.inputs[2] : nullptr,
                            op.residual ? call.inputs[2u + op.bias] : nullptr};
      },
      [op = *this](GpuPrepare& p) { return gpu::direct_conv(op, p); });
}

KernelPtr Conv2dInputGrad::gpu(GpuPrepare& prepare) const {
  const ConvProblem problem =
      problem_of(Kind::input_grad, *this, prepare, image, prepare.in[1].shape, prepare.in[0].shape);
  return convolution(
      name, prepare, problem, image, prepare.in[1].shape,
      [](const Launch& call) {
        return ConvPointers{call.outputs[0], call.inputs[1], call.inputs[0]};
      },
      [op = *this](GpuPrepare& p) { return gpu::direct_conv_input_grad(op, p); });
}

KernelPtr Conv2dWeightGrad::gpu(GpuPrepare& prepare) const {
  const ConvProblem problem = problem_of(Kind::weight_grad, *this, prepare, prepare.in[1].shape,
                                         weight, prepare.in[0].shape);
  return convolution(
      name, prepare, problem, prepare.in[1].shape, weight,
      [](const Launch& call) {
        return ConvPointers{call.inputs[1], call.outputs[0], call.inputs[0]};
      },
      [op = *this](GpuPrepare& p) { return gpu::direct_conv_weight_grad(op, p); });
}

}  // namespace ridge
