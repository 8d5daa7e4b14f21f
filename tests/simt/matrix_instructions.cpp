#include "tests/simt/matrix_instructions.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace ridge::simt {
namespace {

// What a lane brings, and its sums, which it takes away again.
struct Lane {
  float a[16], b[16];
  float* d;
};

// Where element i of what a lane holds is in a matrix.
struct Place {
  int row, column;
};
using PlaceOf = Place (*)(int lane, int i);

// The terms that a unit sums; how many elements of a, b and d a lane holds, and where they are.
struct Unit {
  int depth, of_a, of_b, of_d;
  PlaceOf a, b, d;
};

Place mma_a(int lane, int i) {
  return {lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4)};
}
Place mma_b(int lane, int i) { return {2 * (lane % 4) + i % 2 + 8 * (i / 2), lane / 4}; }
Place mma_d(int lane, int i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }
Place tf32_a(int lane, int i) { return {lane / 4 + 8 * (i % 2), lane % 4 + 4 * (i / 2)}; }
Place tf32_b(int lane, int i) { return {lane % 4 + 4 * i, lane / 4}; }
Place mfma_a(int lane, int i) { return {lane % 16, 4 * (lane / 16) + i}; }
Place mfma_b(int lane, int i) { return {4 * (lane / 16) + i, lane % 16}; }
Place mfma_f32_a(int lane, int) { return {lane % 16, lane / 16}; }
Place mfma_f32_b(int lane, int) { return {lane / 16, lane % 16}; }
Place wmma_a(int lane, int i) { return {lane % 16, i}; }
Place wmma_b(int lane, int i) { return {i, lane % 16}; }
Place wmma_d(int lane, int i) { return {2 * i + lane / 16, lane % 16}; }

constexpr Unit mma_unit{16, 8, 4, 4, mma_a, mma_b, mma_d};
constexpr Unit mma_tf32_unit{8, 4, 2, 4, tf32_a, tf32_b, mma_d};
// Where elements of b are in mfma's registers, those of d are too.
constexpr Unit mfma_unit{16, 4, 4, 4, mfma_a, mfma_b, mfma_b};
constexpr Unit mfma_f32_unit{4, 1, 1, 4, mfma_f32_a, mfma_f32_b, mfma_b};
constexpr Unit wmma_unit{16, 16, 16, 8, wmma_a, wmma_b, wmma_d};

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
    for (int i = 0; i < unit.of_d; ++i) {
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

void wmma(DType dtype, float (&d)[8], const std::uint64_t (&a)[4], const std::uint64_t (&b)[4],
          const Site& site) {
  Lane lane{{}, {}, d};
  load_elements(dtype, a, lane.a);
  load_elements(dtype, b, lane.b);
  work_together(multiply<wmma_unit>, &lane, site);
}

}  // namespace ridge::simt
