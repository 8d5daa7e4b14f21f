#include "ridge/ops/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/gpu/device/candidates.h"
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

// Whether the library may take the layout for another one and compute something else. cuDNN 9.14
// does so by most of its plans with an epilogue: where the input or the output has one pixel, its
// strides are also those of channels last, and the plans read the other image as such too.
bool is_misread(const ConvProblem& p) {
  return p.geometry.layout == ImageLayout::nchw && (p.x.pixels() == 1 || p.y.pixels() == 1);
}

ConvProblem problem_of(Kind kind, const ConvGeometry& geometry, const GpuPrepare& prepare,
                       const Shape& x, const Shape& weight, const Shape& y) {
  ConvProblem problem{.kind = kind,
                      .geometry = geometry,
                      .x = {x, geometry.layout},
                      .y = {y, geometry.layout},
                      .weight = {weight, geometry.layout},
                      .dtype = prepare.in[0].dtype,
                      .tf32 = prepare.choice.tf32,
                      .deterministic = prepare.gpu.deterministic};
  // Where all have one pixel, both layouts are the same in memory: see is_misread().
  if (problem.x.pixels() == 1 && problem.y.pixels() == 1 && problem.weight.pixels() == 1)
    problem.geometry.layout = ImageLayout::nhwc;
  return problem;
}

// What candidates are asked about a convolution.
struct ConvWork {
  const gpu::Context& gpu;
  std::string_view name;
  ConvProblem problem;
  PointersOf pointers;
  PrepareOwn own;       // the plain kernel, which takes everything
  std::string library;  // its version
  bool depthwise, banded;
  // The tiles expected to be the best, where there are any, and whether patches are better still.
  std::optional<gpu::ConvTiles> tiles;
  bool patches;

  ConvWork(const gpu::Context& context, std::string_view op, const ConvProblem& p,
           PointersOf pointers_of, PrepareOwn plain)
      : gpu(context),
        name(op),
        problem(p),
        pointers(std::move(pointers_of)),
        own(std::move(plain)),
        library(context.dnn->version()),
        depthwise(gpu::is_depthwise(p)),
        banded(depthwise && gpu::depthwise_sm90_supports(context, p)),
        tiles(depthwise ? std::nullopt : gpu::conv_sm90_expected_best(context, p)),
        patches(!depthwise && gpu::conv_sm90_prefers_patches(context, p)) {}

  std::string key() const { return fmt::format("{} {}", library, work()); }
  std::string work() const { return fmt::format("{} {}", name, gpu::to_string(problem)); }
};

// By a kernel that wants its operands aligned; by our own where they are not.
KernelPtr unless_unaligned(GpuPrepare& prepare, const ConvWork& work, std::size_t workspace,
                           std::function<void(const ConvPointers&, void*)> run) {
  GpuPrepare of_own = prepare;
  of_own.workspace = 0;
  std::shared_ptr<Kernel> unaligned = work.own(of_own);
  prepare.workspace = std::max(workspace, of_own.workspace);
  return make_kernel(
      [run = std::move(run), unaligned, pointers = work.pointers](const Launch& call) {
        if (!gpu::is_aligned(call, vendors_alignment)) return unaligned->launch(call);
        run(pointers(call), call.workspace);
      });
}

KernelPtr kernel_of(GpuPrepare& prepare, const ConvWork& work, std::shared_ptr<FusedConv> conv) {
  const std::size_t workspace = conv->workspace();
  return unless_unaligned(
      prepare, work, workspace,
      [&gpu = prepare.gpu, conv = std::move(conv)](const ConvPointers& operands, void* memory) {
        conv->run(gpu.stream, operands, memory);
      });
}

