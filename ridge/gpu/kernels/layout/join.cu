#include "ridge/ops/join.h"

#include <algorithm>
#include <numeric>

#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"

namespace ridge {
namespace {

using namespace gpu;

// What rows consist of from some column on, in packs; travels as the kernel's parameter.
template <int capacity>
struct Pieces {
  int count = 0;
  std::int64_t begin[capacity + 1] = {};  // in the part of the row
  const void* from[capacity];             // the operand's first pack that is copied; null: zeros
  std::int64_t row_stride[capacity];
};

// y[row, column] for the columns that the pieces make up, a thread each.
template <class Bits, class Index, int capacity>
__global__ void join_kernel(const __grid_constant__ Pieces<capacity> pieces, Index count,
                            Index columns, std::int64_t y_stride, Bits* y) {
  gpu::begin_kernel();
  const Index i = thread_index<Index>();
  if (i >= count) return;
  const Index row = i / columns, column = i - row * columns;
  const int p = part_of(pieces.begin, pieces.count, static_cast<std::int64_t>(column));
  Bits bits{};
  if (pieces.from[p])
    bits = static_cast<const Bits*>(
        pieces.from[p])[static_cast<std::int64_t>(row) * pieces.row_stride[p] + column -
                        pieces.begin[p]];
  y[static_cast<std::int64_t>(row) * y_stride + column] = bits;
}

template <class Bits, int capacity>
void run(const Context& gpu, const JoinPlan& plan, std::int64_t element, const Launch& call) {
  const auto size = static_cast<std::int64_t>(sizeof(Bits));
  auto packs = [&](std::int64_t elements) { return elements * element / size; };
  auto* y = call.out<Bits>();
  for (std::size_t first = 0; first < plan.pieces.size(); first += capacity) {
    Pieces<capacity> pieces;
    for (std::size_t i = first; i < std::min(plan.pieces.size(), first + capacity); ++i) {
      const JoinPlan::Piece& piece = plan.pieces[i];
      pieces.from[pieces.count] =
          piece.operand < 0
              ? nullptr
              : call.in<Bits>(static_cast<std::size_t>(piece.operand)) + packs(piece.begin);
      pieces.row_stride[pieces.count] = packs(piece.row_stride);
      const std::int64_t begin = pieces.begin[pieces.count++];
      pieces.begin[pieces.count] = begin + packs(piece.columns);
    }
    const std::int64_t columns = pieces.begin[pieces.count], count = plan.rows * columns;
    dispatch_index(count, [&]<class Index>() {
      launch(gpu, join_kernel<Bits, Index, capacity>, dim3(blocks_for(count, elementwise_threads)),
             dim3(elementwise_threads), 0, pieces, static_cast<Index>(count),
             static_cast<Index>(columns), packs(plan.columns), y);
    });
    y += columns;
  }
}

KernelPtr join(GpuPrepare& prepare, JoinPlan plan) {
  const auto element = static_cast<std::int64_t>(size_of(prepare.out[0].dtype));
  // The largest access that all pieces begin and end at.
  std::int64_t fitting = std::int64_t{16};
  for (const JoinPlan::Piece& piece : plan.pieces)
    for (const std::int64_t elements : {piece.columns, piece.begin, piece.row_stride})
      fitting = std::gcd(fitting, elements * element);
  return make_kernel(
      [&gpu = prepare.gpu, plan = std::move(plan), element, fitting](const Launch& call) {
        std::int64_t width = fitting;
        auto narrow = [&](const void* p) {
          while (!is_aligned(p, static_cast<std::size_t>(width))) width /= 2;
        };
        narrow(call.outputs[0]);
        for (const void* input : call.inputs) narrow(input);
        auto with = [&]<class Bits>() {
          if (plan.pieces.size() <= 4)
            run<Bits, 4>(gpu, plan, element, call);
          else
            run<Bits, 128>(gpu, plan, element, call);
        };
        switch (width) {
          case 16:
            return with.template operator()<Pack<std::uint32_t, 4>>();
          case 8:
            return with.template operator()<Pack<std::uint32_t, 2>>();
          case 4:
            return with.template operator()<std::uint32_t>();
          case 2:
            return with.template operator()<std::uint16_t>();
          default:
            return with.template operator()<std::uint8_t>();
        }
      });
}

}  // namespace

KernelPtr Concat::gpu(GpuPrepare& prepare) const { return join(prepare, plan(prepare.in)); }
KernelPtr Window::gpu(GpuPrepare& prepare) const { return join(prepare, plan(prepare.in)); }
KernelPtr Roll::gpu(GpuPrepare& prepare) const { return join(prepare, plan(prepare.in)); }

}  // namespace ridge
