#include "tests/simt/matrix_instructions.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace ridge::simt {
namespace {

// What a lane brings, and its sums, which it takes away again: up to eight elements of a, four of
// b.
struct Lane {
  float a[8], b[4];
  float* d;
};

// An element's place in a matrix.
struct Place {
  int row, column;
};

// A matrix unit's shape, and where a lane's elements lie: element i of a, b and d of a lane.
struct Unit {
  int rows, columns, depth;
  int of_a, of_b;  // elements that a lane holds; of d they are four
  Place (*a)(int lane, int i);
  Place (*b)(int lane, int i);
  Place (*d)(int lane, int i);
};

// d of mma: rows i / 4 and 8 below, columns 2 (i % 4) and the next.
Place mma_sum(int lane, int i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }
Place mfma_sum(int lane, int i) { return {4 * (lane / 16) + i, lane % 16}; }

constexpr Unit mma_unit{16,
                        8,
                        16,
                        8,
                        4,
                        [](int lane, int i) -> Place {
                          return {lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4)};
                        },
                        [](int lane, int i) -> Place {
                          return {2 * (lane % 4) + i % 2 + 8 * (i / 2), lane / 4};
                        },
                        mma_sum};
constexpr Unit mma_tf32_unit{16,
                             8,
                             8,
                             4,
                             2,
                             [](int lane, int i) -> Place {
                               return {lane / 4 + 8 * (i % 2), lane % 4 + 4 * (i / 2)};
                             },
                             [](int lane, int i) -> Place {
                               return {lane % 4 + 4 * i, lane / 4};
                             },
                             mma_sum};
constexpr Unit mfma_unit{16,
                         16,
                         16,
                         4,
                         4,
                         [](int lane, int i) -> Place {
                           return {lane % 16, 4 * (lane / 16) + i};
                         },
                         [](int lane, int i) -> Place {
                           return {4 * (lane / 16) + i, lane % 16};
                         },
                         mfma_sum};
constexpr Unit mfma_f32_unit{16,
                             16,
                             4,
                             1,
                             1,
                             [](int lane, int) -> Place {
                               return {lane % 16, lane / 16};
                             },
                             [](int lane, int) -> Place {
                               return {lane / 16, lane % 16};
                             },
                             mfma_sum};

template <const Unit& unit>
void multiply(void* const* lanes) {
  double a[16][16] = {}, b[16][16] = {};
  for (int lane = 0; lane < warp_width; ++lane) {
    const auto& own = *static_cast<const Lane*>(lanes[lane]);
    for (int i = 0; i < unit.of_a; ++i) {
      const Place at = unit.a(lane, i);
      a[at.row][at.column] = own.a[i];
    }
    for (int i = 0; i < unit.of_b; ++i) {
      const Place at = unit.b(lane, i);
      b[at.column][at.row] = own.b[i];
    }
  }
  for (int lane = 0; lane < warp_width; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place at = unit.d(lane, i);
      float& d = static_cast<const Lane*>(lanes[lane])->d[i];
      double sum = d;
      for (int k = 0; k < unit.depth; ++k) sum += a[at.row][k] * b[at.column][k];
      d = static_cast<float>(sum);
    }
}

// Elements of 16 bits as they lie in registers.
template <class Words>
void load_elements(DType dtype, const Words& words, float* to) {
  load_floats(&words, dtype, {to, sizeof words / 2});
}

}  // namespace

void mma(DType dtype, float (&d)[4], const std::uint32_t (&a)[4], std::array<std::uint32_t, 2> b,
         const Site& site) {
  Lane lane{{}, {}, d};
  load_elements(dtype, a, lane.a);
  load_elements(dtype, b, lane.b);
  work_together(multiply<mma_unit>, &lane, site);
}

void mma_tf32(float (&d)[4], const float (&a)[4], std::array<float, 2> b, const Site& site) {
  Lane lane{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, d};
  work_together(multiply<mma_tf32_unit>, &lane, site);
}

float round_to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isfinite(x) ? std::bit_cast<float>((bits + 0x1000u) & ~0x1FFFu) : x;
}

void mfma(DType dtype, float (&d)[4], std::uint64_t a, std::uint64_t b, const Site& site) {
  Lane lane{{}, {}, d};
  load_elements(dtype, a, lane.a);
  load_elements(dtype, b, lane.b);
  work_together(multiply<mfma_unit>, &lane, site);
}

void mfma_f32(float (&d)[4], float a, float b, const Site& site) {
  Lane lane{{a}, {b}, d};
  work_together(multiply<mfma_f32_unit>, &lane, site);
}

}  // namespace ridge::simt
