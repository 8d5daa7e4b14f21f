// Which kernel of flash attention runs where nothing is timed: over a grid of shapes the same that
// ladders of conditions chose before the kernels were rows of a table.

#include "ridge/gpu/kernels/attention/flash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <vector>

namespace ridge::gpu {
namespace {

constexpr Card sm90{.compute_capability = 90, .multiprocessors = 132};

constexpr FlashForward forward_kernels[] = {FlashForward::one_tile, FlashForward::whole_heads,
                                            FlashForward::whole_tiles, FlashForward::two_warpgroups,
                                            FlashForward::three_warpgroups};
constexpr FlashBackward backward_kernels[] = {FlashBackward::one_tile, FlashBackward::separate,
                                              FlashBackward::summed};

// The first with the highest expectation among those that support the shape; nothing if none does.
template <class Kernel>
std::optional<Kernel> best(std::span<const Kernel> kernels, const FlashShape& shape,
                           bool deterministic) {
  std::optional<Kernel> found;
  int highest = -1;
  for (const Kernel kernel : kernels) {
    if (!flash_sm90_supports(kernel, shape, deterministic)) continue;
    const int expectation = flash_sm90_expectation(kernel, shape, sm90.crossovers());
    if (expectation > highest) found = kernel, highest = expectation;
  }
  return found;
}

bool is_built(const FlashShape& s) {
  return s.head_dim == 32 || s.head_dim == 64 || s.head_dim == 128;
}
bool is_short(const FlashShape& s) { return s.seq <= 128 && s.head_dim <= 64; }

// The ladders.
std::optional<FlashForward> forward_before(const FlashShape& s) {
  if (!is_built(s)) return std::nullopt;
  if (is_short(s)) return FlashForward::one_tile;
  if (!s.causal && s.seq > 128 && s.seq <= 256 && s.head_dim <= 64)
    return FlashForward::whole_heads;
  if (s.head_dim == 128) return FlashForward::two_warpgroups;
  return s.seq > 1024 ? FlashForward::three_warpgroups : FlashForward::two_warpgroups;
}
std::optional<FlashBackward> backward_before(const FlashShape& s, bool deterministic) {
  if (!is_built(s)) return std::nullopt;
  if (is_short(s)) return FlashBackward::one_tile;
  return deterministic || s.seq * s.head_dim <= 2048 * 64 ? FlashBackward::separate
                                                          : FlashBackward::summed;
}

template <class Kernel>
std::string words(const std::optional<Kernel>& kernel) {
  return kernel ? std::string(name_of(*kernel)) : "none";
}

// Calls f(shape, deterministic) for all.
template <class F>
void each_shape(const F& f) {
  struct Heads {
    std::int64_t batch, n_heads, n_kv_heads;
  };
  for (const auto& [batch, n_heads, n_kv_heads] :
       {Heads{1, 1, 1}, Heads{3, 8, 8}, Heads{2, 8, 2}, Heads{64, 32, 1}})
    for (std::int64_t head_dim = 32; head_dim <= 256; head_dim += head_dim % 32 == 0 ? 4 : 28)
      for (std::int64_t seq = 1; seq <= 16384; ++seq)
        for (const bool causal : {false, true})
          for (const bool deterministic : {false, true})
            f(FlashShape{.batch = batch,
                         .seq = seq,
                         .n_heads = n_heads,
                         .n_kv_heads = n_kv_heads,
                         .head_dim = head_dim,
                         .causal = causal},
              deterministic);
}

std::string words(const FlashShape& s, bool deterministic) {
  return fmt::format("{} x {}, {}/{} heads of {}, causal {}, deterministic {}", s.batch, s.seq,
                     s.n_heads, s.n_kv_heads, s.head_dim, s.causal, deterministic);
}

TEST(FlashChoices, ForwardIsWhatTheLadderChose) {
  each_shape([](const FlashShape& shape, bool deterministic) {
    const auto now = best<FlashForward>(forward_kernels, shape, deterministic);
    const auto before = forward_before(shape);
    if (now != before)
      ADD_FAILURE() << words(shape, deterministic) << ": " << words(now) << ", before "
                    << words(before);
  });
}

TEST(FlashChoices, BackwardIsWhatTheLadderChose) {
  each_shape([](const FlashShape& shape, bool deterministic) {
    const auto now = best<FlashBackward>(backward_kernels, shape, deterministic);
    const auto before = backward_before(shape, deterministic);
    if (now != before)
      ADD_FAILURE() << words(shape, deterministic) << ": " << words(now) << ", before "
                    << words(before);
  });
}

// Queries and keys were rotated by the kernel where sequences were short, and before it elsewhere.
TEST(FlashChoices, WhoRotatesIsTheSame) {
  each_shape([](const FlashShape& shape, bool deterministic) {
    if (!is_built(shape)) return;
    const bool before = is_short(shape);
    if (rotates(*best<FlashForward>(forward_kernels, shape, deterministic)) != before ||
        rotates(*best<FlashBackward>(backward_kernels, shape, deterministic)) != before)
      ADD_FAILURE() << words(shape, deterministic);
  });
}

// What the tuner times, which no expectation decides.
TEST(FlashChoices, TheTunerHasTheOthersToTry) {
  const auto supported = [](const FlashShape& shape, bool deterministic) {
    std::string names;
    for (const FlashForward kernel : forward_kernels)
      if (flash_sm90_supports(kernel, shape, deterministic))
        names += fmt::format("{}; ", name_of(kernel));
    for (const FlashBackward kernel : backward_kernels)
      if (flash_sm90_supports(kernel, shape, deterministic))
        names += fmt::format("{}; ", name_of(kernel));
    return names;
  };
  EXPECT_EQ(supported({.seq = 128, .head_dim = 64, .causal = true}, false),
            "one tile; two warpgroups; three warpgroups; one tile; scores computed twice; "
            "dq summed in memory; ");
  EXPECT_EQ(supported({.seq = 197, .head_dim = 64}, false),
            "whole heads; whole heads in tiles; two warpgroups; three warpgroups; "
            "scores computed twice; "
            "dq summed in memory; ");
  EXPECT_EQ(supported({.seq = 209, .head_dim = 64}, true),
            "whole heads; two warpgroups; three warpgroups; scores computed twice; ");
  EXPECT_EQ(supported({.seq = 4096, .head_dim = 64, .causal = true}, true),
            "two warpgroups; three warpgroups; scores computed twice; ");
  EXPECT_EQ(supported({.seq = 4096, .head_dim = 128, .causal = true}, false),
            "two warpgroups; scores computed twice; dq summed in memory; ");
  EXPECT_EQ(supported({.seq = 64, .head_dim = 96}, false), "");
}

}  // namespace
}  // namespace ridge::gpu
