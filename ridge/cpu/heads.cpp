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

// Splits packed into heads, or merges heads into packed: one row of one head at a time.
template <class T, bool split>
struct Mover {
  std::int64_t seq, columns, d;
  float theta;
  Rotations table{};

  void move(const Launch& call, const Head& head, std::int64_t b, std::int64_t s) const {
    const std::int64_t in_packed = (b * seq + s) * columns + head.column, pairs = d / 2;
    const std::int64_t in_part = ((b * head.count + head.index) * seq + s) * d;
    const T* from = split ? call.in<T>(0) + in_packed : call.in<T>(head.operand) + in_part;
    T* to = split ? call.out<T>(head.operand) + in_part : call.out<T>() + in_packed;
    if (theta != 0 && head.operand < 2)
      rotate(from, to, table.cos.data() + s * pairs, table.sin.data() + s * pairs, pairs);
    else
      std::copy_n(from, d, to);
  }
};

template <class T, bool split>
KernelPtr move_heads(CpuPrepare& prepare, const HeadLayout& layout) {
  // Tokens per task. Merging, a task's part of packed should stay in the cache.
  constexpr std::int64_t grain = 8;
  const Shape& packed = split ? prepare.in[0].shape : prepare.out[0].shape;
  const std::int64_t batch = packed[0], seq = packed[1], blocks = (seq + grain - 1) / grain;
  auto mover = std::make_unique<Mover<T, split>>(
      Mover<T, split>{seq, packed[2], layout.head_dim, layout.rope_theta});
  return make_kernel([&pool = prepare.pool, batch, seq, blocks, heads = heads_of(layout),
                      mover = std::move(mover)](const Launch& call) {
    // At the first launch: a kernel that is prepared for its workspace alone costs no memory.
    if (mover->theta != 0 && mover->table.cos.empty())
      mover->table.fill(seq, mover->d / 2, double{mover->theta}, !split);
    pool.run(batch * blocks, [&](std::int64_t task) {
      const std::int64_t b = task / blocks, begin = task % blocks * grain;
      const std::int64_t end = std::min(seq, begin + grain);
      // The operands are read in the order in which they lie in memory.
      if constexpr (split) {
        for (std::int64_t s = begin; s < end; ++s)
          for (const Head& head : heads) mover->move(call, head, b, s);
      } else {
        for (const Head& head : heads)
          for (std::int64_t s = begin; s < end; ++s) mover->move(call, head, b, s);
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
