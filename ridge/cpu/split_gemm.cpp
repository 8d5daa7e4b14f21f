// C is cut into tiles, the tasks, of whole strips of rows and columns. A task goes through k in
// blocks; of each it splits its rows of A and its columns of B into memory of its own, and
// multiplies strip by strip. Splitting B once for all tasks gained 4 % in the mean over 33
// products, and would take one and a half times its memory.

#include "ridge/cpu/split_gemm.h"

#include <algorithm>
#include <utility>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/amx.h"
#include "ridge/cpu/range.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/split_kernel.h"

namespace ridge {

#if defined(__AVX512BF16__)

namespace {

// Steps of k in one block: a strip of B then takes 24 KiB of a first-level cache of 48.
constexpr std::int64_t most_steps = 4;

// An operand, of one matrix of the batch.
struct Operand {
  const float* data;
  std::int64_t stride;
  bool k_runs_along_rows;
  std::int64_t extent;  // rows or columns of C that it has
  std::int64_t k;
  OperandSide side;

  // Values of k of some steps; rows or columns of some strips.
  Range values(Range steps) const {
    return {steps.begin * step_k, std::min(k, steps.end * step_k)};
  }
  Range lines(Range strips) const {
    return {strips.begin * strip_width, std::min(extent, strips.end * strip_width)};
  }

  void split(Range strips, Range steps, std::uint32_t* words) const {
    const Range of_k = values(steps);
    const PackSource source{.data = data + of_k.begin * (k_runs_along_rows ? 1 : stride),
                            .stride = stride,
                            .k_runs_along_rows = k_runs_along_rows,
                            .k = of_k.size()};
    for (std::int64_t i = strips.begin; i < strips.end; ++i, words += steps.size() * step_words)
      split_strip(source, i * strip_width, lines({i, i + 1}).size(), side, words);
  }
};

class SplitGemm final : public Gemm {
 public:
  SplitGemm(const GemmShape& shape, const GemmPlan& plan)
      : s_(shape),
        steps_(ceil_div(shape.k, step_k)),
        k_blocks_(ceil_div(steps_, most_steps)),
        row_strips_(ceil_div(shape.m, strip_width)),
        column_strips_(ceil_div(shape.n, strip_width)),
        row_tiles_(ceil_div(row_strips_, ceil_div(plan.tile_m, strip_width))),
        column_tiles_(ceil_div(column_strips_, ceil_div(plan.tile_n, strip_width))) {}

  void run(ThreadPool& pool, const void* a, const void* b, void* c, void*,
           const GemmTileDone& done) const override {
    const std::int64_t tiles = row_tiles_ * column_tiles_;
    pool.run(s_.batch * tiles, [&](std::int64_t i) {
      const std::int64_t batch = i / tiles;
      const Range rows = part_of({0, row_strips_}, i % tiles / column_tiles_, row_tiles_),
                  columns = part_of({0, column_strips_}, i % column_tiles_, column_tiles_);
      run_tile({.data = static_cast<const float*>(a) + batch * s_.m * s_.k,
                .stride = s_.trans_a ? s_.m : s_.k,
                .k_runs_along_rows = !s_.trans_a,
                .extent = s_.m,
                .k = s_.k,
                .side = OperandSide::left},
               {.data = static_cast<const float*>(b) + batch * s_.k * s_.n,
                .stride = s_.trans_b ? s_.k : s_.n,
                .k_runs_along_rows = s_.trans_b,
                .extent = s_.n,
                .k = s_.k,
                .side = OperandSide::right},
               rows, columns, static_cast<float*>(c) + batch * s_.m * s_.n);
      if (done) done(tile_of(batch, rows, columns));
    });
  }

 private:
  // Multiplies one block of k of one strip of rows by one of columns. Sums stay in `sums`
  // [strip_width, strip_width] between blocks of k, and where C has no whole tiles.
  void multiply_strips(Range k, std::int64_t i, std::int64_t j, const std::uint32_t* left,
                       const std::uint32_t* right, float* sums, float* c) const {
    const bool is_first = k.begin == 0, is_last = k.end == steps_;
    const std::int64_t rows = std::min(strip_width, s_.m - i * strip_width);
    const std::int64_t columns = std::min(strip_width, s_.n - j * strip_width);
    const bool is_whole = rows % tile_width == 0 && columns % tile_width == 0;
    float* const part_of_c = c + i * strip_width * s_.n + j * strip_width;
    SplitBlock block{.rows = ceil_div(rows, tile_width) * tile_width,
                     .columns = ceil_div(columns, tile_width) * tile_width,
                     .steps = k.size(),
                     .left = left,
                     .right = right,
                     .from = sums,
                     .from_stride = strip_width,
                     .to = sums,
                     .to_stride = strip_width};
    if (is_first) {
      if (!s_.accumulate)
        block.from = nullptr;
      else if (is_whole)
        block.from = part_of_c, block.from_stride = s_.n;
      else
        for (std::int64_t r = 0; r < rows; ++r)
          std::copy_n(part_of_c + r * s_.n, columns, sums + r * strip_width);
    }
    if (is_last && is_whole) block.to = part_of_c, block.to_stride = s_.n;
    multiply_split(block);
    if (is_last && !is_whole)
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(sums + r * strip_width, columns, part_of_c + r * s_.n);
  }

