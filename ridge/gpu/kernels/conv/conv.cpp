#include "ridge/ops/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/gpu/device/kernel_ways.h"
#include "ridge/gpu/kernels/conv/conv_direct.h"
#include "ridge/gpu/kernels/conv/conv_padded.h"
#include "ridge/gpu/kernels/conv/conv_sm90.h"
#include "ridge/gpu/vendor/dnn.h"
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
// Of the library's plans, that are timed: of those that it has, and that it has to compile.
constexpr std::size_t most_plans = 8, most_padded_plans = 4, most_compiled_plans = 1;

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

// What all ways to compute a convolution need.
struct Work {
  std::string_view name;
  ConvProblem problem;
  PointersOf pointers;
  PrepareOwn own;  // takes everything
};

// By a kernel that wants its operands aligned; by our own where they are not.
KernelPtr unless_unaligned(GpuPrepare& prepare, const Work& work, std::size_t workspace,
                           std::function<void(const ConvPointers&, void*)> run) {
  GpuPrepare of_own = prepare;
  of_own.workspace = 0;
  std::shared_ptr<Kernel> unaligned = work.own(of_own);
  prepare.workspace = std::max(workspace, of_own.workspace);
  return make_kernel(
      [run = std::move(run), unaligned, pointers = work.pointers](const Launch& call) {
        if (!is_aligned(call)) return unaligned->launch(call);
        run(pointers(call), call.workspace);
      });
}

KernelPtr kernel_of(GpuPrepare& prepare, const Work& work, std::shared_ptr<FusedConv> conv) {
  const std::size_t workspace = conv->workspace();
  return unless_unaligned(
      prepare, work, workspace,
      [&gpu = prepare.gpu, conv = std::move(conv)](const ConvPointers& operands, void* memory) {
        conv->run(gpu.stream, operands, memory);
      });
}

// By the library's plan of this rank. Where it cannot finish an f32 result as it should, we do that
// after it. DeviceError if it cannot convolve so at all.
KernelPtr vendors_conv(GpuPrepare& prepare, const Work& work, std::size_t rank) {
  const ConvProblem& problem = work.problem;
  try {
    return kernel_of(prepare, work, prepare.gpu.dnn->conv(problem, rank));
  } catch (const DeviceError&) {
    if (problem.kind != Kind::forward || problem.dtype != DType::f32) throw;
  }
  ConvProblem plain = problem;
  plain.bias = plain.residual = false;
  plain.epilogue = Epilogue::none;
  std::shared_ptr<FusedConv> conv = prepare.gpu.dnn->conv(plain, rank);
  const std::size_t workspace = conv->workspace();
  return unless_unaligned(
      prepare, work, workspace,
      [&gpu = prepare.gpu, problem, conv](const ConvPointers& all, void* memory) {
        ConvPointers operands = all;
        operands.bias = operands.residual = nullptr;
        conv->run(gpu.stream, operands, memory);
        gpu::finish_conv(gpu, problem, all);
      });
}

std::string version_or_nothing(gpu::Dnn& dnn) {
  try {
    return dnn.version();
  } catch (const DeviceError&) {
    return {};
  }
}

// Whether the library has kernels for what follows the convolution; for all else it compiles one
// when a plan is prepared, most of a second long, and ours are faster.
bool is_ready_made(const ConvProblem& problem) {
  return !problem.residual &&
         (problem.epilogue == Epilogue::none || problem.epilogue == Epilogue::relu);
}

// Whether it is a product of so many pixels with so few channels that memory is what limits it,
// where ours move more.
bool streams(const ConvProblem& p) {
  constexpr std::int64_t fewest_pixels = 24000, fewest_channels = 64,
                         most_products_per_element = 105;
  return p.weight.pixels() == 1 && p.y.n * p.y.pixels() >= fewest_pixels &&
         std::min(p.x.c, p.y.c) >= fewest_channels &&
         p.x.c * p.y.c <= most_products_per_element * (p.x.c + p.y.c);
}