// By the library's plan of this rank. Where it cannot finish an f32 result as it should, we do that
// after it. DeviceError if it cannot convolve so at all.
KernelPtr vendors_conv(GpuPrepare& prepare, const ConvWork& work, std::size_t rank) {
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

// Whether it is a product of so many pixels with so few channels that memory is what limits it,
// where the library's kernels move more than ours.
bool streams(const ConvProblem& p, const gpu::Crossovers& at) {
  return p.weight.pixels() == 1 && p.y.n * p.y.pixels() >= at.streaming_pixels &&
         std::min(p.x.c, p.y.c) >= at.streaming_channels &&
         p.x.c * p.y.c <= at.streaming_products_per_element * (p.x.c + p.y.c);
}

// Whether our tiles are expected to be faster than the library.
bool prefers_tiles(const ConvWork& work) {
  if (!work.tiles) return false;
  // Windows of few pixels: the library leaves most of the card idle.
  const bool in_parts = work.tiles->split > 1 && work.problem.weight.pixels() > 1;
  return work.patches || work.tiles->few_channels || in_parts ||
         streams(work.problem, work.gpu.card.crossovers()) || !is_ready_made(work.problem);
}

// How many of the library's plans are worth timing: one of those that it has to compile.
std::size_t plans_of(const ConvWork& work) {
  constexpr std::size_t most_plans = 8;
  if (is_misread(work.problem)) return 0;
  // As fast as banded products only with a stride.
  if (work.depthwise) return work.banded && work.problem.geometry.stride == Pair{1, 1} ? 0 : 1;
  if (!prefers_tiles(work)) return most_plans;
  return work.tiles->few_channels || !is_ready_made(work.problem) ? 1 : most_plans;
}

// What is expected of candidates, from the slowest to the fastest.
enum Expected : int {
  late_tiles,
  late_best_tiles,  // where the library is expected to be faster
  further_plans,
  plain,
  best_plan,
  padded_plans,
  early_tiles,
  early_best_tiles,  // where they are expected to be faster
  plain_depthwise,
  special  // kernels for this kind of convolution alone
};

using ConvCandidate = gpu::Candidate<ConvWork>;

constexpr ConvCandidate banded_products{
    .name = [](const ConvWork&) -> std::string { return "banded products"; },
    .supports = [](const ConvWork& w) { return w.banded; },
    .expectation = [](const ConvWork&, const gpu::Card&) -> int { return special; },
    .prepare =
        [](const ConvWork& w, GpuPrepare& p) {
          return kernel_of(p, w, gpu::depthwise_sm90(w.gpu, w.problem));
        }};

// The plain kernel is a match for others only where channels are apart.
constexpr ConvCandidate depthwise_kernel{
    .name = [](const ConvWork&) -> std::string { return "own kernels"; },
    .supports = [](const ConvWork& w) { return w.depthwise; },
    .expectation = [](const ConvWork&, const gpu::Card&) -> int { return plain_depthwise; },
    .prepare = [](const ConvWork& w, GpuPrepare& p) { return w.own(p); }};
constexpr ConvCandidate plain_kernel{
    .name = [](const ConvWork&) -> std::string { return "own kernels"; },
    .supports = [](const ConvWork& w) { return !w.depthwise && !prefers_tiles(w); },
    .expectation = [](const ConvWork&, const gpu::Card&) -> int { return plain; },
    .prepare = [](const ConvWork& w, GpuPrepare& p) { return w.own(p); },
    .fallback = true};

template <gpu::ConvTiles tiles>
constexpr ConvCandidate in_tiles{
    .name = [](const ConvWork&) { return gpu::to_string(tiles); },
    .supports =
        [](const ConvWork& w) {
          return !w.depthwise && gpu::conv_sm90_supports(w.gpu, w.problem, tiles);
        },
    .expectation = [](const ConvWork& w, const gpu::Card&) -> int {
      if (tiles.patches && w.patches) return special;
      if (prefers_tiles(w)) return w.tiles == tiles ? early_best_tiles : early_tiles;
      return w.tiles == tiles ? late_best_tiles : late_tiles;
    },
    .prepare =
        [](const ConvWork& w, GpuPrepare& p) {
          return kernel_of(p, w, gpu::conv_sm90(w.gpu, w.problem, tiles));
        }};

template <std::size_t rank>
constexpr ConvCandidate plan{
    .name =
        [](const ConvWork& w) {
          return rank == 0 ? w.library : fmt::format("{}, plan {}", w.library, rank);
        },
    .supports = [](const ConvWork& w) { return rank < plans_of(w); },
    .expectation = [](const ConvWork&, const gpu::Card&) -> int {
      return rank == 0 ? best_plan : further_plans;
    },
    .prepare = [](const ConvWork& w, GpuPrepare& p) { return vendors_conv(p, w, rank); },
    .may_compile = true};

template <std::size_t rank>
constexpr ConvCandidate padded_plan{
    .name = [](const ConvWork& w) { return fmt::format("{}, padded, plan {}", w.library, rank); },
    .supports = [](const ConvWork& w) { return !w.depthwise && gpu::takes_padding(w.problem); },
    .expectation = [](const ConvWork&, const gpu::Card&) -> int { return padded_plans; },
    .prepare =
        [](const ConvWork& w, GpuPrepare& p) {
          return kernel_of(p, w, gpu::padded_weight_grad(w.gpu, w.problem, rank));
        },
    .may_compile = true};

constexpr auto candidates = gpu::joined_rows(
    std::array{banded_products,
               depthwise_kernel,
               in_tiles<{.columns = 128}>,
               in_tiles<{.columns = 128, .paired = true}>,
               in_tiles<{.columns = 96}>,
               in_tiles<{.columns = 64}>,
               in_tiles<{.columns = 64, .paired = true}>,
               in_tiles<{.columns = 256}>,
               in_tiles<{.columns = 256, .paired = true}>,
               in_tiles<{.columns = 32}>,
               in_tiles<{.rows = 64, .columns = 64, .split = 1}>,
               in_tiles<{.rows = 64, .columns = 64, .split = 2}>,
               in_tiles<{.rows = 64, .columns = 64, .split = 4}>,
               in_tiles<{.rows = 64, .columns = 64, .split = 8}>,
               in_tiles<{.rows = 64, .columns = 32, .split = 1}>,
               in_tiles<{.rows = 64, .columns = 32, .split = 2}>,
               in_tiles<{.rows = 64, .columns = 32, .split = 4}>,
               in_tiles<{.rows = 64, .columns = 32, .split = 8}>,
               in_tiles<{.columns = 64, .few_channels = true}>,
               in_tiles<{.columns = 32, .few_channels = true}>,
               in_tiles<{.patches = true}>},
    gpu::numbered_rows<ConvWork, 4>([]<std::size_t rank>() { return padded_plan<rank>; }),
    gpu::numbered_rows<ConvWork, 8>([]<std::size_t rank>() { return plan<rank>; }),
    std::array{plain_kernel});

KernelPtr convolution(GpuPrepare& prepare, const ConvWork& work) {
  return gpu::best_kernel<ConvWork>(prepare, work, candidates);
}

}  // namespace

