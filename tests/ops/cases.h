#pragma once

// What every operator is tested with, on any device: the list of operators as types of a typed
// test, and their samples in every dtype.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
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
template <class T>
std::vector<TensorType> operand_types(const Sample<T>& sample, DType dtype) {
  std::vector<TensorType> given;
  for (const SampleInput& input : sample.inputs) given.push_back(input.type);
  const auto accepted = [&](const std::vector<TensorType>& types) {
    try {
      sample.op.infer(types);
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
    throw Error("{} takes too many operands to try which keep theirs", T::name);
  const unsigned all = (1u << given.size()) - 1;
  for (int size = static_cast<int>(given.size()); size >= 0; --size)
    for (unsigned chosen = 0; chosen <= all; ++chosen) {
      if (std::popcount(chosen) != size) continue;
      std::vector<TensorType> types = given;
      for (std::size_t i = 0; i < types.size(); ++i)
        if ((chosen >> i & 1u) && is_floating(types[i].dtype)) types[i].dtype = dtype;
      if (accepted(types)) return types;
    }
  throw Error("{} takes {} in no dtype", T::name, list_of(given));
}

template <class T>
std::vector<Reals> operand_values(const Sample<T>& sample, Types types) {
  std::vector<Reals> values;
  for (std::size_t i = 0; i < types.size(); ++i)
    values.push_back(sample_values(sample.inputs[i], types[i].dtype, i));
  return values;
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

// Calls check(sample, operand types) for every sample in every dtype.
template <class T, class F>
void for_each_case(const F& check) {
  const std::vector<Sample<T>> samples = T::samples();
  ASSERT_FALSE(samples.empty());
  for (std::size_t s = 0; s < samples.size(); ++s)
    for (const DType dtype : DTypes(T::dtypes)) {
      const std::vector<TensorType> types = operand_types(samples[s], dtype);
      SCOPED_TRACE(fmt::format("{}, sample {}: {}", T::name, s, list_of(types)));
      check(samples[s], types);
    }
}

}  // namespace ridge::testing
