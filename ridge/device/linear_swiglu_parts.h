#pragma once

// LinearSwiGlu and its gradient by the kernels of their parts, on any device. kernel_of(op,
// prepare) is the part's kernel there.

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "ridge/device/kernel.h"
#include "ridge/device/prepare_part.h"
#include "ridge/ops/linear_swiglu.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/swiglu.h"

namespace ridge {

template <class Prepare, class KernelOf>
KernelPtr in_parts(const LinearSwiGlu&, Prepare& prepare, const KernelOf& kernel_of) {
  const Types packed = prepare.out.first(1), y = prepare.out.last(1);
  std::size_t& workspace = prepare.workspace;
  auto product =
      prepare_part(prepare, MatMul{.trans_b = true}, prepare.in, packed, workspace, kernel_of);
  auto gate = prepare_part(prepare, SwiGlu{}, packed, y, workspace, kernel_of);
  return make_kernel([product = std::move(product), gate = std::move(gate)](const Launch& call) {
    product->launch({call.inputs, call.outputs.first(1), call.workspace});
    const void* const packed_memory = call.outputs[0];
    gate->launch({{&packed_memory, 1}, call.outputs.last(1), call.workspace});
  });
}

template <class Prepare, class KernelOf>
KernelPtr in_parts(const LinearSwiGluGrad& op, Prepare& prepare, const KernelOf& kernel_of) {
  constexpr std::size_t alignment = 256;
  constexpr LinearSwiGluGrad::Operands at = LinearSwiGluGrad::operands();
  const TensorType dy = MatMul{}.infer(prepare.in.first(at.packed))[0];
  const std::array of_gate{dy, prepare.in[at.packed]};
  std::size_t workspace = 0;
  auto product =
      prepare_part(prepare, MatMul{}, prepare.in.first(at.packed), {&dy, 1}, workspace, kernel_of);
  auto gate = prepare_part(prepare, SwiGluGrad{.in_place = op.in_place, .result = op.result},
                           of_gate, prepare.out, workspace, kernel_of);
  const std::size_t dy_bytes =
      (static_cast<std::size_t>(dy.numel()) * size_of(dy.dtype) + alignment - 1) / alignment *
      alignment;
  prepare.workspace = std::max(prepare.workspace, dy_bytes + workspace);
  return make_kernel(
      [product = std::move(product), gate = std::move(gate), dy_bytes](const Launch& call) {
        void* const dy_memory = call.workspace;
        void* const rest = static_cast<std::byte*>(call.workspace) + dy_bytes;
        product->launch({call.inputs.first(at.packed), {&dy_memory, 1}, rest});
        const std::array<const void*, 2> gate_in{dy_memory, call.inputs[at.packed]};
        gate->launch({gate_in, call.outputs, rest});
      });
}

}  // namespace ridge
