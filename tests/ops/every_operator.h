#pragma once

// Every operator with its samples, for tests that ask the rules of ridge/graph/op_rules.h: they
// take any operator as an Op, so a test of them is compiled once and not for each.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "ridge/ops/op.h"

namespace ridge::testing {

struct OperatorSample {
  Op op;
  std::vector<SampleInput> inputs;
};

// An operator, and what its type states about it.
struct EveryOperator {
  std::string_view name;
  std::vector<OperatorSample> (*samples)();
  DTypes dtypes;
  bool elementwise = false, along_dimension = false, takes_ids = false, on_images = false;
  // How many operands it has names for, of so many given; nothing if it names none.
  std::optional<std::size_t> (*named_operands)(const Op& op, std::size_t given);
  // The layout of one on images.
  ImageLayout (*layout)(const Op& op);
};

template <class T>
EveryOperator operator_of_type() {
  return {.name = T::name,
          .samples =
              [] {
                std::vector<OperatorSample> samples;
                for (Sample<T>& sample : T::samples())
                  samples.push_back({Op(std::move(sample.op)), std::move(sample.inputs)});
                return samples;
              },
          .dtypes = dtypes_of<T>(),
          .elementwise = Elementwise<T>,
          .along_dimension = AlongDimension<T>,
          .takes_ids = TakesIds<T>,
          .on_images = OnImages<T>,
          .named_operands = [](const Op& any, std::size_t given) -> std::optional<std::size_t> {
            const T& op = std::get<T>(any.variant());
            if constexpr (!NamesOperands<T>)
              return std::nullopt;
            else if constexpr (requires { op.operands(given); })
              return op.operands(given).count;
            else
              return op.operands().count;
          },
          .layout =
              [](const Op& any) {
                if constexpr (OnImages<T>)
                  return std::get<T>(any.variant()).layout;
                else
                  return ImageLayout::nchw;
              }};
}

inline const std::vector<EveryOperator>& every_operator() {
  static const std::vector<EveryOperator> all =
      []<class... T>(std::type_identity<std::variant<T...>>) {
        return std::vector<EveryOperator>{operator_of_type<T>()...};
      }(std::type_identity<OpVariant>{});
  return all;
}

// The last part of a test's name: All/EveryOperatorsTraits.WorkIsWhatItsCostCounts/silu.
inline std::string operator_name(const ::testing::TestParamInfo<EveryOperator>& info) {
  return std::string(info.param.name);
}

inline void PrintTo(const EveryOperator& op, std::ostream* out) { *out << op.name; }

}  // namespace ridge::testing
