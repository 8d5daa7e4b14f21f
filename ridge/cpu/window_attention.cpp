#include "ridge/ops/window_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ridge/cpu/attention_tiles.h"
#include "ridge/cpu/micro_gemm.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// The heads of the windows of a batch, one at a time as matrices of floats. Rows are padded to
// vectors: [P, dim] for positions by a head's columns, [P, keys] for pairs of positions, and
// [dim, keys] for what is transposed.
struct Patches {
  WindowHeads heads;
  WindowGrid grid;
  std::int64_t windows, pixels, head_dim;  // windows of the batch, pixels of an image
  std::int64_t positions, dim, keys;       // dim and keys: padded head_dim and positions
  std::int64_t rows;                       // positions padded to vectors, for transposing
  // Tables of the grid's, which divides: the pixel of each position of each window, and each
  // position's part.
  std::vector<int> pixel_of, part_of;

  // `y`: [N, H, W, n_heads d].
  Patches(const WindowHeads& op, const Shape& y)
      : heads(op),
        grid(op, y),
        windows(y[0] * grid.windows()),
        pixels(y[1] * y[2]),
        head_dim(y[3] / op.n_heads),
        positions(op.positions()),
        dim(padded_to_vectors(head_dim)),
        keys(padded_to_vectors(positions)),
        rows(keys) {
    for (int p = 0; p < grid.positions(); ++p) part_of.push_back(grid.part(p));
    for (int w = 0; w < grid.windows(); ++w)
      for (int p = 0; p < grid.positions(); ++p) pixel_of.push_back(grid.pixel(w, p));
  }

  std::int64_t row_floats() const { return rows * dim; }
  std::int64_t score_floats() const { return rows * keys; }

  // f(row, first element) for a head at each position of a window, in a tensor of so many parts.
  template <class F>
  void each_position(std::int64_t window, std::int64_t h, std::int64_t parts, std::int64_t part,
                     const F& f) const {
    const std::int64_t image = window / grid.windows() * pixels;
    const int* const pixel = pixel_of.data() + window % grid.windows() * positions;
    for (std::int64_t p = 0; p < positions; ++p)
      f(p, (((image + pixel[p]) * parts + part) * heads.n_heads + h) * head_dim);
  }

  // to[p, c] = factor * x; zero where it is padded.
  template <class T>
  void gather(const T* x, std::int64_t window, std::int64_t h, std::int64_t parts,
              std::int64_t part, float factor, float* to) const {
    each_position(window, h, parts, part, [=, this](std::int64_t p, std::int64_t first) {
      float* const row = to + p * dim;
#pragma omp simd
      for (std::int64_t c = 0; c < head_dim; ++c) row[c] = factor * load(&x[first + c]);
      std::fill(row + head_dim, row + dim, 0.0f);
    });
    std::fill_n(to + positions * dim, (rows - positions) * dim, 0.0f);
  }

  template <class T>
  void scatter(const float* from, T* x, std::int64_t window, std::int64_t h, std::int64_t parts,
               std::int64_t part) const {
    each_position(window, h, parts, part, [=, this](std::int64_t p, std::int64_t first) {
#pragma omp simd
      for (std::int64_t c = 0; c < head_dim; ++c) store(&x[first + c], from[p * dim + c]);
    });
  }

  // s[p, q] = exp(s + bias - max) for the pairs that see each other and 0 for others, and of each
  // row the sum of these.
  template <class T>
  void exponentials(std::int64_t window, const T* bias, float* s, float* sums) const {
    const int seams = grid.seams(static_cast<int>(window % grid.windows()));
    for (std::int64_t p = 0; p < positions; ++p, s += keys, bias += positions) {
#pragma omp simd
      for (std::int64_t q = 0; q < positions; ++q) s[q] += load(&bias[q]);
      // So that the loops below have whole vectors.
      std::fill(s + positions, s + keys, -std::numeric_limits<float>::infinity());
      if (seams != 0) {
        const int* const part = part_of.data();
#pragma omp simd
        for (std::int64_t q = 0; q < positions; ++q)
          s[q] =
              ((part[p] ^ part[q]) & seams) != 0 ? -std::numeric_limits<float>::infinity() : s[q];
      }
      float max = s[0];
#pragma omp simd reduction(max : max)
      for (std::int64_t q = 0; q < keys; ++q) max = s[q] > max ? s[q] : max;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t q = 0; q < keys; ++q) sum += s[q] = vexp(s[q] - max);
      sums[p] = sum;
    }
  }

  // out[p, :] = sum_q a(p, q) b[q, :] for b of `dim` columns.
  void times_rows(LeftOperand a, const float* b, float* out) const {
    small_product(a, {b, dim}, {out, dim}, {positions, dim, positions}, false);
  }
  // out[p, q] = sum_c a[p, c] b[q, c], with b given transposed.
  void times_transposed(const float* a, const float* b, float* out) const {
    small_product({a, dim, 1}, {b, keys}, {out, keys}, {positions, keys, head_dim}, false);
  }
  // a[p, q] as a left operand, and transposed.
  LeftOperand by_query(const float* a) const { return {a, keys, 1}; }
  LeftOperand by_key(const float* a) const { return {a, 1, keys}; }
};

