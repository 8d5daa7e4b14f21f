// C is cut into tiles, the tasks, of whole row and column blocks. A task goes through k in blocks;
// of each it takes one group of B's columns after the other, small enough to stay in the
// second-level cache, and multiplies it with one block of A's rows after the other, which stays in
// the first.
//
// Columns are counted in column blocks of `block_columns`, rows are split evenly: a tile of 128
// rows becomes ten blocks of 12 and 13 rather than nine of 14 and one of 2.

#include "ridge/cpu/gemm_packed.h"

#include <algorithm>
#include <vector>

#include "ridge/base/ceil_div.h"
#include "ridge/cpu/gemm_kernel.h"
#include "ridge/cpu/range.h"
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
// Words of k that a task packs of all columns of B.
constexpr std::int64_t chunk_words = 32;
// Most bytes of packed operands in a stage of several blocks of k, which should still be in the
// last-level cache when they are read.
constexpr std::int64_t stage_bytes = std::int64_t{4} << 20;
// Multiply-adds worth the hand-over of a task.
constexpr std::int64_t least_work = std::int64_t{1} << 19;

std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

const void* advanced(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

class PackedGemm final : public Gemm {
 public:
  PackedGemm(const GemmShape& shape, const GemmPlan& plan);
  std::size_t workspace() const override;
  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const GemmTileDone& done) const override;

 private:
  // A task: one tile of C in one or more matrices of the batch, over some blocks of k.
  struct Task {
    const void *a, *b;
    const float *packed_a, *packed_b;  // null if the tile packs the operand itself
    void* c;
    std::int64_t batch = 0;
    Range row_blocks = {}, column_blocks = {}, k_blocks;
  };
  // Where a tile's sums go: to `sums`, which the last block of k rounds to `rounded` if given.
  struct Target {
    float* sums;
    std::int64_t stride;
    BFloat16* rounded;
  };
  // Where the calling thread keeps a tile's words.
  struct Scratch {
    float *a, *b, *c;
  };

  Range k_words(std::int64_t block) const { return part_of({0, words_}, block, k_blocks_); }
  Range k_words(Range blocks) const {
    return {k_words(blocks.begin).begin, k_words(blocks.end - 1).end};
  }
  Range stage(std::int64_t number) const { return part_of({0, k_blocks_}, number, stages_); }
  Range rows(Range row_blocks) const {
    return {part_of({0, shape_.m}, row_blocks.begin, row_blocks_).begin,
            part_of({0, shape_.m}, row_blocks.end, row_blocks_).begin};
  }
  std::int64_t width(std::int64_t column_block) const;
  std::int64_t padded_width(std::int64_t column_block) const;
  bool in_place(std::int64_t column_block) const;
  PackSource rows_of_a(const void* a, std::int64_t batch, Range r, Range k) const;
  PackSource columns_of_b(const void* b, std::int64_t batch, std::int64_t column_block,
                          Range k) const;

  void pack_b(ThreadPool& pool, const void* b, Range k_blocks, float* packed) const;
  void pack_a(ThreadPool& pool, const void* a, Range k_blocks, float* packed) const;
  void run_tiles(ThreadPool& pool, const Task& all, const GemmTileDone& done) const;
  void pack_rows_of_a(const void* a, std::int64_t batch, Range row_blocks, Range k, Range chunk,
                      float* words) const;
  void pack_tile_of_b(const Task& task, Range k, float* words) const;
  // Words along k of what is packed before block `k` of the task's matrix.
  std::int64_t words_before(const Task& task, Range k) const {
    const Range all = k_words(task.k_blocks);
    return task.batch * all.size() + k.begin - all.begin;
  }
  void run_tile(const Task& task) const;
  Scratch scratch(const Task& task) const;
  void multiply_k_block(const Task& task, Range k, const Scratch& scratch, const Target& c,
                        bool accumulate) const;
  void multiply_rows(const Task& task, Range k, Range c_rows, const float* a, Range group,
                     const Scratch& scratch, const Target& c, bool accumulate) const;
  template <class T>
  T* first_of_tile(const Task& task) const;
  GemmTile tile_of(const Task& task) const;
  void add_tile(const Task& task, const float* sums, std::int64_t stride) const;

  GemmShape shape_;
  Words kind_;
  bool packs_a_once_, packs_b_once_;
  // Words of k, the blocks that they make, and the stages, each of some blocks whose operands are
  // packed before all tiles go through them.
  std::int64_t words_, k_blocks_, stages_;
  std::int64_t row_blocks_, column_blocks_, row_tiles_, column_tiles_, batches_per_task_;
};

