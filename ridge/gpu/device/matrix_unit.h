#pragma once

// Products of small matrices by a warp, on the matrix units of a card (tensor cores, matrix cores)
// where the target of the compiler has them, and by plain arithmetic elsewhere. Kernels are written
// once for all of them:
//
//   Unit::rows, Unit::columns, Unit::depth   the product c[rows, columns] += a[rows, depth]
//                                            b[columns, depth]^T of one multiply_add()
//   Unit::Stored                             the elements of a and b in shared memory
//   Unit::round(x)                           such an element, if it is f32, as it is multiplied
//   Unit::Left, Unit::Right                  what a lane holds of a and b
//   Unit::sums                               how many elements of c a lane holds
//   Unit::row(i), Unit::column(i)            which the i-th of them is
//
// Matrices in shared memory have their rows along the summed dimension, `stride` elements apart;
// rows begin at multiples of 16 bytes.

#include <cstdint>

#include "ridge/gpu/device/matrix_instructions.h"
#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {

// f32 numbers that are rounded to 19 bits before they are multiplied, where there is something to
// gain by that.
struct Tf32 {};

template <class T>
struct StoredAs {
  using type = T;
};
template <>
struct StoredAs<Tf32> {
  using type = float;
};

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % warp_width; }

// Plain arithmetic: each lane has one element, and the lanes lie in eight rows.
template <class T>
struct PlainUnit {
  using Stored = typename StoredAs<T>::type;
  static constexpr int rows = 8, columns = warp_width / rows, depth = 4, sums = 1;
  struct Left {
    float at[depth];
  };
  using Right = Left;

  __device__ static float round(float x) { return x; }
  __device__ static Left left(const Stored* a, int stride) { return elements(a + row(0) * stride); }
  __device__ static Right right(const Stored* b, int stride) {
    return elements(b + column(0) * stride);
  }
  __device__ static void multiply_add(float (&c)[sums], const Left& a, const Right& b) {
#pragma unroll
    for (int k = 0; k < depth; ++k) c[0] = fmaf(a.at[k], b.at[k], c[0]);
  }
  __device__ static int row(int) { return lane_of_warp() / columns; }
  __device__ static int column(int) { return lane_of_warp() % columns; }

 private:
  __device__ static Left elements(const Stored* p) {
    Left x;
    load_pack(p, x.at);
    return x;
  }
};

template <class T, MatrixInstructions>
struct UnitBy : PlainUnit<T> {};

#if !defined(__HIP__)

// Where the elements of c lie in the lanes after mma() and mma_tf32().
struct MmaSums {
  static constexpr int rows = 16, columns = 8, sums = 4;
  __device__ static int row(int i) { return lane_of_warp() / 4 + i / 2 * 8; }
  __device__ static int column(int i) { return lane_of_warp() % 4 * 2 + i % 2; }
};

template <class T>
struct MmaUnit : MmaSums {
  using Stored = T;
  static constexpr int depth = 16;
  struct Left {
    std::uint32_t at[4];
  };
  struct Right {
    std::uint32_t at[2];
  };

  __device__ static Left left(const T* a, int stride) {
    a += lane_of_warp() / 4 * stride + lane_of_warp() % 4 * 2;
    return {{word(a), word(a + 8 * stride), word(a + 8), word(a + 8 * stride + 8)}};
  }
  __device__ static Right right(const T* b, int stride) {
    b += lane_of_warp() / 4 * stride + lane_of_warp() % 4 * 2;
    return {{word(b), word(b + 8)}};
  }
  __device__ static void multiply_add(float (&c)[sums], const Left& a, const Right& b) {
    mma<T>(c, a.at, b.at[0], b.at[1]);
  }

 private:
  // Two elements.
  __device__ static std::uint32_t word(const T* p) {
    return *reinterpret_cast<const std::uint32_t*>(p);
  }
};

struct MmaTf32Unit : MmaSums {
  using Stored = float;
  static constexpr int depth = 8;
  struct Left {
    float at[4];
  };
  struct Right {
    float at[2];
  };

  __device__ static float round(float x) { return round_to_tf32(x); }
  __device__ static Left left(const float* a, int stride) {
    a += lane_of_warp() / 4 * stride + lane_of_warp() % 4;
    return {{a[0], a[8 * stride], a[4], a[8 * stride + 4]}};
  }
  __device__ static Right right(const float* b, int stride) {
    b += lane_of_warp() / 4 * stride + lane_of_warp() % 4;
    return {{b[0], b[4]}};
  }
  __device__ static void multiply_add(float (&c)[sums], const Left& a, const Right& b) {
    mma_tf32(c, a.at, b.at[0], b.at[1]);
  }
};

template <class T>
requires(sizeof(T) == 2) struct UnitBy<T, MatrixInstructions::mma> : MmaUnit<T> {
};
template <>
struct UnitBy<Tf32, MatrixInstructions::mma> : MmaTf32Unit {};

#else

