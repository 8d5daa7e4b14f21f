#pragma once

// What choices of kernels know of a card: what its driver says, and the sizes at which one kernel
// becomes faster than another there. The numbers stand in card.cpp, with where they come from.

#include <cstddef>
#include <cstdint>

namespace ridge::gpu {

// Sizes at which another kernel, or another use of memory, becomes the better one. Those that
// choose among candidates only order them, unless they say "at most": a tuner that times candidates
// overrules them.
struct Crossovers {
  // A 1 x 1 convolution is limited by memory from so many pixels and channels on, up to so many
  // multiplications per element read or written.
  std::int64_t streaming_pixels, streaming_channels, streaming_products_per_element;
  // A 1 x 1 convolution from at most so many channels to at least so many pixels is faster by pairs
  // of thread blocks that share the weight.
  std::int64_t paired_channels, paired_pixels;
  // Where tiles leave multiprocessors idle, a convolution's sums are cut into parts if they take
  // more steps of 64 than this; into so many that there are split_blocks thread blocks for each
  // multiprocessor. Small tiles are tried where they give at most so many, in 16 and in 8 bits.
  std::int64_t split_steps, split_blocks, most_small_tiles, most_small_int8_tiles;
  // A column of a linear layer's tile of fewer than 128 columns costs narrow_numerator /
  // narrow_denominator of a column of a wider one. Tiles other than the usual ones are taken where
  // their cost is below saving_numerator / saving_denominator of the usual cost.
  std::int64_t narrow_numerator, narrow_denominator, saving_numerator, saving_denominator;
  // The library is faster at a linear layer of at most one tile of 128 x 128 for so many
  // multiprocessors.
  std::int64_t idle_multiprocessors;
  // A product whose sums have memory of their own, before another kernel finishes them, computes so
  // many bytes of them at a time.
  std::int64_t product_sum_bytes;
  // A product of split bf16 splits at most so many bytes of an operand at a time, and is a
  // candidate where its workspace is at most so large.
  std::size_t split_operand_bytes, split_workspace_bytes;
  // Attention's backward pass computes its scores twice, for dQ and for dK and dV apart, up to so
  // many elements of a head (positions times columns).
  std::int64_t separate_gradient_elements;
  // Attention's forward pass has a third warpgroup beyond so many positions.
  std::int64_t third_warpgroup_seq;
  // The gradient of a weight of fewer FLOPs is chosen for its share of the card, not its time.
  std::int64_t sharing_flops;
  // The gradient of an embedding sorts the ids once if all thread blocks together would look at
  // more of them than this.
  std::int64_t embedding_looks;
  // Rows are added to an embedding by so many warps, a power of two: about as many as run at once.
  unsigned index_add_warps;
  // Squeeze and excitation is one kernel up to so many elements of either weight; larger ones are
  // worth products that the whole card works on.
  std::int64_t most_squeeze_weights;
  // Weights are filled up to rows of whole 16 bytes where at least so many rows are multiplied.
  std::int64_t least_aligned_rows;
  // A kernel updates parameters by at least so many bytes of gradients, while there are more to
  // come.
  std::size_t least_update_bytes;
  // A kernel of more FLOPs or bytes fills the card by itself.
  double filling_flops, filling_bytes;
  // Where kernels run at the same time, values of at most so many bytes keep their memory for so
  // many nodes after their last use.
  std::size_t lingering_bytes;
  std::uint32_t lingering_nodes;
};

const Crossovers& crossovers_of(int compute_capability);

struct Card {
  // As the driver says.
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  std::size_t shared_per_block = 0;  // bytes that a thread block can be granted
  std::size_t l2_bytes = 0;

  bool is_sm90() const { return compute_capability == 90; }
  bool multiplies_bf16() const { return compute_capability >= 80; }    // since Ampere
  bool multiplies_float8() const { return compute_capability >= 89; }  // since Ada
  // Whether a kernel's thread blocks may begin while the kernel before is at work.
  bool launches_early() const { return compute_capability >= 90; }
  const Crossovers& crossovers() const { return crossovers_of(compute_capability); }
};

// Shared memory of sm90 in bytes: of a multiprocessor, the most that a thread block can be granted,
// and what each resident thread block takes besides. From the CUDA programming guide, "Technical
// Specifications per Compute Capability".
inline constexpr std::size_t sm90_shared_per_multiprocessor = 233472;
inline constexpr std::size_t sm90_shared_per_block = 232448;
inline constexpr std::size_t sm90_shared_reserved = 1024;

// The bottlenecks of residual networks whose weights fit into the shared memory of a thread block
// of sm90: of so many channels, which are expanded to at most so many.
inline constexpr int sm90_bottleneck_channels = 64, sm90_bottleneck_expanded = 256;

}  // namespace ridge::gpu