PackedGemm::PackedGemm(const GemmShape& shape, const GemmPlan& plan)
    : shape_(shape),
      kind_(words_of(shape.in)),
      packs_a_once_(plan.kind == GemmKind::packed && shape.trans_a),
      packs_b_once_(plan.kind == GemmKind::packed),
      words_(ceil_div(shape.k, k_per_word(kind_))),
      k_blocks_(ceil_div(words_, most_k_words)),
      stages_(packed_stages(shape, plan.kind)),
      row_blocks_(ceil_div(shape.m, block_rows)),
      column_blocks_(ceil_div(shape.n, block_columns)),
      row_tiles_(std::min(row_blocks_, ceil_div(shape.m, plan.tile_m))),
      column_tiles_(ceil_div(column_blocks_, ceil_div(plan.tile_n, block_columns))),
      batches_per_task_(std::max<std::int64_t>(
          1, row_tiles_ * column_tiles_ * least_work / (shape.m * shape.n * shape.k))) {}

std::size_t PackedGemm::workspace() const {
  const std::int64_t a = packs_a_once_ ? row_blocks_ * lanes : 0;
  const std::int64_t b = packs_b_once_ ? round_up(shape_.n, lanes) : 0;
  const std::int64_t words = std::min(words_, ceil_div(k_blocks_, stages_) * most_k_words);
  return static_cast<std::size_t>(shape_.batch * words * (a + b)) * sizeof(float);
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

PackSource PackedGemm::rows_of_a(const void* a, std::int64_t batch, Range r, Range k) const {
  const std::int64_t first = k.begin * k_per_word(kind_);
  const std::int64_t stride = shape_.trans_a ? shape_.m : shape_.k;
  const std::int64_t at = batch * shape_.m * shape_.k +
                          (shape_.trans_a ? first * stride + r.begin : r.begin * stride + first);
  return {advanced(a, at, shape_.in), stride, !shape_.trans_a,
          std::min(shape_.k - first, k.size() * k_per_word(kind_)),
          shape_.batch * shape_.m * shape_.k - at};
}

PackSource PackedGemm::columns_of_b(const void* b, std::int64_t batch, std::int64_t column_block,
                                    Range k) const {
  const std::int64_t first = k.begin * k_per_word(kind_), column = column_block * block_columns;
  const std::int64_t stride = shape_.trans_b ? shape_.k : shape_.n;
  const std::int64_t at = batch * shape_.k * shape_.n +
                          (shape_.trans_b ? column * stride + first : first * stride + column);
  return {advanced(b, at, shape_.in), stride, shape_.trans_b,
          std::min(shape_.k - first, k.size() * k_per_word(kind_)),
          shape_.batch * shape_.k * shape_.n - at};
}

// Packed, a matrix B is the blocks of k of a stage one after the other, and each its column blocks.
// A task takes some rows of it from end to end, or some columns if those are what is stored as
// rows.
void PackedGemm::pack_b(ThreadPool& pool, const void* b, Range k_blocks, float* packed) const {
  const std::int64_t padded_n = round_up(shape_.n, lanes);
  const std::int64_t words = k_words(0).size();
  const Range all = k_words(k_blocks);
  const std::int64_t chunks = shape_.trans_b ? 1 : ceil_div(words, chunk_words);
  const std::int64_t groups =
      shape_.trans_b ? ceil_div(column_blocks_ * words, block_columns * chunk_words) : 1;
  const std::int64_t tasks = k_blocks.size() * chunks * groups;
  pool.run(shape_.batch * tasks, [&](std::int64_t i) {
    const std::int64_t batch = i / tasks;
    const Range k = k_words(k_blocks.begin + i % tasks / (chunks * groups));
    const Range chunk = part_of(k, i / groups % chunks, chunks);
    const Range columns = part_of({0, column_blocks_}, i % groups, groups);
    float* block = packed + (batch * all.size() + k.begin - all.begin) * padded_n;
    std::vector<PackPart> parts;
    for (std::int64_t j = columns.begin; j < columns.end; ++j)
      parts.push_back(
          {(j - columns.begin) * block_columns, width(j),
           block + k.size() * j * block_columns + (chunk.begin - k.begin) * padded_width(j)});
    pack(kind_, columns_of_b(b, batch, columns.begin, chunk), parts);
  });
}

// The words of `chunk`, a part of block `k`; the row blocks follow each other at their whole
// length.
void PackedGemm::pack_rows_of_a(const void* a, std::int64_t batch, Range row_blocks, Range k,
                                Range chunk, float* words) const {
  const Range all = rows(row_blocks);
  std::vector<PackPart> parts;
  for (std::int64_t i = row_blocks.begin; i < row_blocks.end; ++i) {
    const Range r = rows({i, i + 1});
    parts.push_back({r.begin - all.begin, r.size(),
                     words + ((i - row_blocks.begin) * k.size() + chunk.begin - k.begin) * lanes});
  }
  pack(kind_, rows_of_a(a, batch, all, chunk), parts);
}

// A stored as its columns, packed like B: a tile alone would read but a little of each stored row.
void PackedGemm::pack_a(ThreadPool& pool, const void* a, Range k_blocks, float* packed) const {
  const std::int64_t chunks = ceil_div(k_words(0).size(), chunk_words);
  const Range all = k_words(k_blocks);
  const std::int64_t tasks = k_blocks.size() * chunks;
  pool.run(shape_.batch * tasks, [&](std::int64_t i) {
    const std::int64_t batch = i / tasks;
    const Range k = k_words(k_blocks.begin + i % tasks / chunks);
    pack_rows_of_a(a, batch, {0, row_blocks_}, k, part_of(k, i % chunks, chunks),
                   packed + (batch * all.size() + k.begin - all.begin) * row_blocks_ * lanes);
  });
}

// The columns of a tile that packs B itself.
void PackedGemm::pack_tile_of_b(const Task& task, Range k, float* words) const {
  const Range columns = task.column_blocks;
  std::vector<PackPart> parts;
  for (std::int64_t j = columns.begin; j < columns.end; ++j)
    if (!in_place(j))
      parts.push_back({(j - columns.begin) * block_columns, width(j),
                       words + (j - columns.begin) * block_columns * k.size()});
  pack(kind_, columns_of_b(task.b, task.batch, columns.begin, k), parts);
}

void PackedGemm::run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
                     const GemmTileDone& done) const {
  for (std::int64_t i = 0; i < stages_; ++i) {
    const Range blocks = stage(i);
    const std::int64_t words_of_b =
        shape_.batch * k_words(blocks).size() * round_up(shape_.n, lanes);
    auto* packed_b = packs_b_once_ ? static_cast<float*>(workspace) : nullptr;
    auto* packed_a = packs_a_once_ ? packed_b + words_of_b : nullptr;
    if (packed_b) pack_b(pool, b, blocks, packed_b);
    if (packed_a) pack_a(pool, a, blocks, packed_a);
    run_tiles(
        pool,
        {.a = a, .b = b, .packed_a = packed_a, .packed_b = packed_b, .c = c, .k_blocks = blocks},
        i == stages_ - 1 ? done : GemmTileDone());
  }
}

