// Which candidates operators have on sm90, told by a tuner that times nothing, or by the workspace
// that they want. No GPU is needed: nothing is allocated while these kernels are prepared.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/rotations.h"
#include "ridge/gpu/kernels/attention/window_sm90.h"
#include "ridge/gpu/vendor/dnn.h"
#include "ridge/ops/attention.h"
#include "ridge/ops/embedding.h"

namespace ridge::gpu {
namespace {

// Takes the candidate of this number without timing any.
struct Takes final : Tuner {
  explicit Takes(std::size_t wished) : candidate(wished) {}
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>&) override {
    all = candidates;
    return candidate;
  }
  void tell(std::string_view, std::string_view choice) override { told = choice; }

  std::size_t candidate, all = 1;
  std::string told;
};

class AttentionRows : public ::testing::Test {
 protected:
  // The candidates' names and their workspaces, in the order of what is expected of them.
  template <class Op>
  std::string rows(const Op& op, Types in, Types out) {
    std::string names;
    std::size_t all = 1;
    for (std::size_t candidate = 0; candidate < all; ++candidate) {
      Takes takes(candidate);
      GpuPrepare prepare{.gpu = gpu_, .in = in, .out = out, .choice = {.tuner = &takes}};
      if (!op.gpu(prepare)) return "none";
      all = takes.all;
      names += fmt::format("{}{} ({})", candidate == 0 ? "" : "; ", takes.told, prepare.workspace);
    }
    // Without a tuner it is the first.
    GpuPrepare prepare{.gpu = gpu_, .in = in, .out = out};
    op.gpu(prepare);
    return fmt::format("{}, untuned ({})", names, prepare.workspace);
  }
  std::string forward(const AttentionHeads& heads, std::int64_t seq, DType dtype) {
    const std::vector<TensorType> in{{dtype, {2, seq, heads.q_dim() + 2 * heads.kv_dim()}}};
    return rows(Attention{heads}, in, Attention{heads}.infer(in));
  }
  std::string backward(const AttentionHeads& heads, std::int64_t seq, DType dtype) {
    const TensorType y{dtype, {2, seq, heads.q_dim()}},
        qkv{dtype, {2, seq, heads.q_dim() + 2 * heads.kv_dim()}};
    const std::vector<TensorType> in{y, y, {DType::f32, {2, heads.n_heads, seq}}, qkv};
    return rows(AttentionGrad{heads}, in, std::array{qkv});
  }

  Context gpu_{
      .card = {.compute_capability = 90, .multiprocessors = 132, .shared_per_block = 232448},
      .dnn = make_portable_dnn({}),
      .rotations = make_rotation_tables()};
};

AttentionHeads heads_of(std::int64_t head_dim, bool causal) {
  return {.n_heads = 4, .n_kv_heads = 2, .head_dim = head_dim, .scale = 0.1f, .causal = causal};
}

TEST_F(AttentionRows, ForwardAreRankedByLength) {
  EXPECT_EQ(forward(heads_of(64, true), 128, DType::bf16),
            "own kernels, one tile (0); own kernels, two warpgroups (0); "
            "own kernels, three warpgroups (0), untuned (0)");
  EXPECT_EQ(forward(heads_of(64, false), 197, DType::f16),
            "own kernels, whole heads (0); own kernels, whole heads in tiles (0); "
            "own kernels, two warpgroups (0); "
            "own kernels, three warpgroups (0), untuned (0)");
  EXPECT_EQ(forward(heads_of(32, true), 1024, DType::bf16),
            "own kernels, two warpgroups (0); own kernels, three warpgroups (0), untuned (0)");
  EXPECT_EQ(forward(heads_of(32, true), 1025, DType::bf16),
            "own kernels, three warpgroups (0); own kernels, two warpgroups (0), untuned (0)");
}

TEST_F(AttentionRows, BackwardAreRankedBySize) {
  // Of 2 * 4 heads: a pair of floats for each row, padded to 128 positions, and a float for each
  // element where dq is summed; and 256 bytes to align them.
  const auto bytes = [](std::int64_t seq, std::int64_t columns) {
    const std::int64_t rows = 2 * 4 * ((seq + 127) / 128 * 128);
    return rows * 8 + rows * columns * 4 + 256;
  };
  EXPECT_EQ(backward(heads_of(64, true), 128, DType::bf16),
            fmt::format("own kernels, one tile (256); own kernels, scores computed twice ({}); "
                        "own kernels, dq summed in memory ({}), untuned (256)",
                        bytes(128, 0), bytes(128, 64)));
  EXPECT_EQ(backward(heads_of(64, true), 2049, DType::bf16),
            fmt::format("own kernels, dq summed in memory ({0}); own kernels, scores computed "
                        "twice ({1}), untuned ({0})",
                        bytes(2049, 64), bytes(2049, 0)));
  gpu_.deterministic = true;
  EXPECT_EQ(backward(heads_of(64, true), 128, DType::bf16),
            fmt::format("own kernels, one tile (256); own kernels, scores computed twice ({}), "
                        "untuned (256)",
                        bytes(128, 0)));
}

TEST(WindowRows, TheirKeySaysTheShape) {
  const WindowHeads heads{.n_heads = 3, .side = 7, .shift_down = 3, .shift_across = 3};
  EXPECT_EQ(window_work(DType::bf16, WindowShape(heads, {32, 56, 56, 96})),
            "window_attention bf16[32 x 56 x 56, 3 heads of 32], windows of 7 x 7 shifted by 3, 3");
  EXPECT_EQ(window_work(DType::f16, WindowShape({.n_heads = 6, .side = 7}, {1, 28, 28, 192})),
            "window_attention f16[1 x 28 x 28, 6 heads of 32], windows of 7 x 7");
}

// The gradient of an embedding has every block look at all ids where that is little work together,
// and sorts them once in its workspace elsewhere.
TEST(EmbeddingRows, IdsAreSortedWhereTheyWere) {
  const Context gpu{.card = {.compute_capability = 90, .multiprocessors = 132}};
  for (const std::int64_t rows : {1, 7, 8, 1000, 4000, 4096, 32000, 50257, 200000})
    for (const std::int64_t count : {1, 100, 512, 1024, 4096, 8191, 8192, 8193, 20000}) {
      const std::vector<TensorType> in{{DType::bf16, {count, 16}}, {DType::i32, {count}}},
          out{{DType::bf16, {rows, 16}}};
      GpuPrepare prepare{.gpu = gpu, .in = in, .out = out};
      EmbeddingGrad{rows}.gpu(prepare);
      const bool at_once = count <= 8192 && count * (rows / 8 + 1) <= std::int64_t{1} << 22;
      EXPECT_EQ(prepare.workspace, at_once ? 0u : static_cast<std::size_t>(rows + 1 + count) * 4)
          << count << " ids of " << rows;
    }
}

}  // namespace
}  // namespace ridge::gpu