// Hands memory out in order.
class Memory {
 public:
  explicit Memory(float* at) : at_(at) {}
  float* take(std::int64_t floats) {
    float* const taken = at_;
    at_ += floats;
    return taken;
  }

 private:
  float* at_;
};

struct ForwardScratch {
  float *a, *b, *s, *sums;  // rows, rows or transposed rows, scores, sums of rows

  ForwardScratch(const Patches& x, float* memory) {
    Memory at(memory);
    a = at.take(x.row_floats());
    b = at.take(x.row_floats());
    s = at.take(x.score_floats());
    sums = at.take(x.rows);
  }
  static std::int64_t floats(const Patches& x) {
    return 2 * x.row_floats() + x.score_floats() + x.rows;
  }
};

template <class T>
void attend(const Patches& x, const T* qkv, const T* bias, T* y, std::int64_t window,
            std::int64_t h, const ForwardScratch& at) {
  x.gather(qkv, window, h, 3, 1, 1.0f, at.a);
  transpose(at.a, x.dim, at.b, x.keys, x.rows, x.dim);
  x.gather(qkv, window, h, 3, 0, x.heads.scale, at.a);
  x.times_transposed(at.a, at.b, at.s);
  x.exponentials(window, bias + h * x.positions * x.positions, at.s, at.sums);
  x.gather(qkv, window, h, 3, 2, 1.0f, at.b);
  x.times_rows(x.by_query(at.s), at.b, at.a);
  for (std::int64_t p = 0; p < x.positions; ++p) {
    const float factor = 1.0f / at.sums[p];
    for (std::int64_t c = 0; c < x.dim; ++c) at.a[p * x.dim + c] *= factor;
  }
  x.scatter(at.a, y, window, h, 1, 0);
}

template <class T>
KernelPtr forward(const WindowAttention& op, CpuPrepare& prepare) {
  const Patches patches(op, prepare.out[0].shape);
  const std::int64_t scratch = ForwardScratch::floats(patches);
  prepare.workspace = static_cast<std::size_t>(prepare.pool.size() * scratch) * sizeof(float);
  return make_kernel([&pool = prepare.pool, patches, scratch](const Launch& call) {
    const T *qkv = call.in<T>(0), *bias = call.in<T>(1);
    T* const y = call.out<T>(0);
    run_with_scratch(pool, patches.windows, static_cast<float*>(call.workspace), scratch,
                     [&](std::int64_t window, float* memory) {
                       const ForwardScratch at(patches, memory);
                       for (std::int64_t h = 0; h < patches.heads.n_heads; ++h)
                         attend(patches, qkv, bias, y, window, h, at);
                     });
  });
}

struct BackwardScratch {
  float *q, *k, *v, *dy, *transposed, *out;  // rows
  float *p, *ds, *sums;

  BackwardScratch(const Patches& x, float* memory) {
    Memory at(memory);
    for (float** rows : {&q, &k, &v, &dy, &transposed, &out}) *rows = at.take(x.row_floats());
    p = at.take(x.score_floats());
    ds = at.take(x.score_floats());
    sums = at.take(x.rows);
  }
  static std::int64_t floats(const Patches& x) {
    return 6 * x.row_floats() + 2 * x.score_floats() + x.rows;
  }
};

