#pragma once

// What every operator is tested with, on any device: the list of operators as types of a typed
// test, and their samples in every dtype.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <span>
#include <string_view>
#include <tuple>
#include <variant>

#include "ridge/base/error.h"
#include "ridge/ops/check.h"
#include "tests/ops/sample_runner.h"

namespace ridge::testing {

template <class Variant>
struct TypesOf;
template <class... T>
struct TypesOf<std::variant<T...>> {
  using type = ::testing::Types<T...>;
};
template <class... T>
struct TypesOf<std::tuple<T...>> {
  using type = ::testing::Types<T...>;
};

struct OperatorName {
  template <class T>
  static std::string GetName(int) {
    return std::string(T::name);
  }
};

// The operand types of a sample with its floating operands in `dtype`. Some operands keep theirs
// whatever the others have (a norm's weight); the shape rule says which, by refusing. So we take
// the largest set of operands that it accepts.
inline std::vector<TensorType> operand_types(const Op& op, std::span<const SampleInput> inputs,
                                             DType dtype) {
  std::vector<TensorType> given;
  for (const SampleInput& input : inputs) given.push_back(input.type);
  const auto accepted = [&](const std::vector<TensorType>& types) {
    try {
      infer(op, types);
      return true;
    } catch (const ShapeError&) {
      return false;
    }
  };
  std::vector<TensorType> all_of_them = given;
  for (TensorType& type : all_of_them)
    if (is_floating(type.dtype)) type.dtype = dtype;
  if (accepted(all_of_them)) return all_of_them;
  if (given.size() > 30)
    throw Error("{} takes too many operands to try which keep theirs", name_of(op));
  const unsigned all = (1u << given.size()) - 1;
  for (int size = static_cast<int>(given.size()); size >= 0; --size)
    for (unsigned chosen = 0; chosen <= all; ++chosen) {
      if (std::popcount(chosen) != size) continue;
      std::vector<TensorType> types = given;
      for (std::size_t i = 0; i < types.size(); ++i)
        if ((chosen >> i & 1u) && is_floating(types[i].dtype)) types[i].dtype = dtype;
      if (accepted(types)) return types;
    }
  throw Error("{} takes {} in no dtype", name_of(op), list_of(given));
}
template <class T>
std::vector<TensorType> operand_types(const Sample<T>& sample, DType dtype) {
  return operand_types(sample.op, sample.inputs, dtype);
}

inline std::vector<Reals> operand_values(std::span<const SampleInput> inputs, Types types) {
  std::vector<Reals> values;
  for (std::size_t i = 0; i < types.size(); ++i)
    values.push_back(sample_values(inputs[i], types[i].dtype, i));
  return values;
}
template <class T>
std::vector<Reals> operand_values(const Sample<T>& sample, Types types) {
  return operand_values(std::span(sample.inputs), types);
}

// The tolerance of an operator's result. What kernels round more than once on the way to it
// (roundings(), ops/operator.h) may be off by as much again. In 8 bits that is a unit of the last
// place. In 16 bits numbers of up to 2 are rounded inside, and multiplied by up to 3 before they
// are added to what may cancel them.
template <class T>
Tolerance tolerance_of_result(const T& op, const TensorType& result, Types in) {
  Tolerance tolerance = tolerance_of(result, in);
  if (roundings(op) == 1) return tolerance;
  if (result.dtype == DType::f8e4m3) return {0x1p-9, 0x1p-3};
  if (result.dtype == DType::f8e5m2) return {0x1p-16, 0x1p-2};
  if (is_16_bit(result.dtype))
    tolerance.absolute = std::max(tolerance.absolute, 1.5 * tolerance.relative);
  tolerance.relative *= roundings(op);
  return tolerance;
}

// Calls check(number of a sample, operand types) for every sample in every dtype.
inline void for_each_case(
    std::string_view name, std::size_t samples, DTypes dtypes,
    const std::function<std::vector<TensorType>(std::size_t, DType)>& types_of,
    const std::function<void(std::size_t, Types)>& check) {
  ASSERT_GT(samples, 0u);
  for (std::size_t s = 0; s < samples; ++s)
    for (const DType dtype : dtypes) {
      const std::vector<TensorType> types = types_of(s, dtype);
      SCOPED_TRACE(fmt::format("{}, sample {}: {}", name, s, list_of(types)));
      check(s, types);
    }
}

// The same with the samples themselves: check(sample, operand types). What depends on T is compiled
// for every operator, so the rest does not.
template <class T, class F>
void for_each_case(const F& check) {
  const std::vector<Sample<T>> samples = T::samples();
  for_each_case(
      T::name, samples.size(), dtypes_of<T>(),
      [&](std::size_t s, DType dtype) { return operand_types(samples[s], dtype); },
      [&](std::size_t s, Types types) { check(samples[s], types); });
}

}  // namespace ridge::testing
