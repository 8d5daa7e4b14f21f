// The product goes through k in chunks, and in each of these through tiles of C, the tasks. A task
// splits all of its rows of A, which then stay in the second-level cache, and multiplies them with
// one strip of columns of B after the other. B is split by all threads before, a group of its
// columns at a time, or by the tasks themselves where each has all rows of C. A product of few rows
// and long k is cut into parts of k, each with a sum of its own: so there are tasks enough, and a
// task can have all of C, so that no other task splits the same part of A or B.

#include "ridge/cpu/split_gemm.h"

#include <algorithm>
#include <utility>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/add_parts.h"
#include "ridge/cpu/amx.h"
#include "ridge/cpu/range.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/split_kernel.h"

namespace ridge {

#if defined(__AVX512BF16__)

namespace {

// Steps of k in two blocks, the most of a chunk. Blocks do not depend on the plan, so that sums are
// the same by any.
constexpr std::int64_t most_steps_of_two = 32;
// Strips of A times steps of k in one chunk: 1,152 KiB of a second-level cache of 2 MiB.
constexpr std::int64_t most_strip_steps = 192;
// Strips of B that are split at a time: a chunk of them takes 24 MiB at most.
constexpr std::int64_t most_group_strips = 128;

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

  // Strip by strip, [strips, word_steps, step_words]. Reads along rows of the matrix.
  void split(Range strips, Range steps, std::uint32_t* words, std::int64_t word_steps) const {
    const auto split_some = [&](std::int64_t strip, Range some) {
      const Range of_k = values(some);
      split_strip(
          {.data = data + of_k.begin * (k_runs_along_rows ? 1 : stride),
           .stride = stride,
           .k_runs_along_rows = k_runs_along_rows,
           .k = of_k.size()},
          strip * strip_width, lines({strip, strip + 1}).size(), side,
          words + ((strip - strips.begin) * word_steps + some.begin - steps.begin) * step_words);
    };
    if (k_runs_along_rows)
      for (std::int64_t i = strips.begin; i < strips.end; ++i) split_some(i, steps);
    else
      for (std::int64_t step = steps.begin; step < steps.end; ++step)
        for (std::int64_t i = strips.begin; i < strips.end; ++i) split_some(i, {step, step + 1});
  }
};

// Parts of [0, size) of at most `largest`.
struct Parts {
  std::int64_t size, count;
  Parts(std::int64_t whole, std::int64_t largest) : size(whole), count(ceil_div(whole, largest)) {}
  std::int64_t most() const { return ceil_div(size, count); }
  Range operator[](std::int64_t i) const { return part_of({0, size}, i, count); }
};

// Steps of k that are summed from zero.
std::vector<Range> blocks_of(std::int64_t steps) {
  std::vector<Range> blocks;
  const Parts pairs(steps, most_steps_of_two);
  for (std::int64_t pair = 0; pair < pairs.count; ++pair) {
    const std::int64_t count = ceil_div(pairs[pair].size(), most_block_steps);
    for (std::int64_t i = 0; i < count; ++i) blocks.push_back(part_of(pairs[pair], i, count));
  }
  return blocks;
}

std::int64_t longest_of(const std::vector<Range>& blocks) {
  std::int64_t longest = 1;
  for (const Range& block : blocks) longest = std::max(longest, block.size());
  return longest;
}

// Parts of k with a sum of their own: by the shape alone, so that sums are the same by any plan and
// on any number of threads.
std::int64_t parts_of_k(const GemmShape& s) {
  // With more rows a split strip of B is used so often that parts cost more than they save.
  constexpr std::int64_t most_rows = 768;
  // The tasks that are enough for the processors that there may be, and the most rows and columns
  // of C that one task has.
  constexpr std::int64_t enough_tasks = 16, lines_of_task = 512;
  // Shorter parts are not worth a sum of their own.
  constexpr std::int64_t least_steps = 32;
  // The most memory of all sums but the first, which is C.
  constexpr std::int64_t most_bytes = std::int64_t{8} << 20;
  if (s.batch > 1 || s.m > most_rows) return 1;
  const std::int64_t tasks = ceil_div(s.m, lines_of_task) * ceil_div(s.n, lines_of_task);
  const std::int64_t sum_bytes = s.m * s.n * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(1,
                                std::min({enough_tasks / tasks, ceil_div(s.k, step_k) / least_steps,
                                          1 + most_bytes / sum_bytes}));
}

class SplitGemm final : public Gemm {
 public:
  SplitGemm(const GemmShape& shape, const GemmPlan& plan)
      : s_(shape),
        blocks_(blocks_of(ceil_div(shape.k, step_k))),
        rows_(ceil_div(shape.m, strip_width), ceil_div(plan.tile_m, strip_width)),
        groups_(ceil_div(shape.n, strip_width), most_group_strips),
        column_strips_(ceil_div(plan.tile_n, strip_width)) {
    const std::int64_t parts = parts_of_k(shape);
    for (std::int64_t part = 0; part < parts; ++part) {
      const Range blocks = part_of({0, std::ssize(blocks_)}, part, parts);
      const std::int64_t count = ceil_div(blocks.size(), most_blocks_of_chunk());
      parts_.push_back({std::ssize(chunks_), std::ssize(chunks_) + count});
      for (std::int64_t i = 0; i < count; ++i) chunks_.push_back(part_of(blocks, i, count));
    }
  }