// p[p, q] becomes probabilities, and ds what reaches the scores; both are zero where keys are
// padded.
void to_score_gradients(const Patches& x, const BackwardScratch& at) {
  for (std::int64_t i = 0; i < x.positions; ++i) {
    float *p = at.p + i * x.keys, *ds = at.ds + i * x.keys;
    const float factor = 1.0f / at.sums[i];
    float mean = 0;
#pragma omp simd reduction(+ : mean)
    for (std::int64_t j = 0; j < x.keys; ++j) mean += (p[j] *= factor) * ds[j];
    for (std::int64_t j = 0; j < x.keys; ++j) ds[j] = p[j] * (ds[j] - mean);
  }
}

// The share of a head of a window; its ds is added to dbias[P, P].
template <class T>
void attend_back(const Patches& x, const T* dy, const T* qkv, const T* bias, T* dqkv,
                 std::int64_t window, std::int64_t h, const BackwardScratch& at, float* dbias) {
  x.gather(qkv, window, h, 3, 0, x.heads.scale, at.q);
  x.gather(qkv, window, h, 3, 1, 1.0f, at.k);
  x.gather(qkv, window, h, 3, 2, 1.0f, at.v);
  x.gather(dy, window, h, 1, 0, 1.0f, at.dy);
  transpose(at.k, x.dim, at.transposed, x.keys, x.rows, x.dim);
  x.times_transposed(at.q, at.transposed, at.p);
  x.exponentials(window, bias + h * x.positions * x.positions, at.p, at.sums);
  transpose(at.v, x.dim, at.transposed, x.keys, x.rows, x.dim);
  x.times_transposed(at.dy, at.transposed, at.ds);
  to_score_gradients(x, at);
  for (std::int64_t p = 0; p < x.positions; ++p)
    for (std::int64_t q = 0; q < x.positions; ++q)
      dbias[p * x.positions + q] += at.ds[p * x.keys + q];
  x.times_rows(x.by_query(at.ds), at.k, at.out);
  for (std::int64_t i = 0; i < x.positions * x.dim; ++i) at.out[i] *= x.heads.scale;
  x.scatter(at.out, dqkv, window, h, 3, 0);
  x.times_rows(x.by_key(at.ds), at.q, at.out);  // of queries that have been scaled
  x.scatter(at.out, dqkv, window, h, 3, 1);
  x.times_rows(x.by_key(at.p), at.dy, at.out);
  x.scatter(at.out, dqkv, window, h, 3, 2);
}

// A task takes a head of some windows, and keeps their share of the bias's gradient by itself.
template <class T>
KernelPtr backward(const WindowAttentionGrad& op, CpuPrepare& prepare) {
  constexpr std::int64_t most_groups = 16;
  const Patches patches(op, prepare.in[0].shape);
  const std::int64_t scratch = BackwardScratch::floats(patches), heads = op.n_heads;
  const std::int64_t pairs = patches.positions * patches.positions;
  const std::int64_t groups = std::min(most_groups, patches.windows);
  const std::int64_t scratch_all = prepare.pool.size() * scratch;
  prepare.workspace =
      static_cast<std::size_t>(scratch_all + groups * heads * pairs) * sizeof(float);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const T *dy = call.in<T>(0), *qkv = call.in<T>(1), *bias = call.in<T>(2);
    T *const dqkv = call.out<T>(0), *const dbias = call.out<T>(1);
    auto* const memory = static_cast<float*>(call.workspace);
    float* const parts = memory + scratch_all;  // [group, head, P, P]
    run_with_scratch(pool, groups * heads, memory, scratch, [&](std::int64_t task, float* own) {
      const BackwardScratch at(patches, own);
      const std::int64_t group = task / heads, h = task % heads;
      std::fill_n(parts + task * pairs, pairs, 0.0f);
      for (std::int64_t w = patches.windows * group / groups;
           w < patches.windows * (group + 1) / groups; ++w)
        attend_back(patches, dy, qkv, bias, dqkv, w, h, at, parts + task * pairs);
    });
    parallel_for(pool, heads * pairs, 4096, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float sum = 0;
        for (std::int64_t g = 0; g < groups; ++g) sum += parts[g * heads * pairs + i];
        store(&dbias[i], sum);
      }
    });
  });
}

}  // namespace

KernelPtr WindowAttention::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T>(*this, prepare); });
}

KernelPtr WindowAttentionGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return backward<T>(*this, prepare); });
}

}  // namespace ridge
