#include "ridge/gpu/kernels/conv/int8_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/gpu/device/kernel_ways.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge {
namespace {

constexpr std::size_t alignment = 16;  // of operands that the copy engine moves

gpu::Int8Pointers pointers_of(const Int8Conv2d& op, const Launch& call) {
  return {call.inputs[0],
          call.inputs[1],
          call.in<float>(2),
          call.in<float>(3),
          op.residual ? call.inputs[4] : nullptr,
          call.outputs[0]};
}

bool is_aligned(const Launch& call) {
  const auto aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
  };
  return std::ranges::all_of(call.inputs, aligned) && std::ranges::all_of(call.outputs, aligned);
}

// What users read: "s8[32, 56, 56, 64] to s8, 256, 1 x 1, residual, relu".
std::string described(const gpu::Int8Problem& p) {
  const gpu::ConvProblem plain{.geometry = p.op,
                               .x = p.x,
                               .y = p.y,
                               .weight = p.weight,
                               .dtype = DType::s8,
                               .bias = true,
                               .residual = p.op.residual,
                               .epilogue = p.op.epilogue};
  return fmt::format("{} {}, {}", Int8Conv2d::name, to_string(plain), name_of(p.op.out));
}

}  // namespace

KernelPtr Int8Conv2d::gpu(GpuPrepare& prepare) const {
  const gpu::Int8Problem problem{*this,
                                 {prepare.in[0].shape, layout},
                                 {prepare.out[0].shape, layout},
                                 {prepare.in[1].shape, layout}};
  std::vector<gpu::KernelWay> ways;
  for (const gpu::Int8Tiles& tiles : gpu::int8_conv90_ways(prepare.gpu, problem))
    ways.push_back({to_string(tiles), [=](GpuPrepare& p) {
                      return make_kernel([=, &gpu = p.gpu](const Launch& call) {
                        const gpu::Int8Pointers operands = pointers_of(problem.op, call);
                        if (is_aligned(call))
                          gpu::int8_conv90(gpu, problem, tiles, operands);
                        else
                          gpu::int8_conv_direct(gpu, problem, operands);
                      });
                    }});
  if (ways.empty())
    ways.push_back({"own kernels", [=](GpuPrepare& p) {
                      return make_kernel([=, &gpu = p.gpu](const Launch& call) {
                        gpu::int8_conv_direct(gpu, problem, pointers_of(problem.op, call));
                      });
                    }});
  const std::string what = described(problem);
  return gpu::fastest_kernel(prepare, what, what, ways);
}

}  // namespace ridge
