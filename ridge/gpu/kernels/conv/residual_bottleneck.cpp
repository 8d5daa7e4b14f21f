#include "ridge/ops/residual_bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ridge/device/residual_bottleneck_kernels.h"
#include "ridge/gpu/device/kernel_ways.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/conv/bottleneck_sm90.h"

namespace ridge {
namespace {

using gpu::BottleneckPointers;
using gpu::BottleneckProblem;
using gpu::BottleneckWay;

BottleneckProblem problem_of(const ResidualBottleneck& op, const GpuPrepare& prepare) {
  const ImageShape weight(prepare.in[1].shape, op.layout);
  return {.x = {prepare.in[0].shape, op.layout},
          .size = weight.h == weight.w ? weight.h : 0,
          .inner = weight.n,
          .expanded = prepare.in[3].shape[0],
          .projected = op.projects ? ImageShape(prepare.in[5].shape, op.layout).c : 0,
          .reduced = op.reduces ? prepare.in[op.reduction_operand()].shape[0] : 0,
          .dtype = prepare.in[0].dtype};
}

BottleneckPointers pointers_of(const ResidualBottleneck& op, const Launch& call) {
  const auto& in = call.inputs;
  BottleneckPointers p{in[0], in[1], in[2], in[3], in[4], in[5]};
  p.y = call.outputs[0];
  if (op.projects) {
    p.projection = in[6];
    p.projection_bias = in[7];
  }
  if (op.reduces) {
    p.reduction = in[op.reduction_operand()];
    p.reduction_bias = in[op.reduction_operand() + 1];
    p.reduced = call.outputs[1];
  }
  return p;
}

bool is_aligned(const Launch& call) {
  constexpr std::size_t alignment = 16;
  const auto aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
  };
  return std::ranges::all_of(call.inputs, aligned) && std::ranges::all_of(call.outputs, aligned);
}

KernelPtr parts_kernel(const ResidualBottleneck& op, GpuPrepare& prepare) {
  return in_parts(op, prepare,
                  [](const Conv2d& conv, GpuPrepare& of_part) { return conv.gpu(of_part); });
}

// By the kernels of the parts, image by image: what they hand on takes little memory so.
KernelPtr parts_of_each_image(const ResidualBottleneck& op, GpuPrepare& prepare) {
  const std::array<std::size_t, 2> images{0, 5};  // operands; so are all results
  const std::int64_t n = prepare.in[0].shape[0];
  std::vector<TensorType> in(prepare.in.begin(), prepare.in.end()),
      out(prepare.out.begin(), prepare.out.end());
  std::vector<std::size_t> in_bytes(in.size(), 0), out_bytes;
  const auto bytes_of_one = [](TensorType& type) {
    type.shape = {1, type.shape[1], type.shape[2], type.shape[3]};
    return type.bytes();
  };
  for (const std::size_t i : images) in_bytes[i] = bytes_of_one(in[i]);
  for (TensorType& type : out) out_bytes.push_back(bytes_of_one(type));
  GpuPrepare of_one = prepare;
  of_one.in = in;
  of_one.out = out;
  of_one.workspace = 0;
  of_one.choice.tuner = nullptr;
  std::shared_ptr<Kernel> one = parts_kernel(op, of_one);
  prepare.workspace = of_one.workspace;
  return make_kernel([n, in_bytes, out_bytes, one](const Launch& call) {
    std::vector<const void*> from(call.inputs.begin(), call.inputs.end());
    std::vector<void*> to(call.outputs.begin(), call.outputs.end());
    for (std::int64_t image = 0; image < n; ++image) {
      one->launch({from, to, call.workspace});
      for (std::size_t i = 0; i < from.size(); ++i)
        from[i] = static_cast<const std::byte*>(from[i]) + in_bytes[i];
      for (std::size_t o = 0; o < to.size(); ++o)
        to[o] = static_cast<std::byte*>(to[o]) + out_bytes[o];
    }
  });
}

// In one kernel; where operands are not aligned for it, otherwise.
KernelPtr one_kernel(const ResidualBottleneck& op, const BottleneckProblem& problem,
                     BottleneckWay way, GpuPrepare& prepare) {
  std::shared_ptr<Kernel> unaligned = parts_of_each_image(op, prepare);
  return make_kernel([&gpu = prepare.gpu, op, problem, way, unaligned](const Launch& call) {
    if (!is_aligned(call)) return unaligned->launch(call);
    bottleneck90(gpu, problem, way, pointers_of(op, call));
  });
}

}  // namespace

KernelPtr ResidualBottleneck::gpu(GpuPrepare& prepare) const {
  const BottleneckProblem problem = problem_of(*this, prepare);
  std::vector<gpu::KernelWay> ways;
  const auto add = [&](BottleneckWay way, const char* what) {
    if (!bottleneck90_supports(prepare.gpu, *this, problem, way)) return;
    ways.push_back(
        {what, [=, op = *this](GpuPrepare& p) { return one_kernel(op, problem, way, p); }});
  };
  const bool is_large = bottleneck90_tiles(problem) >= prepare.gpu.multiprocessors;
  if (is_large) add(BottleneckWay::large_tiles, "one kernel, tiles of 128 pixels");
  add(BottleneckWay::small_tiles, "one kernel, tiles of 64 pixels");
  if (!is_large) add(BottleneckWay::large_tiles, "one kernel, tiles of 128 pixels");
  ways.push_back({"convolutions", [op = *this](GpuPrepare& p) { return parts_kernel(op, p); }});
  if (ways.size() == 1) return ways[0].prepare(prepare);
  const std::string work =
      fmt::format("{} {}[{}, {}, {}, {}] to {}, {} projected, {} reduced", name,
                  name_of(problem.dtype), problem.x.n, problem.x.h, problem.x.w, problem.x.c,
                  problem.expanded, problem.projected, problem.reduced);
  return gpu::fastest_kernel(prepare, work, work, ways);
}

}  // namespace ridge
