#include "ridge/passes/precision.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr std::pair<std::string_view, std::string_view> spellings[] = {
    {"f32", "fp32"}, {"float32", "fp32"}, {"float", "fp32"}, {"bfloat16", "bf16"},
    {"f16", "fp16"}, {"float16", "fp16"}, {"half", "fp16"},
};

}  // namespace

ProductKind Precision::product_kind() const {
  switch (products) {
    case Products::tf32:
      return ProductKind::tf32;
    case Products::int8:
      return ProductKind::s8;
    case Products::same:
    case Products::fp8:
      break;
  }
  return product_kind_of(compute);
}

std::span<const Precision> precisions() {
  using P = Precision::Products;
  static constexpr Precision table[] = {
      {.name = "fp32", .description = "everything in fp32"},
      {.name = "tf32",
       .description = "fp32, with products whose operands a GPU rounds to 19 bits",
       .products = P::tf32},
      {.name = "bf16",
       .description = "activations and products in bf16, parameters and sums in fp32",
       .compute = DType::bf16},
      {.name = "fp16",
       .description = "the same in IEEE half precision, with dynamic loss scaling in training",
       .compute = DType::f16,
       .loss_scaling = true},
      {.name = "fp8",
       .description = "bf16, with products of 8-bit floats in all blocks but the first and last",
       .compute = DType::bf16,
       .products = P::fp8},
      {.name = "int8",
       .description = "layers in 8-bit integers, calibrated on a batch; inference only",
       .products = P::int8},
  };
  return table;
}

const Precision& precision_named(std::string_view name) {
  const auto* const spelled =
      std::ranges::find(spellings, name, &std::pair<std::string_view, std::string_view>::first);
  const std::string_view own = spelled == std::end(spellings) ? name : spelled->second;
  const auto found = std::ranges::find(precisions(), own, &Precision::name);
  if (found != precisions().end()) return *found;
  std::vector<std::string_view> names;
  for (const Precision& p : precisions()) names.push_back(p.name);
  throw UsageError("--dtype is '{}'; choose one of {}", name, fmt::join(names, ", "));
}

}  // namespace ridge