// By mfma(): four elements of 16 bits a lane, or one of f32, which is not rounded.
template <class T>
struct MfmaUnit {
  using Stored = typename StoredAs<T>::type;
  static constexpr bool is_f32 = sizeof(Stored) == 4;
  static constexpr int rows = 16, columns = 16, depth = is_f32 ? 4 : 16, sums = 4;
  using Left = std::conditional_t<is_f32, float, std::uint64_t>;
  using Right = Left;

  __device__ static float round(float x) { return x; }
  __device__ static Left left(const Stored* a, int stride) {
    a += lane_of_warp() % 16 * stride + lane_of_warp() / 16 * (depth / 4);
    return *reinterpret_cast<const Left*>(a);
  }
  __device__ static Right right(const Stored* b, int stride) { return left(b, stride); }
  __device__ static void multiply_add(float (&c)[sums], Left a, Right b) {
    if constexpr (is_f32)
      mfma(c, a, b);
    else
      mfma<T>(c, a, b);
  }
  __device__ static int row(int i) { return lane_of_warp() / 16 * 4 + i; }
  __device__ static int column(int) { return lane_of_warp() % 16; }
};

template <class T>
struct UnitBy<T, MatrixInstructions::mfma> : MfmaUnit<T> {};

#endif

// By wmma().
template <class T>
struct WmmaUnit {
  using Stored = T;
  static constexpr int rows = 16, columns = 16, depth = 16, sums = 8;
  struct Left {
    std::uint64_t at[4];
  };
  using Right = Left;

  __device__ static Left left(const T* a, int stride) {
    const auto* const row =
        reinterpret_cast<const std::uint64_t*>(a + lane_of_warp() % 16 * stride);
    return {{row[0], row[1], row[2], row[3]}};
  }
  __device__ static Right right(const T* b, int stride) { return left(b, stride); }
  __device__ static void multiply_add(float (&c)[sums], const Left& a, const Right& b) {
    wmma<T>(c, a.at, b.at);
  }
  __device__ static int row(int i) { return 2 * i + lane_of_warp() / 16; }
  __device__ static int column(int) { return lane_of_warp() % 16; }
};

template <class T>
requires(sizeof(T) == 2) struct UnitBy<T, MatrixInstructions::wmma> : WmmaUnit<T> {
};

// The unit of the target for T: float, Tf32, BFloat16 or Float16. Sums are f32. Kernels have it as
// a template's argument: its name is the same for every target, though what it is differs.
template <class T>
struct MatrixUnit : UnitBy<T, matrix_instructions> {};

// c[Rows, Columns], which a warp sums in registers, unit by unit.
template <class Unit, int Rows, int Columns>
struct WarpProduct {
  static constexpr int units_down = Rows / Unit::rows, units_across = Columns / Unit::columns;
  static_assert(Rows % Unit::rows == 0 && Columns % Unit::columns == 0);
  float sums[units_down][units_across][Unit::sums] = {};

  // c += a b^T of a[Rows, Depth] and b[Columns, Depth].
  template <int Depth>
  __device__ void add(const typename Unit::Stored* a, const typename Unit::Stored* b, int stride) {
    static_assert(Depth % Unit::depth == 0);
#pragma unroll
    for (int k = 0; k < Depth; k += Unit::depth) {
      typename Unit::Left left[units_down];
#pragma unroll
      for (int i = 0; i < units_down; ++i)
        left[i] = Unit::left(a + i * Unit::rows * stride + k, stride);
#pragma unroll
      for (int j = 0; j < units_across; ++j) {
        const typename Unit::Right right = Unit::right(b + j * Unit::columns * stride + k, stride);
#pragma unroll
        for (int i = 0; i < units_down; ++i) Unit::multiply_add(sums[i][j], left[i], right);
      }
    }
  }

  // f(row, column, sum) of each element that the lane holds.
  template <class F>
  __device__ void each(const F& f) const {
    each_with(*this, [&](int row, int column, float sum, float) { f(row, column, sum); });
  }

  // f(row, column, sum, the other's sum) likewise.
  template <class F>
  __device__ void each_with(const WarpProduct& other, const F& f) const {
    visit([&](int i, int j, int e, int row, int column) {
      f(row, column, sums[i][j][e], other.sums[i][j][e]);
    });
  }

  // Replaces each by f(row, column, sum).
  template <class F>
  __device__ void change(const F& f) {
    visit([&](int i, int j, int e, int row, int column) {
      sums[i][j][e] = f(row, column, sums[i][j][e]);
    });
  }

 private:
  // f(i, j, e, row, column) of each sums[i][j][e].
  template <class F>
  __device__ static void visit(const F& f) {
#pragma unroll
    for (int i = 0; i < units_down; ++i)
#pragma unroll
      for (int j = 0; j < units_across; ++j)
#pragma unroll
        for (int e = 0; e < Unit::sums; ++e)
          f(i, j, e, i * Unit::rows + Unit::row(e), j * Unit::columns + Unit::column(e));
  }
};

}  // namespace ridge::gpu
