#include "ridge/ops/residual_bottleneck.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ridge/device/residual_bottleneck_kernels.h"
#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/conv/bottleneck_sm90.h"

namespace ridge {
namespace {

using gpu::BottleneckPointers;
using gpu::BottleneckProblem;
using gpu::BottleneckTiles;

BottleneckProblem problem_of(const ResidualBottleneck& op, const GpuPrepare& prepare) {
  const ResidualBottleneck::Operands at = op.operands();
  const ImageShape weight(prepare.in[at.w1].shape, op.layout);
  return {.x = {prepare.in[at.x].shape, op.layout},
          .size = weight.h == weight.w ? weight.h : 0,
          .inner = weight.n,
          .expanded = prepare.in[at.w2].shape[0],
          .projected = op.projects ? ImageShape(prepare.in[at.residual].shape, op.layout).c : 0,
          .reduced = op.reduces ? prepare.in[at.w3].shape[0] : 0,
          .dtype = prepare.in[at.x].dtype};
}

BottleneckPointers pointers_of(const ResidualBottleneck& op, const Launch& call) {
  const auto& in = call.inputs;
  const ResidualBottleneck::Operands at = op.operands();
  BottleneckPointers p{in[at.x], in[at.w1], in[at.b1], in[at.w2], in[at.b2], in[at.residual]};
  p.y = call.outputs[0];
  if (op.projects) {
    p.projection = in[at.wp];
    p.projection_bias = in[at.bp];
  }
  if (op.reduces) {
    p.reduction = in[at.w3];
    p.reduction_bias = in[at.b3];
    p.reduced = call.outputs[1];
  }
  return p;
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
                     BottleneckTiles tiles, GpuPrepare& prepare) {
  std::shared_ptr<Kernel> unaligned = parts_of_each_image(op, prepare);
  return make_kernel([&gpu = prepare.gpu, op, problem, tiles, unaligned](const Launch& call) {
    if (!gpu::is_aligned(call, 16)) return unaligned->launch(call);
    bottleneck_sm90(gpu, problem, tiles, pointers_of(op, call));
  });
}

// What candidates are asked.
struct BottleneckWork {
  const gpu::Context& gpu;
  const ResidualBottleneck& op;
  BottleneckProblem problem;

  std::string key() const { return work(); }
  std::string work() const {
    return fmt::format("{} {}[{}, {}, {}, {}] to {}, {} projected, {} reduced",
                       ResidualBottleneck::name, name_of(problem.dtype), problem.x.n, problem.x.h,
                       problem.x.w, problem.x.c, problem.expanded, problem.projected,
                       problem.reduced);
  }
};

using BottleneckCandidate = gpu::Candidate<BottleneckWork>;

template <BottleneckTiles tiles>
bool supports(const BottleneckWork& w) {
  return bottleneck_sm90_supports(w.gpu, w.op, w.problem, tiles);
}
template <BottleneckTiles tiles>
KernelPtr prepared(const BottleneckWork& w, GpuPrepare& prepare) {
  return one_kernel(w.op, w.problem, tiles, prepare);
}

// Large tiles are the faster ones where there are enough to go round.
constexpr BottleneckCandidate candidates[] = {
    {.name = [](const BottleneckWork&) -> std::string { return "one kernel, tiles of 128 pixels"; },
     .supports = supports<BottleneckTiles::large>,
     .expectation =
         [](const BottleneckWork& w, const gpu::Card& card) {
           return bottleneck_sm90_tiles(w.problem) >= card.multiprocessors ? 3 : 1;
         },
     .prepare = prepared<BottleneckTiles::large>},
    {.name = [](const BottleneckWork&) -> std::string { return "one kernel, tiles of 64 pixels"; },
     .supports = supports<BottleneckTiles::small>,
     .expectation = [](const BottleneckWork&, const gpu::Card&) { return 2; },
     .prepare = prepared<BottleneckTiles::small>},
    {.name = [](const BottleneckWork&) -> std::string { return "convolutions"; },
     .supports = [](const BottleneckWork&) { return true; },
     .expectation = [](const BottleneckWork&, const gpu::Card&) { return 0; },
     .prepare = [](const BottleneckWork& w, GpuPrepare& p) { return parts_kernel(w.op, p); }},
};

}  // namespace

KernelPtr ResidualBottleneck::gpu(GpuPrepare& prepare) const {
  return gpu::best_kernel<BottleneckWork>(prepare, {prepare.gpu, *this, problem_of(*this, prepare)},
                                          candidates);
}

}  // namespace ridge
