#include "ridge/base/dtype.h"

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Calls function.template operator()<T>() for the element type of a floating dtype or s8.
template <class F>
void with_element(DType dtype, const F& function) {
  switch (dtype) {
    case DType::f32:
      return function.template operator()<float>();
    case DType::bf16:
      return function.template operator()<BFloat16>();
    case DType::f16:
      return function.template operator()<Float16>();
    case DType::f8e4m3:
      return function.template operator()<Float8E4M3>();
    case DType::f8e5m2:
      return function.template operator()<Float8E5M2>();
    case DType::s8:
      return function.template operator()<Int8>();
    case DType::i32:
    case DType::split_f32:
      break;
  }
  throw Error("{} does not hold rounded floats", name_of(dtype));
}

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::split_f32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::s8:
      return 1;
  }
  throw Error("unknown dtype {}", static_cast<int>(dtype));
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f8e4m3:
      return "f8e4m3";
    case DType::f8e5m2:
      return "f8e5m2";
    case DType::i32:
      return "i32";
    case DType::s8:
      return "s8";
    case DType::split_f32:
      return "split_f32";
  }
  throw Error("unknown dtype {}", static_cast<int>(dtype));
}

bool is_floating(DType dtype) {
  return dtype != DType::i32 && dtype != DType::s8 && dtype != DType::split_f32;
}

bool is_16_bit(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
bool is_float8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

void split_floats(std::span<const float> from, std::uint16_t* upper, std::uint16_t* lower) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const SplitFloat halves(from[i]);
    upper[i] = halves.upper;
    lower[i] = halves.lower;
  }
}

void join_floats(const std::uint16_t* upper, const std::uint16_t* lower, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<float>(SplitFloat(upper[i], lower[i]));
}

void store_floats(std::span<const float> from, DType dtype, void* to) {
  if (dtype == DType::split_f32) {
    auto* const upper = static_cast<std::uint16_t*>(to);
    return split_floats(from, upper, upper + from.size());
  }
  with_element(dtype, [&]<class T>() {
    std::ranges::transform(from, static_cast<T*>(to), [](float x) { return T(x); });
  });
}

void load_floats(const void* from, DType dtype, std::span<float> to) {
  if (dtype == DType::split_f32) {
    const auto* const upper = static_cast<const std::uint16_t*>(from);
    return join_floats(upper, upper + to.size(), to);
  }
  with_element(dtype, [&]<class T>() {
    std::transform(static_cast<const T*>(from), static_cast<const T*>(from) + to.size(), to.begin(),
                   [](T x) { return static_cast<float>(x); });
  });
}

}  // namespace ridge
