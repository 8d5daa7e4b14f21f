// C is cut into tiles, the tasks. A task goes through k in blocks; of each it takes one group of
// B's columns after the other, small enough to stay in the second-level cache, and multiplies it
// with one block of A's rows after the other, which stays in the first.
//
// Columns are counted in column blocks of `block_columns`, rows are split evenly: a tile of 128
// rows becomes ten blocks of 12 and 13 rather than nine of 14 and one of 2.

#include "ridge/cpu/gemm_packed.h"

#include <algorithm>

#include "ridge/cpu/gemm_kernel.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// Words of k in one block: a block of A's rows then takes 21 KiB of a first-level cache of 32.
constexpr std::int64_t most_k_words = 384;
// Words of B in one group: half a second-level cache of 1 MiB.
constexpr std::int64_t group_words = std::int64_t{1} << 17;
// Rows of B further apart than this displace each other from the caches, and strain the address
// translation: they are packed.
constexpr std::int64_t most_columns_in_place = 128;
// Words of k that are packed for all columns of a group before the next.
constexpr std::int64_t chunk_words = 32;
// Multiply-adds worth the hand-over of a task.
constexpr std::int64_t least_work = std::int64_t{1} << 19;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Part `i` of `parts` that differ by at most one.
Range part_of(Range all, std::int64_t i, std::int64_t parts) {
  return {all.begin + all.size() * i / parts, all.begin + all.size() * (i + 1) / parts};
}

const void* advanced(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

class PackedGemm final : public Gemm {
 public:
  PackedGemm(const GemmShape& shape, const GemmPlan& plan);
  std::size_t workspace() const override;
  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace) const override;

 private:
  // A task: one tile of C in one or more matrices of the batch.
  struct Task {
    const void *a, *b;
    const float* packed_b;  // null if the tile packs B itself
    void* c;
    std::int64_t batch;
    Range rows, column_blocks;
  };
  // Where the calling thread keeps a tile's words.
  struct Scratch {
    float *a, *b, *c;
  };

  Range k_words(std::int64_t block) const { return part_of({0, words_}, block, k_blocks_); }
  std::int64_t width(std::int64_t column_block) const;
  std::int64_t padded_width(std::int64_t column_block) const;
  bool in_place(std::int64_t column_block) const;
  PackSource rows_of_a(const void* a, std::int64_t batch, Range rows, Range k) const;
  PackSource columns_of_b(const void* b, std::int64_t batch, std::int64_t column_block,
                          Range k) const;

  void pack_b(ThreadPool& pool, const void* b, float* packed) const;
  void pack_a(const Task& task, Range k, float* words) const;
  void run_tile(const Task& task) const;
  Scratch scratch(const Task& task) const;
  void multiply_k_block(const Task& task, Range k, const Scratch& scratch, float* c,
                        std::int64_t c_stride, bool accumulate) const;
  void multiply_rows(const Task& task, Range k, Range rows, const float* a, Range group,
                     const Scratch& scratch, float* c, std::int64_t c_stride,
                     bool accumulate) const;
  void finish_tile(const Task& task, const float* sums, std::int64_t stride) const;

  GemmShape shape_;
  Words kind_;
  bool packs_b_once_;
  std::int64_t words_, k_blocks_;  // words of k, and the blocks they make
  std::int64_t column_blocks_, row_tiles_, column_tiles_, batches_per_task_;
};

PackedGemm::PackedGemm(const GemmShape& shape, const GemmPlan& plan)
    : shape_(shape),
      kind_(words_of(shape.in)),
      packs_b_once_(plan.kind == GemmKind::packed),
      words_(ceil_div(shape.k, k_per_word(kind_))),
      k_blocks_(ceil_div(words_, most_k_words)),
      column_blocks_(ceil_div(shape.n, block_columns)),
      row_tiles_(ceil_div(shape.m, plan.tile_m)),
      column_tiles_(ceil_div(column_blocks_, ceil_div(plan.tile_n, block_columns))),
      batches_per_task_(std::max<std::int64_t>(
          1, row_tiles_ * column_tiles_ * least_work / (shape.m * shape.n * shape.k))) {}

std::size_t PackedGemm::workspace() const {
  if (!packs_b_once_) return 0;
  return static_cast<std::size_t>(shape_.batch * words_ * round_up(shape_.n, lanes)) *
         sizeof(float);
}

std::int64_t PackedGemm::width(std::int64_t column_block) const {
  return std::min(block_columns, shape_.n - column_block * block_columns);
}

std::int64_t PackedGemm::padded_width(std::int64_t column_block) const {
  return round_up(width(column_block), lanes);
}