KernelPtr Conv2d::gpu(GpuPrepare& prepare) const {
  ConvProblem problem = problem_of(Kind::forward, *this, prepare, prepare.in[0].shape,
                                   prepare.in[1].shape, prepare.out[0].shape);
  problem.bias = bias;
  problem.residual = residual;
  problem.epilogue = epilogue;
  return convolution(prepare, {prepare.gpu, name, problem,
                               [op = *this](const Launch& call) {
                                 const Operands at = op.operands();
                                 return ConvPointers{
                                     call.inputs[at.x], call.inputs[at.weight], call.outputs[0],
                                     op.bias ? call.inputs[at.bias] : nullptr,
                                     op.residual ? call.inputs[at.residual] : nullptr};
                               },
                               [op = *this](GpuPrepare& p) { return gpu::direct_conv(op, p); }});
}

KernelPtr Conv2dInputGrad::gpu(GpuPrepare& prepare) const {
  const ConvProblem problem =
      problem_of(Kind::input_grad, *this, prepare, image, prepare.in[1].shape, prepare.in[0].shape);
  return convolution(prepare,
                     {prepare.gpu, name, problem,
                      [](const Launch& call) {
                        return ConvPointers{call.outputs[0], call.inputs[1], call.inputs[0]};
                      },
                      [op = *this](GpuPrepare& p) { return gpu::direct_conv_input_grad(op, p); }});
}

KernelPtr Conv2dWeightGrad::gpu(GpuPrepare& prepare) const {
  const ConvProblem problem = problem_of(Kind::weight_grad, *this, prepare, prepare.in[1].shape,
                                         weight, prepare.in[0].shape);
  return convolution(prepare,
                     {prepare.gpu, name, problem,
                      [](const Launch& call) {
                        return ConvPointers{call.inputs[1], call.outputs[0], call.inputs[0]};
                      },
                      [op = *this](GpuPrepare& p) { return gpu::direct_conv_weight_grad(op, p); }});
}

}  // namespace ridge