  std::size_t workspace() const override {
    if (parts_.size() > 1)
      return (parts_.size() - 1) * static_cast<std::size_t>(s_.m * s_.n) * sizeof(float);
    return splits_b_once()
               ? static_cast<std::size_t>(groups_.most() * most_steps_of_chunk() * step_words) *
                     sizeof(std::uint32_t)
               : 0;
  }

  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const GemmTileDone& done) const override {
    if (parts_.size() > 1) {
      auto* const sum = static_cast<float*>(c);
      auto* const others = static_cast<float*>(workspace);
      run_parts(pool, a, b, sum, others);
      const std::int64_t size = s_.m * s_.n;
      add_parts(pool, others, size, std::ssize(parts_) - 1, size, sum);
      if (done) pool.run(s_.m, [&](std::int64_t row) { done({0, row, 1, 0, s_.n}); });
      return;
    }
    if (!splits_b_once()) {
      run_tiles(pool, a, b, c, {{0, s_.batch}, {0, groups_.size}, parts_[0]}, nullptr, done);
      return;
    }
    auto* const right = static_cast<std::uint32_t*>(workspace);
    for (std::int64_t batch = 0; batch < s_.batch; ++batch)
      for (std::int64_t group = 0; group < groups_.count; ++group)
        for (std::int64_t chunk = 0; chunk < std::ssize(chunks_); ++chunk) {
          const Piece piece{{batch, batch + 1}, groups_[group], {chunk, chunk + 1}};
          split_b(pool, right_operand(b, batch), piece.strips, steps_of(chunk), right);
          run_tiles(pool, a, b, c, piece, right, done);
        }
  }

 private:
  // A part of the product: matrices of the batch, strips of columns, chunks of k.
  struct Piece {
    Range batches, strips, chunks;
  };

