#include "ridge/cpu/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/gemm_kernel.h"
#include "ridge/cpu/gemm_packed.h"
#include "ridge/cpu/onednn.h"
#include "ridge/cpu/split_gemm.h"

namespace ridge {
namespace {

// How long a plan takes, in units of the time in which a core multiplies two vectors and adds them,
// as the sum over some numbers of threads: a plan must suit whatever machine it runs on, because it
// may not depend on it.
double cost(const GemmShape& s, const GemmPlan& plan) {
  // Measured on a processor with AVX-512; only their order of magnitude matters.
  constexpr double pack_word = 0.4, read_word = 0.1, start_task = 3000, start_pass = 6000;
  const auto columns = static_cast<double>(ceil_div(s.n, lanes) * lanes);
  const auto k = static_cast<double>(s.k);
  const std::int64_t row_tiles = ceil_div(s.m, plan.tile_m);
  const std::int64_t column_tiles =
      ceil_div(ceil_div(s.n, block_columns), ceil_div(plan.tile_n, block_columns));
  const double rows = static_cast<double>(s.m) / static_cast<double>(row_tiles);
  const double width = columns / static_cast<double>(column_tiles);
  const bool once = plan.kind == GemmKind::packed;
  const bool in_place = !once && s.in == DType::f32 && !s.trans_b && s.n <= 128;
  const double b_word = once || in_place ? read_word : pack_word + read_word;
  const double task = rows * width * k / static_cast<double>(lanes) + rows * k * pack_word +
                      width * k * b_word + start_task;
  const double tasks = static_cast<double>(s.batch * row_tiles * column_tiles);
  double sum = 0;
  for (const double threads : {1.0, 4.0, 8.0, 16.0}) {
    // The last round of tasks leaves some threads idle.
    const double rounds = std::max(tasks / threads, std::ceil(tasks / threads - 1e-9));
    double time = task * rounds;
    if (once)
      time += start_pass * static_cast<double>(packed_stages(s, plan.kind)) +
              static_cast<double>(s.batch) * columns * k * pack_word / threads;
    sum += time * threads;
  }
  return sum;
}

// Calls f(size, parts) for each size that the largest of `parts` equal parts of `whole` has,
// falling, with the fewest parts that give it, from `parts` up to `most_parts`, until it returns
// false.
template <class F>
void for_each_part_size(std::int64_t whole, std::int64_t parts, std::int64_t most_parts,
                        const F& f) {
  while (parts <= most_parts) {
    const std::int64_t size = ceil_div(whole, parts);
    if (!f(size, parts) || size == 1) return;
    parts = ceil_div(whole, size - 1);
  }
}

// The cheapest of our own plans whose tiles have from `least_n` to `most_n` columns, or all columns
// where these are fewer.
GemmPlan cheapest(const GemmShape& s, GemmKind kind, std::int64_t least_n, std::int64_t most_n) {
  // A tile's rows of A have to stay in the second-level cache.
  constexpr std::int64_t most_rows = 256;
  GemmPlan best;
  double least = std::numeric_limits<double>::infinity();
  const std::int64_t column_blocks = ceil_div(s.n, block_columns);
  for_each_part_size(column_blocks, 1, column_blocks, [&](std::int64_t blocks, std::int64_t tiles) {
    const std::int64_t tile_n = blocks * block_columns;
    if (tile_n > most_n) return true;
    if (tile_n < least_n && tiles > 1) return false;
    for_each_part_size(s.m, ceil_div(s.m, most_rows), ceil_div(s.m, block_rows),
                       [&](std::int64_t tile_m, std::int64_t) {
                         const GemmPlan plan{kind, tile_m, tile_n};
                         if (const double c = cost(s, plan); c < least) {
                           least = c;
                           best = plan;
                         }
                         return true;
                       });
    return true;
  });
  return best;
}

}  // namespace

std::string to_string(const GemmShape& s) {
  const std::string out = s.out == s.in ? "" : fmt::format("->{}", name_of(s.out));
  return fmt::format("{}{} {}x{}x{}x{} {}{}{}", name_of(s.in), out, s.batch, s.m, s.n, s.k,
                     s.trans_a ? 't' : 'n', s.trans_b ? 't' : 'n', s.accumulate ? " +=" : "");
}

std::string to_string(const GemmPlan& plan) {
  constexpr std::string_view names[] = {"onednn", "packed", "local", "split"};
  const std::string_view name = names[static_cast<std::size_t>(plan.kind)];
  if (plan.kind == GemmKind::onednn) return std::string(name);
  return fmt::format("{} {}x{}", name, plan.tile_m, plan.tile_n);
}

GemmPtr make_gemm(const GemmShape& shape, const GemmPlan& plan) {
  switch (plan.kind) {
    case GemmKind::onednn:
      return make_onednn_gemm(shape);
    case GemmKind::packed:
    case GemmKind::local:
      return make_packed_gemm(shape, plan);
    case GemmKind::split:
      return make_split_gemm(shape, plan);
  }
  throw Error("there is no product of kind {}", static_cast<int>(plan.kind));
}

namespace {

// Packed operands beside the operands themselves: what more would cost in a model's peak of memory
// is worth more than the few percent of time that it might save.
bool is_affordable(const GemmShape& shape, const GemmPlan& plan) {
  constexpr std::size_t most_workspace = std::size_t{16} << 20;
  return plan.kind == GemmKind::onednn || make_gemm(shape, plan)->workspace() <= most_workspace;
}

}  // namespace

GemmPlan default_plan(const GemmShape& shape) {
  // Compiled for the least of its architecture, our kernel has a third of the speed of oneDNN's,
  // which is compiled while the program runs.
  if (lanes == 4 && (shape.in == DType::f32 || onednn_supports_bf16())) return {};
  const std::int64_t any = std::numeric_limits<std::int64_t>::max();
  const GemmPlan packed = cheapest(shape, GemmKind::packed, 128, 1024);
  const GemmPlan local = cheapest(shape, GemmKind::local, 128, any);
  return cost(shape, local) < cost(shape, packed) || !is_affordable(shape, packed) ? local : packed;
}

std::vector<GemmPlan> gemm_plans(const GemmShape& shape) {
  std::vector<GemmPlan> plans{default_plan(shape)};
  auto add = [&](const GemmPlan& plan) {
    if (std::find(plans.begin(), plans.end(), plan) == plans.end() && is_affordable(shape, plan))
      plans.push_back(plan);
  };
  if (shape.in == DType::f32 || onednn_supports_bf16()) add({});
  for (const auto& [least, most] :
       {std::pair<std::int64_t, std::int64_t>{64, 128}, {129, 256}, {257, 512}, {513, 1024}})
    for (const GemmKind kind : {GemmKind::packed, GemmKind::local})
      if (const GemmPlan plan = cheapest(shape, kind, least, most); plan.tile_m > 0) add(plan);
  return plans;
}

}  // namespace ridge
