#include "ridge/ops/join.h"

#include <algorithm>
#include <cstring>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

KernelPtr join(CpuPrepare& prepare, JoinPlan plan) {
  const auto size = static_cast<std::int64_t>(size_of(prepare.out[0].dtype));
  // In bytes from here on. Rows that are too long for a task are cut.
  plan.columns *= size;
  for (JoinPlan::Piece& piece : plan.pieces)
    for (std::int64_t* elements : {&piece.columns, &piece.begin, &piece.row_stride})
      *elements *= size;
  constexpr std::int64_t task = 65536;
  const std::int64_t strips = (plan.columns + task - 1) / task;
  const std::int64_t rows = strips > 1 ? 1 : std::max<std::int64_t>(1, task / plan.columns);
  return make_kernel(
      [&pool = prepare.pool, plan = std::move(plan), strips, rows, task](const Launch& call) {
        char* y = call.out<char>();
        parallel_for(pool, plan.rows * strips, rows, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t row = i / strips, strip = i % strips;
            std::int64_t first = 0;  // of the piece
            for (const JoinPlan::Piece& piece : plan.pieces) {
              const std::int64_t from = std::max(first, strip * task);
              const std::int64_t to = std::min(first + piece.columns, (strip + 1) * task);
              if (from < to) {
                const auto bytes = static_cast<std::size_t>(to - from);
                char* target = y + row * plan.columns + from;
                if (piece.operand < 0)
                  std::memset(target, 0, bytes);
                else
                  std::memcpy(target,
                              call.in<char>(static_cast<std::size_t>(piece.operand)) +
                                  row * piece.row_stride + piece.begin + from - first,
                              bytes);
              }
              first += piece.columns;
            }
          }
        });
      });
}

}  // namespace

KernelPtr Concat::cpu(CpuPrepare& prepare) const { return join(prepare, plan(prepare.in)); }
KernelPtr Window::cpu(CpuPrepare& prepare) const { return join(prepare, plan(prepare.in)); }
KernelPtr Roll::cpu(CpuPrepare& prepare) const { return join(prepare, plan(prepare.in)); }

}  // namespace ridge
