#include "ridge/base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "ridge/base/digest.h"

namespace ridge {
namespace {

std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Logarithm, sine and cosine of our own: the mathematics library's differ in the last bits from one
// version to the next, and the compiler vectorizes these. Their errors are below 1e-10, far under
// the rounding to float.

// The logarithm of a normal u > 0. With u = 2^e m and m between sqrt(1/2) and sqrt(2), about:
// ln m = 2 artanh f = 2 (f + f^3/3 + f^5/5 + ..), f = (m - 1) / (m + 1), |f| < 0.172.
double natural_log(double u) {
  constexpr std::uint64_t one = 0x3FF0000000000000u;        // the bits of 1.0
  constexpr std::uint64_t sqrt_half = 0x3FE6A09E00000000u;  // the bits of 0.70710659..
  const std::uint64_t shifted = std::bit_cast<std::uint64_t>(u) + (one - sqrt_half);
  const auto exponent = static_cast<std::int32_t>(shifted >> 52) - 1023;
  const double m = std::bit_cast<double>((shifted & 0x000FFFFFFFFFFFFFu) + sqrt_half);
  const double f = (m - 1.0) / (m + 1.0), f2 = f * f;
  double sum = 1.0 / 13;
  sum = sum * f2 + 1.0 / 11;
  sum = sum * f2 + 1.0 / 9;
  sum = sum * f2 + 1.0 / 7;
  sum = sum * f2 + 1.0 / 5;
  sum = sum * f2 + 1.0 / 3;
  sum = sum * f2 + 1.0;
  return exponent * std::numbers::ln2 + 2.0 * f * sum;
}

struct SinCos {
  double sin, cos;
};

// Sine and cosine of 2 pi turn / 2^32. The angle is split into quarter turns and an exact rest of
// at most an eighth, for which Taylor's series do.
SinCos sin_cos(std::uint32_t turn) {
  const std::uint32_t quarter = (turn + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(turn - (quarter << 30));
  const double x = rest * (2.0 * std::numbers::pi * 0x1p-32), x2 = x * x;
  double s = -1.0 / 39916800;
  s = s * x2 + 1.0 / 362880;
  s = s * x2 - 1.0 / 5040;
  s = s * x2 + 1.0 / 120;
  s = s * x2 - 1.0 / 6;
  s = (s * x2 + 1.0) * x;
  double c = 1.0 / 479001600;
  c = c * x2 - 1.0 / 3628800;
  c = c * x2 + 1.0 / 40320;
  c = c * x2 - 1.0 / 720;
  c = c * x2 + 1.0 / 24;
  c = c * x2 - 1.0 / 2;
  c = c * x2 + 1.0;
  const double sin = quarter & 1 ? c : s, cos = quarter & 1 ? s : c;
  return {quarter & 2 ? -sin : sin, (quarter + 1) & 2 ? -cos : cos};
}

// As many Philox blocks as are drawn together, in loops that the compiler vectorizes.
constexpr std::size_t batch_blocks = 64;
constexpr std::size_t batch = 4 * batch_blocks;

// Elements [4 block, 4 block + batch) of a stream of N(0, 1). One Philox block gives four uniforms,
// hence four normals by Box-Muller.
void normal_batch(float (&out)[batch], std::uint64_t seed, std::uint64_t stream,
                  std::uint64_t block) {
  std::uint32_t radius_words[batch / 2], angle_words[batch / 2];
  for (std::size_t i = 0; i < batch_blocks; ++i) {
    const auto words = philox(seed, block + i, stream);
    radius_words[2 * i] = words[0];
    angle_words[2 * i] = words[1];
    radius_words[2 * i + 1] = words[2];
    angle_words[2 * i + 1] = words[3];
  }
  double radius[batch / 2];
  // In (0, 1], so that the logarithm is finite.
  for (std::size_t i = 0; i < batch / 2; ++i)
    radius[i] = -2.0 * natural_log((radius_words[i] + 1.0) * 0x1p-32);
  for (double& r : radius) r = std::sqrt(r);
  for (std::size_t i = 0; i < batch / 2; ++i) {
    const auto [sin, cos] = sin_cos(angle_words[i]);
    out[2 * i] = static_cast<float>(radius[i] * cos);
    out[2 * i + 1] = static_cast<float>(radius[i] * sin);
  }
}

}  // namespace

std::uint64_t stream_of(std::string_view name) { return fnv1a(name); }

void fill_normal(std::span<float> out, float std, std::uint64_t seed, std::uint64_t stream,
                 std::uint64_t first) {
  float normals[batch];
  std::size_t skipped = first % 4;  // elements of the first block before `first`
  for (std::size_t i = 0; i < out.size();) {
    normal_batch(normals, seed, stream, (first + i) / 4);
    const std::size_t count = std::min(batch - skipped, out.size() - i);
    for (std::size_t j = 0; j < count; ++j) out[i + j] = std * normals[skipped + j];
    i += count;
    skipped = 0;
  }
}

std::uint32_t uniform_integer(std::uint32_t bound, std::uint64_t seed, std::uint64_t stream,
                              std::uint64_t index) {
  // Lemire's multiply-shift, floor(word * bound / 2^64), of a word of 64 bits in two halves: the
  // bias is below 2^-32 for any 32-bit bound.
  const auto words = philox(seed, index, stream);
  const std::uint64_t carry = (std::uint64_t{words[0]} * bound) >> 32;
  return high(std::uint64_t{words[1]} * bound + carry);
}

}  // namespace ridge