bool PackedGemm::in_place(std::int64_t column_block) const {
  return kind_ == Words::floats && !shape_.trans_b && shape_.n <= most_columns_in_place &&
         width(column_block) % lanes == 0;
}

PackSource PackedGemm::rows_of_a(const void* a, std::int64_t batch, Range rows, Range k) const {
  const std::int64_t first = k.begin * k_per_word(kind_);
  const std::int64_t stride = shape_.trans_a ? shape_.m : shape_.k;
  const std::int64_t at =
      batch * shape_.m * shape_.k +
      (shape_.trans_a ? first * stride + rows.begin : rows.begin * stride + first);
  return {advanced(a, at, shape_.in),
          stride,
          !shape_.trans_a,
          rows.size(),
          std::min(shape_.k - first, k.size() * k_per_word(kind_)),
          shape_.batch * shape_.m * shape_.k - at};
}

PackSource PackedGemm::columns_of_b(const void* b, std::int64_t batch, std::int64_t column_block,
                                    Range k) const {
  const std::int64_t first = k.begin * k_per_word(kind_), column = column_block * block_columns;
  const std::int64_t stride = shape_.trans_b ? shape_.k : shape_.n;
  const std::int64_t at = batch * shape_.k * shape_.n +
                          (shape_.trans_b ? column * stride + first : first * stride + column);
  return {advanced(b, at, shape_.in),
          stride,
          shape_.trans_b,
          width(column_block),
          std::min(shape_.k - first, k.size() * k_per_word(kind_)),
          shape_.batch * shape_.k * shape_.n - at};
}

// Packed, a matrix B is its blocks of k one after the other, and each its column blocks. A task
// takes few rows of a B whose rows are columns of C, so that it reads them from end to end.
void PackedGemm::pack_b(ThreadPool& pool, const void* b, float* packed) const {
  const std::int64_t padded_n = round_up(shape_.n, lanes);
  const std::int64_t words = k_words(0).size();
  const std::int64_t chunks = shape_.trans_b ? 1 : ceil_div(words, chunk_words);
  const std::int64_t groups =
      shape_.trans_b ? ceil_div(column_blocks_ * words, block_columns * chunk_words) : 1;
  const std::int64_t tasks = k_blocks_ * chunks * groups;
  pool.run(shape_.batch * tasks, [&](std::int64_t i) {
    const std::int64_t batch = i / tasks;
    const Range k = k_words(i % tasks / (chunks * groups));
    const Range chunk = part_of(k, i / groups % chunks, chunks);
    const Range columns = part_of({0, column_blocks_}, i % groups, groups);
    float* block = packed + (batch * words_ + k.begin) * padded_n;
    for (std::int64_t j = columns.begin; j < columns.end; ++j)
      pack(kind_, columns_of_b(b, batch, j, chunk), padded_width(j),
           block + k.size() * j * block_columns + (chunk.begin - k.begin) * padded_width(j));
  });
}

// Row blocks of A one after the other. Where they lie side by side in memory, a few rows are read
// from end to end before the next.
void PackedGemm::pack_a(const Task& task, Range k, float* words) const {
  const std::int64_t row_blocks = ceil_div(task.rows.size(), block_rows);
  const std::int64_t chunks = shape_.trans_a ? ceil_div(k.size(), chunk_words) : 1;
  for (std::int64_t c = 0; c < chunks; ++c)
    for (std::int64_t i = 0; i < row_blocks; ++i) {
      const Range rows = part_of(task.rows, i, row_blocks), chunk = part_of(k, c, chunks);
      pack(kind_, rows_of_a(task.a, task.batch, rows, chunk), lanes,
           words + (i * k.size() + chunk.begin - k.begin) * lanes);
    }
}

void PackedGemm::run(ThreadPool& pool, const void* a, const void* b, void* c,
                     void* workspace) const {
  auto* packed = packs_b_once_ ? static_cast<float*>(workspace) : nullptr;
  if (packed) pack_b(pool, b, packed);
  const std::int64_t tiles = row_tiles_ * column_tiles_;
  pool.run(ceil_div(shape_.batch, batches_per_task_) * tiles, [&](std::int64_t i) {
    const std::int64_t first = i / tiles * batches_per_task_;
    Task task{.a = a,
              .b = b,
              .packed_b = packed,
              .c = c,
              .batch = first,
              .rows = {},
              .column_blocks = {}};
    task.rows = part_of({0, shape_.m}, i % tiles / column_tiles_, row_tiles_);
    task.column_blocks = part_of({0, column_blocks_}, i % column_tiles_, column_tiles_);
    for (; task.batch < std::min(shape_.batch, first + batches_per_task_); ++task.batch)
      run_tile(task);
  });
}

