#include "ridge/gpu/kernels/conv/int8_conv.h"

#include <fmt/format.h>

#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge {
namespace {

constexpr std::size_t alignment = 16;  // of operands that the copy engine moves

gpu::Int8Pointers pointers_of(const Int8Conv2d& op, const Launch& call) {
  const Int8Conv2d::Operands at = op.operands();
  return {call.inputs[at.x],
          call.inputs[at.weight],
          call.in<float>(at.weight_scale),
          call.in<float>(at.bias),
          op.residual ? call.inputs[at.residual] : nullptr,
          call.outputs[0]};
}

// What candidates are asked.
struct Int8Work {
  const gpu::Context& gpu;
  gpu::Int8Problem problem;
  gpu::Int8Tiles best;  // of tiles, expected

  std::string key() const { return work(); }
  // "int8_conv2d s8[32, 56, 56, 64] to s8, 256, 1 x 1, residual, relu".
  std::string work() const {
    const Int8Conv2d& op = problem.op;
    const gpu::ConvProblem plain{.geometry = op,
                                 .x = problem.x,
                                 .y = problem.y,
                                 .weight = problem.weight,
                                 .dtype = DType::s8,
                                 .bias = true,
                                 .residual = op.residual,
                                 .epilogue = op.epilogue};
    return fmt::format("{} {}, {}", Int8Conv2d::name, to_string(plain), name_of(op.out));
  }
};

using Int8Candidate = gpu::Candidate<Int8Work>;

template <gpu::Int8Tiles tiles>
constexpr Int8Candidate in_tiles{
    .name = [](const Int8Work&) { return to_string(tiles); },
    .supports =
        [](const Int8Work& w) { return gpu::int8_conv_sm90_supports(w.gpu, w.problem, tiles); },
    .expectation = [](const Int8Work& w, const gpu::Card&) { return w.best == tiles ? 2 : 1; },
    .prepare =
        [](const Int8Work& w, GpuPrepare&) {
          return make_kernel([&gpu = w.gpu, problem = w.problem](const Launch& call) {
            const gpu::Int8Pointers operands = pointers_of(problem.op, call);
            if (gpu::is_aligned(call, alignment))
              gpu::int8_conv_sm90(gpu, problem, tiles, operands);
            else
              gpu::int8_conv_direct(gpu, problem, operands);
          });
        }};

constexpr Int8Candidate candidates[] = {
    in_tiles<{.columns = 128, .depth = 128}>,
    in_tiles<{.columns = 128, .depth = 64}>,
    in_tiles<{.columns = 64, .depth = 128}>,
    in_tiles<{.columns = 64, .depth = 64}>,
    in_tiles<{.columns = 256, .depth = 128}>,
    in_tiles<{.rows = 64, .columns = 64, .depth = 128, .split = 1}>,
    in_tiles<{.rows = 64, .columns = 64, .depth = 128, .split = 2}>,
    in_tiles<{.rows = 64, .columns = 64, .depth = 128, .split = 4}>,
    in_tiles<{.rows = 64, .columns = 64, .depth = 128, .split = 8}>,
    {.name = [](const Int8Work&) -> std::string { return "own kernels"; },
     .supports = [](const Int8Work&) { return true; },
     .expectation = [](const Int8Work&, const gpu::Card&) { return 0; },
     .prepare =
         [](const Int8Work& w, GpuPrepare&) {
           return make_kernel([&gpu = w.gpu, problem = w.problem](const Launch& call) {
             gpu::int8_conv_direct(gpu, problem, pointers_of(problem.op, call));
           });
         },
     .fallback = true},
};

}  // namespace

KernelPtr Int8Conv2d::gpu(GpuPrepare& prepare) const {
  const gpu::Int8Problem problem{*this,
                                 {prepare.in[0].shape, layout},
                                 {prepare.out[0].shape, layout},
                                 {prepare.in[1].shape, layout}};
  return gpu::best_kernel<Int8Work>(
      prepare, {prepare.gpu, problem, gpu::int8_conv_sm90_expected_best(prepare.gpu, problem)},
      candidates);
}

}  // namespace ridge
