#include "ridge/trace/operator_flops.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace ridge::trace {
namespace {

using Dims = std::vector<double>;

// The shapes of tensors; an empty one for what is no tensor, such as a list of them.
std::vector<Dims> dims_of(std::string_view text) {
  std::vector<Dims> inputs;
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_array()) return inputs;
  for (const auto& input : parsed) {
    Dims dims;
    if (input.is_array() && std::ranges::all_of(input, [](const auto& d) { return d.is_number(); }))
      for (const auto& dim : input) dims.push_back(dim.template get<double>());
    inputs.push_back(std::move(dims));
  }
  return inputs;
}

double product(const Dims& dims, std::size_t count) {
  double all = 1;
  for (std::size_t i = 0; i < std::min(count, dims.size()); ++i) all *= dims[i];
  return all;
}

// a[..., m, k] x b[..., k, n], where one of them may have no leading dimensions.
double matmul_flops(const Dims& a, const Dims& b) {
  if (a.size() < 2 || b.size() < 2 || a.back() != b[b.size() - 2]) return 0;
  const double batch = std::max(product(a, a.size() - 2), product(b, b.size() - 2));
  return 2 * batch * a[a.size() - 2] * a.back() * b.back();
}

// x[..., k] times the transposed weight[n, k].
double linear_flops(const Dims& x, const Dims& weight) {
  if (x.empty() || weight.size() != 2 || x.back() != weight[1]) return 0;
  return 2 * product(x, x.size()) * weight[0];
}

// Two products over query[batch, heads, m, d] and key[batch, heads, n, d], all of the mask counted.
double attention_flops(const Dims& query, const Dims& key, const Dims& value) {
  if (query.size() != 4 || key.size() != 4 || value.size() != 4 || query[3] != key[3]) return 0;
  return 2 * query[0] * query[1] * query[2] * key[2] * (query[3] + value[3]);
}

}  // namespace

double operator_flops(std::string_view name, std::string_view shapes) {
  static constexpr std::string_view known[] = {
      "aten::mm",      "aten::bmm",    "aten::matmul", "aten::addmm",
      "aten::baddbmm", "aten::addmm_", "aten::linear", "aten::_addmm_activation"};
  const bool attends = name.starts_with("aten::") &&
                       name.find("scaled_dot_product") != std::string_view::npos &&
                       name.ends_with("_attention");
  if (shapes.empty() || (!attends && std::ranges::find(known, name) == std::end(known))) return 0;
  const std::vector<Dims> inputs = dims_of(shapes);
  const bool with_addend = name.find("addmm") != std::string_view::npos || name == "aten::baddbmm";
  const std::size_t first = with_addend ? 1 : 0;
  if (inputs.size() < first + 2) return 0;
  if (name == "aten::linear") return linear_flops(inputs[0], inputs[1]);
  if (attends) return inputs.size() < 3 ? 0 : attention_flops(inputs[0], inputs[1], inputs[2]);
  return matmul_flops(inputs[first], inputs[first + 1]);
}

}  // namespace ridge::trace