// The ways to compute a convolution, the one that is taken without a tuner first.
std::vector<gpu::KernelWay> ways_of(const gpu::Context& gpu, const Work& work) {
  const ConvProblem& problem = work.problem;
  std::vector<gpu::KernelWay> ways;
  const auto add = [&](std::string name, PrepareOwn prepare) {
    ways.push_back({std::move(name), std::move(prepare)});
  };
  const std::string library = version_or_nothing(*gpu.dnn);
  const auto add_vendors = [&](std::size_t first, std::size_t plans) {
    if (library.empty()) return;
    for (std::size_t rank = first; rank < plans; ++rank)
      add(rank == 0 ? library : fmt::format("{}, plan {}", library, rank),
          [=](GpuPrepare& p) { return vendors_conv(p, work, rank); });
  };
  if (gpu::is_depthwise(problem)) {
    const bool in_bands = gpu::depthwise90_supports(gpu, problem);
    if (in_bands)
      add("banded products", [=, &gpu](GpuPrepare& p) {
        return kernel_of(p, work, gpu::depthwise90(gpu, work.problem));
      });
    add("own kernels", work.own);
    // The library compiles a kernel for each, which only with a stride is as fast as banded
    // products.
    if (!in_bands || problem.geometry.stride != Pair{1, 1}) add_vendors(0, 1);
    return ways;
  }
  const std::vector<gpu::ConvTiles> all_tiles = gpu::conv90_ways(gpu, problem);
  const auto add_tiles = [&] {
    for (const gpu::ConvTiles& tiles : all_tiles)
      add(gpu::to_string(tiles), [=, &gpu](GpuPrepare& p) {
        return kernel_of(p, work, gpu::conv90(gpu, work.problem, tiles));
      });
  };
  const bool is_first = !all_tiles.empty() && all_tiles.front().few_channels;
  const bool of_patches = !all_tiles.empty() && all_tiles.front().patches;
  // Windows of few pixels: the library leaves most of the card idle.
  const bool in_parts =
      !all_tiles.empty() && all_tiles.front().split > 1 && problem.weight.pixels() > 1;
  if (!all_tiles.empty() &&
      (is_first || of_patches || in_parts || streams(problem) || !is_ready_made(problem))) {
    add_tiles();
    add_vendors(0, is_first ? 1 : is_ready_made(problem) ? most_plans : most_compiled_plans);
    return ways;
  }
  const auto vendors_or_own = [=](GpuPrepare& p) {
    try {
      return vendors_conv(p, work, 0);
    } catch (const DeviceError&) {
      return work.own(p);
    }
  };
  if (gpu::takes_padding(problem) && !library.empty())
    for (std::size_t rank = 0; rank < most_padded_plans; ++rank)
      add(fmt::format("{}, padded, plan {}", library, rank), [=, &gpu](GpuPrepare& p) {
        try {
          return kernel_of(p, work, gpu::padded_weight_grad(gpu, work.problem, rank));
        } catch (const DeviceError&) {
          if (rank > 0) throw;
          return vendors_or_own(p);
        }
      });
  add(library.empty() ? "own kernels" : library, vendors_or_own);
  add_vendors(1, most_plans);
  add_tiles();
  return ways;
}

// Whichever way the tuner finds the fastest.
KernelPtr convolution(GpuPrepare& prepare, const Work& work) {
  const std::vector<gpu::KernelWay> ways = ways_of(prepare.gpu, work);
  const std::string what = fmt::format("{} {}", work.name, gpu::to_string(work.problem));
  const std::string key = fmt::format("{} {}", version_or_nothing(*prepare.gpu.dnn), what);
  return gpu::fastest_kernel(prepare, key, what, ways);
}

}  // namespace

KernelPtr Conv2d::gpu(GpuPrepare& prepare) const {
  ConvProblem problem = problem_of(Kind::forward, *this, prepare, prepare.in[0].shape,
                                   prepare.in[1].shape, prepare.out[0].shape);
  problem.bias = bias;
  problem.residual = residual;
  problem.epilogue = epilogue;
  return convolution(prepare, {name, problem,
                               [op = *this](const Launch& call) {
                                 return ConvPointers{
                                     call.inputs[0], call.inputs[1], call.outputs[0],
                                     op.bias ? call.inputs[2] : nullptr,
                                     op.residual ? call.inputs[2u + op.bias] : nullptr};
                               },
                               [op = *this](GpuPrepare& p) { return gpu::direct_conv(op, p); }});
}

KernelPtr Conv2dInputGrad::gpu(GpuPrepare& prepare) const {
  const ConvProblem problem =
      problem_of(Kind::input_grad, *this, prepare, image, prepare.in[1].shape, prepare.in[0].shape);
  return convolution(prepare,
                     {name, problem,
                      [](const Launch& call) {
                        return ConvPointers{call.outputs[0], call.inputs[1], call.inputs[0]};
                      },
                      [op = *this](GpuPrepare& p) { return gpu::direct_conv_input_grad(op, p); }});
}

KernelPtr Conv2dWeightGrad::gpu(GpuPrepare& prepare) const {
  const ConvProblem problem = problem_of(Kind::weight_grad, *this, prepare, prepare.in[1].shape,
                                         weight, prepare.in[0].shape);
  return convolution(prepare,
                     {name, problem,
                      [](const Launch& call) {
                        return ConvPointers{call.inputs[1], call.outputs[0], call.inputs[0]};
                      },
                      [op = *this](GpuPrepare& p) { return gpu::direct_conv_weight_grad(op, p); }});
}

}  // namespace ridge