  std::int64_t most_blocks_of_chunk() const {
    return std::clamp<std::int64_t>(most_strip_steps / (rows_.most() * longest_of(blocks_)), 1, 2);
  }
  const Range& block(std::int64_t i) const { return blocks_[static_cast<std::size_t>(i)]; }
  const Range& blocks_of_chunk(std::int64_t i) const {
    return chunks_[static_cast<std::size_t>(i)];
  }
  Range steps_of(std::int64_t chunk) const {
    const Range& blocks = blocks_of_chunk(chunk);
    return {block(blocks.begin).begin, block(blocks.end - 1).end};
  }
  std::int64_t most_steps_of_chunk() const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < std::ssize(chunks_); ++i)
      most = std::max(most, steps_of(i).size());
    return most;
  }

  // Of several rows of tiles, each would split it again.
  bool splits_b_once() const { return rows_.count > 1; }

  Operand left_operand(const void* a, std::int64_t batch) const {
    return {.data = static_cast<const float*>(a) + batch * s_.m * s_.k,
            .stride = s_.trans_a ? s_.m : s_.k,
            .k_runs_along_rows = !s_.trans_a,
            .extent = s_.m,
            .k = s_.k,
            .side = OperandSide::left};
  }
  Operand right_operand(const void* b, std::int64_t batch) const {
    return {.data = static_cast<const float*>(b) + batch * s_.k * s_.n,
            .stride = s_.trans_b ? s_.k : s_.n,
            .k_runs_along_rows = s_.trans_b,
            .extent = s_.n,
            .k = s_.k,
            .side = OperandSide::right};
  }

  // A task has some rows of what is stored, as far as the piece goes.
  void split_b(ThreadPool& pool, const Operand& b, Range strips, Range steps,
               std::uint32_t* right) const {
    const std::int64_t strip_words = steps.size() * step_words;
    if (b.k_runs_along_rows)
      pool.run(strips.size(), [&](std::int64_t i) {
        b.split({strips.begin + i, strips.begin + i + 1}, steps, right + i * strip_words,
                steps.size());
      });
    else
      pool.run(steps.size(), [&](std::int64_t i) {
        b.split(strips, {steps.begin + i, steps.begin + i + 1}, right + i * step_words,
                steps.size());
      });
  }

  // `right` has the piece's part of B, or is null.
  void run_tiles(ThreadPool& pool, const void* a, const void* b, void* c, const Piece& piece,
                 const std::uint32_t* right, const GemmTileDone& done) const {
    const Parts columns(piece.strips.size(), column_strips_);
    const std::int64_t tiles = rows_.count * columns.count;
    pool.run(piece.batches.size() * tiles, [&](std::int64_t i) {
      const std::int64_t batch = piece.batches.begin + i / tiles;
      const Range rows = rows_[i % tiles / columns.count];
      const Range strips = part_of(piece.strips, i % columns.count, columns.count);
      const Tile tile{.a = left_operand(a, batch),
                      .b = right_operand(b, batch),
                      .right = right ? right + (strips.begin - piece.strips.begin) *
                                                   steps_of(piece.chunks.begin).size() * step_words
                                     : nullptr,
                      .c = static_cast<float*>(c) + batch * s_.m * s_.n,
                      .rows = rows,
                      .columns = strips,
                      .adds_to_first = s_.accumulate};
      const auto strip_done = [&](Range strip) {
        if (done) done(tile_of(batch, rows, strip));
      };
      const AmxTiles tiles_of_registers;
      for (std::int64_t chunk = piece.chunks.begin; chunk < piece.chunks.end; ++chunk)
        run_chunk(tile, chunk, strip_done);
    });
  }

  // The sum of each part of k: of the first in C, of the others one after the other in `others`.
  void run_parts(ThreadPool& pool, const void* a, const void* b, float* c, float* others) const {
    const Parts columns(groups_.size, column_strips_);
    const std::int64_t tiles = rows_.count * columns.count;
    pool.run(std::ssize(parts_) * tiles, [&](std::int64_t i) {
      const std::int64_t part = i / tiles;
      const Range& chunks = parts_[static_cast<std::size_t>(part)];
      const Tile tile{.a = left_operand(a, 0),
                      .b = right_operand(b, 0),
                      .right = nullptr,
                      .c = part == 0 ? c : others + (part - 1) * s_.m * s_.n,
                      .rows = rows_[i % tiles / columns.count],
                      .columns = columns[i % columns.count],
                      .first_chunk = chunks.begin,
                      .adds_to_first = part == 0 && s_.accumulate};
      const AmxTiles tiles_of_registers;
      for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk)
        run_chunk(tile, chunk, [](Range) {});
    });
  }

  struct Tile {
    Operand a, b;
    const std::uint32_t* right;  // its columns of B, split, or null
    float* c;
    Range rows, columns;  // strips
    std::int64_t first_chunk = 0;
    bool adds_to_first = false;  // whether the first chunk is added to what C holds
  };

  // Multiplies one chunk of k of one strip of rows by one of columns, a block of steps at a time.
  void multiply_strips(const Tile& tile, std::int64_t chunk, std::int64_t i, std::int64_t j,
                       const std::uint32_t* left, const std::uint32_t* right) const {
    const std::int64_t rows = std::min(strip_width, s_.m - i * strip_width);
    const std::int64_t columns = std::min(strip_width, s_.n - j * strip_width);
    float* const part_of_c = tile.c + i * strip_width * s_.n + j * strip_width;
    SplitBlock sums{.rows = ceil_div(rows, tile_width) * tile_width,
                    .columns = ceil_div(columns, tile_width) * tile_width,
                    .adds = chunk > tile.first_chunk || tile.adds_to_first,
                    .to = part_of_c,
                    .stride = s_.n};
    const bool is_whole = rows == sums.rows && columns == sums.columns;
    alignas(64) float whole[strip_sums];
    if (!is_whole) {
      sums.to = whole, sums.stride = strip_width;
      if (sums.adds)
        for (std::int64_t r = 0; r < rows; ++r)
          std::copy_n(part_of_c + r * s_.n, columns, whole + r * strip_width);
    }
    const Range& blocks = blocks_of_chunk(chunk);
    const std::int64_t first = steps_of(chunk).begin;
    for (std::int64_t of = blocks.begin; of < blocks.end; ++of) {
      const Range& steps = block(of);
      sums.steps = steps.size();
      for (std::int64_t step = 0; step < sums.steps; ++step) {
        const auto at = static_cast<std::size_t>(step);
        sums.left[at] = left + (steps.begin - first + step) * step_words;
        sums.right[at] = right + (steps.begin - first + step) * step_words;
      }
      multiply_split(sums);
      sums.adds = true;
    }
    if (!is_whole)
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(whole + r * strip_width, columns, part_of_c + r * s_.n);
  }

  // Calls `done` with each strip of columns that is complete.
  template <class Done>
  void run_chunk(const Tile& tile, std::int64_t chunk, const Done& done) const {
    const Range k = steps_of(chunk);
    const std::int64_t strip_words = k.size() * step_words;
    auto* const own = static_cast<std::uint32_t*>(scratch_memory(
        static_cast<std::size_t>((tile.rows.size() + 1) * strip_words) * sizeof(std::uint32_t)));
    std::uint32_t* const left = own + strip_words;
    tile.a.split(tile.rows, k, left, k.size());
    for (std::int64_t column = tile.columns.begin; column < tile.columns.end; ++column) {
      const std::uint32_t* right = own;
      if (tile.right)
        right = tile.right + (column - tile.columns.begin) * strip_words;
      else
        tile.b.split({column, column + 1}, k, own, k.size());
      for (std::int64_t row = 0; row < tile.rows.size(); ++row)
        multiply_strips(tile, chunk, tile.rows.begin + row, column, left + row * strip_words,
                        right);
      if (chunk + 1 == std::ssize(chunks_)) done({column, column + 1});
    }
  }

  GemmTile tile_of(std::int64_t batch, Range rows, Range columns) const {
    const std::int64_t row = rows.begin * strip_width, column = columns.begin * strip_width;
    return {batch, row, std::min(s_.m, rows.end * strip_width) - row, column,
            std::min(s_.n, columns.end * strip_width) - column};
  }

  GemmShape s_;
  std::vector<Range> blocks_;  // of steps
  Parts rows_;                 // of strips
  Parts groups_;               // of strips
  std::vector<Range> chunks_;  // of blocks
  std::vector<Range> parts_;   // of chunks
  std::int64_t column_strips_;
};

}  // namespace

// The largest tiles amortize splitting best; the others are for more threads.
std::vector<GemmPlan> split_gemm_plans(const GemmShape& shape) {
  if (shape.in != DType::f32 || shape.out != DType::f32 || !may_multiply_split()) return {};
  std::vector<GemmPlan> plans;
  const auto fitting = [](std::int64_t extent, std::int64_t tile) {
    return std::min(tile, ceil_div(extent, strip_width) * strip_width);
  };
  // Rows of which a block of k stays in the second-level cache: with all of them in one tile, no
  // two tasks want the same columns of B.
  const std::int64_t staying =
      most_strip_steps / longest_of(blocks_of(ceil_div(shape.k, step_k))) * strip_width;
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{128, 2048},
                             {staying, 1024},
                             {staying, 256},
                             {256, 512},
                             {192, 1024},
                             {64, 2048},
                             {128, 512},
                             {64, 256},
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
    return shape.batch * parts_of_k(shape) * ceil_div(shape.m, plan.tile_m) *
               ceil_div(shape.n, plan.tile_n) >=
           8;
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