  void run_tile(const Operand& a, const Operand& b, Range rows, Range columns, float* c) const {
    const std::int64_t words_of_a = rows.size() * most_steps * step_words;
    const std::int64_t words_of_b = columns.size() * most_steps * step_words;
    const std::int64_t products = rows.size() * columns.size();
    auto* const left = static_cast<std::uint32_t*>(scratch_memory(
        static_cast<std::size_t>(words_of_a + words_of_b + products * strip_width * strip_width) *
        sizeof(std::uint32_t)));
    std::uint32_t* const right = left + words_of_a;
    auto* const sums = reinterpret_cast<float*>(right + words_of_b);
    const AmxTiles tiles;
    for (std::int64_t block = 0; block < k_blocks_; ++block) {
      const Range k = part_of({0, steps_}, block, k_blocks_);
      const std::int64_t strip_words = k.size() * step_words;
      a.split(rows, k, left);
      b.split(columns, k, right);
      for (std::int64_t product = 0; product < products; ++product) {
        const std::int64_t i = product % rows.size(), j = product / rows.size();
        multiply_strips(k, rows.begin + i, columns.begin + j, left + i * strip_words,
                        right + j * strip_words, sums + product * strip_width * strip_width, c);
      }
    }
  }

  GemmTile tile_of(std::int64_t batch, Range rows, Range columns) const {
    const std::int64_t row = rows.begin * strip_width, column = columns.begin * strip_width;
    return {batch, row, std::min(s_.m, rows.end * strip_width) - row, column,
            std::min(s_.n, columns.end * strip_width) - column};
  }

  GemmShape s_;
  std::int64_t steps_, k_blocks_;
  std::int64_t row_strips_, column_strips_, row_tiles_, column_tiles_;
};

}  // namespace

// The largest tiles amortize splitting best; the others are for more threads. What a task has then
// fits a second-level cache of 2 MiB.
std::vector<GemmPlan> split_gemm_plans(const GemmShape& shape) {
  if (shape.in != DType::f32 || shape.out != DType::f32 || !may_use_amx()) return {};
  std::vector<GemmPlan> plans;
  const auto fitting = [](std::int64_t extent, std::int64_t tile) {
    return std::min(tile, ceil_div(extent, strip_width) * strip_width);
  };
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{512, 256},
                             {256, 512},
                             {256, 256},
                             {128, 256},
                             {128, 128},
                             {64, 128},
                             {64, 64}}) {
    const GemmPlan plan{GemmKind::split, fitting(shape.m, m), fitting(shape.n, n)};
    if (std::ranges::find(plans, plan) == plans.end()) plans.push_back(plan);
  }
  return plans;
}

GemmPlan default_split_plan(const GemmShape& shape) {
  const std::vector<GemmPlan> plans = split_gemm_plans(shape);
  if (plans.empty()) throw Error("no product of split operands for {}", to_string(shape));
  const auto suits = [&](const GemmPlan& plan) {
    return shape.batch * ceil_div(shape.m, plan.tile_m) * ceil_div(shape.n, plan.tile_n) >= 8;
  };
  const auto found = std::ranges::find_if(plans, suits);
  return found == plans.end() ? plans.back() : *found;
}

GemmPtr make_split_gemm(const GemmShape& shape, const GemmPlan& plan) {
  return std::make_unique<SplitGemm>(shape, plan);
}

#else

std::vector<GemmPlan> split_gemm_plans(const GemmShape&) { return {}; }

GemmPlan default_split_plan(const GemmShape& shape) {
  throw Error("no product of split operands for {}", to_string(shape));
}

GemmPtr make_split_gemm(const GemmShape& shape, const GemmPlan&) {
  throw Error("no product of split operands for {}", to_string(shape));
}

#endif

}  // namespace ridge