// Every tile of every matrix, over the blocks of k that `all` names.
void PackedGemm::run_tiles(ThreadPool& pool, const Task& all, const GemmTileDone& done) const {
  const std::int64_t tiles = row_tiles_ * column_tiles_;
  pool.run(ceil_div(shape_.batch, batches_per_task_) * tiles, [&](std::int64_t i) {
    const std::int64_t first = i / tiles * batches_per_task_;
    Task task = all;
    task.row_blocks = part_of({0, row_blocks_}, i % tiles / column_tiles_, row_tiles_);
    task.column_blocks = part_of({0, column_blocks_}, i % column_tiles_, column_tiles_);
    for (task.batch = first; task.batch < std::min(shape_.batch, first + batches_per_task_);
         ++task.batch) {
      run_tile(task);
      if (done) done(tile_of(task));
    }
  });
}

PackedGemm::Scratch PackedGemm::scratch(const Task& task) const {
  const std::int64_t k = std::min(words_, most_k_words);
  const std::int64_t columns = task.column_blocks.size() * block_columns;
  const std::int64_t a = task.packed_a ? 0 : task.row_blocks.size() * k * lanes;
  const std::int64_t b = task.packed_b ? 0 : k * columns;
  const bool sums_apart = shape_.out != DType::f32 && (k_blocks_ > 1 || shape_.accumulate);
  const std::int64_t c = sums_apart ? rows(task.row_blocks).size() * columns : 0;
  auto* words =
      static_cast<float*>(scratch_memory(static_cast<std::size_t>(a + b + c) * sizeof(float)));
  return {words, words + a, words + a + b};
}

// Where the task's tile of C begins.
template <class T>
T* PackedGemm::first_of_tile(const Task& task) const {
  return static_cast<T*>(task.c) +
         (task.batch * shape_.m + rows(task.row_blocks).begin) * shape_.n +
         task.column_blocks.begin * block_columns;
}

GemmTile PackedGemm::tile_of(const Task& task) const {
  const Range r = rows(task.row_blocks);
  const std::int64_t column = task.column_blocks.begin * block_columns;
  return {task.batch, r.begin, r.size(), column,
          std::min(shape_.n, task.column_blocks.end * block_columns) - column};
}