PackedGemm::Scratch PackedGemm::scratch(const Task& task) const {
  const std::int64_t k = std::min(words_, most_k_words);
  const std::int64_t columns = task.column_blocks.size() * block_columns;
  const std::int64_t a = ceil_div(task.rows.size(), block_rows) * k * lanes;
  const std::int64_t b = task.packed_b ? 0 : k * columns;
  const std::int64_t c = shape_.out == DType::f32 ? 0 : task.rows.size() * columns;
  auto* words =
      static_cast<float*>(scratch_memory(static_cast<std::size_t>(a + b + c) * sizeof(float)));
  return {words, words + a, words + a + b};
}

void PackedGemm::run_tile(const Task& task) const {
  const Scratch memory = scratch(task);
  const std::int64_t columns = task.column_blocks.size() * block_columns;
  const bool direct = shape_.out == DType::f32;
  const std::int64_t c_stride = direct ? shape_.n : columns;
  float* c = direct ? static_cast<float*>(task.c) +
                          (task.batch * shape_.m + task.rows.begin) * shape_.n +
                          task.column_blocks.begin * block_columns
                    : memory.c;
  for (std::int64_t block = 0; block < k_blocks_; ++block) {
    const bool accumulate = block > 0 || (direct && shape_.accumulate);
    multiply_k_block(task, k_words(block), memory, c, c_stride, accumulate);
  }
  if (!direct) finish_tile(task, memory.c, c_stride);
}

void PackedGemm::multiply_k_block(const Task& task, Range k, const Scratch& memory, float* c,
                                  std::int64_t c_stride, bool accumulate) const {
  const Range columns = task.column_blocks;
  if (!task.packed_b)
    for (std::int64_t j = columns.begin; j < columns.end; ++j)
      if (!in_place(j))
        pack(kind_, columns_of_b(task.b, task.batch, j, k), padded_width(j),
             memory.b + (j - columns.begin) * block_columns * k.size());
  pack_a(task, k, memory.a);
  const std::int64_t groups = ceil_div(columns.size() * block_columns * k.size(), group_words);
  const std::int64_t row_blocks = ceil_div(task.rows.size(), block_rows);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < row_blocks; ++i)
      multiply_rows(task, k, part_of(task.rows, i, row_blocks), memory.a + i * k.size() * lanes,
                    part_of(columns, g, groups), memory, c, c_stride, accumulate);
}

void PackedGemm::multiply_rows(const Task& task, Range k, Range rows, const float* a, Range group,
                               const Scratch& memory, float* c, std::int64_t c_stride,
                               bool accumulate) const {
  const std::int64_t row = rows.begin - task.rows.begin, padded_n = round_up(shape_.n, lanes);
  for (std::int64_t j = group.begin; j < group.end; ++j) {
    const std::int64_t column = (j - task.column_blocks.begin) * block_columns;
    BlockProduct block{.rows = rows.size(),
                       .columns = width(j),
                       .steps = k.size(),
                       .a = a,
                       .b_stride = padded_width(j),
                       .c = c + row * c_stride + column,
                       .c_stride = c_stride,
                       .accumulate = accumulate};
    if (task.packed_b) {
      block.b =
          task.packed_b + (task.batch * words_ + k.begin) * padded_n + k.size() * j * block_columns;
    } else if (in_place(j)) {
      block.b = static_cast<const float*>(columns_of_b(task.b, task.batch, j, k).data);
      block.b_stride = shape_.n;
    } else {
      block.b = memory.b + column * k.size();
    }
    multiply_block(kind_, block);
  }
}

// Rounds a tile's sums to bf16.
void PackedGemm::finish_tile(const Task& task, const float* sums, std::int64_t stride) const {
  const std::int64_t first = task.column_blocks.begin * block_columns;
  const std::int64_t columns = std::min(shape_.n, task.column_blocks.end * block_columns) - first;
  for (std::int64_t i = 0; i < task.rows.size(); ++i, sums += stride) {
    BFloat16* c = static_cast<BFloat16*>(task.c) +
                  (task.batch * shape_.m + task.rows.begin + i) * shape_.n + first;
    if (shape_.accumulate)
      for (std::int64_t j = 0; j < columns; ++j) store(&c[j], sums[j] + load(&c[j]));
    else
      for (std::int64_t j = 0; j < columns; ++j) store(&c[j], sums[j]);
  }
}

}  // namespace

GemmPtr make_packed_gemm(const GemmShape& shape, const GemmPlan& plan) {
  return std::make_unique<PackedGemm>(shape, plan);
}

}  // namespace ridge
