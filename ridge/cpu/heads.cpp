#include "ridge/ops/heads.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/rotations.h"

namespace ridge {
namespace {

// Where one head lies: from `column` on in each row of packed, and as the head `index` of `count`
// in q, k or v (`operand` 0, 1 or 2).
struct Head {
  std::size_t operand;
  std::int64_t column, index, count;
};

std::vector<Head> heads_of(const HeadLayout& layout) {
  const std::int64_t counts[] = {layout.n_heads, layout.n_kv_heads, layout.n_kv_heads};
  std::vector<Head> heads;
  for (std::size_t operand = 0; operand < 3; ++operand)
    for (std::int64_t h = 0; h < counts[operand]; ++h) {
      const std::int64_t column = static_cast<std::int64_t>(heads.size()) * layout.head_dim;
      heads.push_back({operand, column, h, counts[operand]});
    }
  return heads;
}

// Splits packed into heads, or merges heads into packed. A task takes some tokens of one sequence
// and goes through them head by head: a head's rows lie one after another outside packed, and
// inside it in the cache.
template <class T, bool split>
KernelPtr move_heads(CpuPrepare& prepare, const HeadLayout& layout) {
  const Shape& packed = split ? prepare.in[0].shape : prepare.out[0].shape;
  const std::int64_t batch = packed[0], seq = packed[1], columns = packed[2], d = layout.head_dim;
  const std::int64_t grain = rows_per_task(columns), blocks = (seq + grain - 1) / grain;
  const std::int64_t pairs = d / 2;
  const bool has_rope = layout.rope_theta != 0;
  return make_kernel([=, &pool = prepare.pool, heads = heads_of(layout),
                      table = has_rope ? prepare.rotations.get(layout.rope_theta, pairs, seq)
                                       : nullptr](const Launch& call) {
    if (table) table->fill();
    pool.run(batch * blocks, [&](std::int64_t task) {
      const std::int64_t b = task / blocks, begin = task % blocks * grain;
      const std::int64_t end = std::min(seq, begin + grain);
      for (const Head& head : heads) {
        const bool rotates = table && head.operand < 2;
        for (std::int64_t s = begin; s < end; ++s) {
          const std::int64_t in_packed = (b * seq + s) * columns + head.column;
          const std::int64_t in_part = ((b * head.count + head.index) * seq + s) * d;
          const T* from = split ? call.in<T>(0) + in_packed : call.in<T>(head.operand) + in_part;
          T* to = split ? call.out<T>(head.operand) + in_part : call.out<T>() + in_packed;
          if (rotates)
            rotate(from, to, table->cos() + s * pairs, table->sin() + s * pairs,
                   split ? 1.0f : -1.0f, pairs);
          else
            std::copy_n(from, d, to);
        }
      }
    });
  });
}

}  // namespace

KernelPtr SplitHeads::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return move_heads<T, true>(prepare, layout); });
}

KernelPtr MergeHeads::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return move_heads<T, false>(prepare, layout); });
}

}  // namespace ridge