void PackedGemm::run_tile(const Task& task) const {
  const Scratch memory = scratch(task);
  const std::int64_t columns = task.column_blocks.size() * block_columns;
  const bool direct = shape_.out == DType::f32, adds_later = !direct && shape_.accumulate;
  Target c = direct ? Target{first_of_tile<float>(task), shape_.n, nullptr}
                    : Target{memory.c, columns, nullptr};
  for (std::int64_t block = task.k_blocks.begin; block < task.k_blocks.end; ++block) {
    if (!direct && !adds_later && block == k_blocks_ - 1) c.rounded = first_of_tile<BFloat16>(task);
    const bool accumulate = block > 0 || (direct && shape_.accumulate);
    multiply_k_block(task, k_words(block), memory, c, accumulate);
  }
  if (adds_later) add_tile(task, memory.c, columns);
}

void PackedGemm::multiply_k_block(const Task& task, Range k, const Scratch& memory, const Target& c,
                                  bool accumulate) const {
  const Range columns = task.column_blocks;
  if (!task.packed_b) pack_tile_of_b(task, k, memory.b);
  const float* a = memory.a;
  if (task.packed_a)
    a = task.packed_a +
        (words_before(task, k) * row_blocks_ + task.row_blocks.begin * k.size()) * lanes;
  else
    pack_rows_of_a(task.a, task.batch, task.row_blocks, k, k, memory.a);
  const std::int64_t groups = ceil_div(columns.size() * block_columns * k.size(), group_words);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = task.row_blocks.begin; i < task.row_blocks.end; ++i)
      multiply_rows(task, k, rows({i, i + 1}), a + (i - task.row_blocks.begin) * k.size() * lanes,
                    part_of(columns, g, groups), memory, c, accumulate);
}

void PackedGemm::multiply_rows(const Task& task, Range k, Range c_rows, const float* a, Range group,
                               const Scratch& memory, const Target& c, bool accumulate) const {
  const std::int64_t row = c_rows.begin - rows(task.row_blocks).begin,
                     padded_n = round_up(shape_.n, lanes);
  for (std::int64_t j = group.begin; j < group.end; ++j) {
    const std::int64_t column = (j - task.column_blocks.begin) * block_columns;
    BlockProduct block{.rows = c_rows.size(),
                       .columns = width(j),
                       .steps = k.size(),
                       .a = a,
                       .b_stride = padded_width(j),
                       .c = c.sums + row * c.stride + column,
                       .c_stride = c.stride,
                       .accumulate = accumulate,
                       .rounded = c.rounded ? c.rounded + row * shape_.n + column : nullptr,
                       .rounded_stride = shape_.n};
    if (task.packed_b) {
      block.b = task.packed_b + words_before(task, k) * padded_n + k.size() * j * block_columns;
    } else if (in_place(j)) {
      block.b = static_cast<const float*>(columns_of_b(task.b, task.batch, j, k).data);
      block.b_stride = shape_.n;
    } else {
      block.b = memory.b + column * k.size();
    }
    multiply_block(kind_, block);
  }
}

// Adds a tile's sums to the bf16 values of C, and rounds once.
void PackedGemm::add_tile(const Task& task, const float* sums, std::int64_t stride) const {
  const GemmTile tile = tile_of(task);
  BFloat16* c = first_of_tile<BFloat16>(task);
  for (std::int64_t i = 0; i < tile.rows; ++i, sums += stride, c += shape_.n)
    for (std::int64_t j = 0; j < tile.columns; ++j) store(&c[j], sums[j] + load(&c[j]));
}

}  // namespace

// Stages add to C, which has to hold sums of f32 for that.
std::int64_t packed_stages(const GemmShape& s, GemmKind kind) {
  if (kind != GemmKind::packed || s.out != DType::f32) return 1;
  constexpr std::int64_t word_bytes = sizeof(float);
  const std::int64_t a = s.trans_a ? ceil_div(s.m, block_rows) * lanes : 0;
  const std::int64_t block_bytes = s.batch * most_k_words * (a + round_up(s.n, lanes)) * word_bytes;
  const std::int64_t blocks = ceil_div(ceil_div(s.k, k_per_word(words_of(s.in))), most_k_words);
  return ceil_div(blocks, std::max<std::int64_t>(1, stage_bytes / block_bytes));
}

GemmPtr make_packed_gemm(const GemmShape& shape, const GemmPlan& plan) {
  return std::make_unique<PackedGemm>(shape, plan);
}

}  // namespace ridge
