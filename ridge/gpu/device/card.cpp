#include "ridge/gpu/device/card.h"

namespace ridge::gpu {
namespace {

// Measured on an H100 SXM of 80 GB (132 multiprocessors; CUDA 13.0), unless a comment says that a
// number is computed.
constexpr Crossovers sm90{
    // Bounds of those 1 x 1 convolutions of residual networks for which the tuner took our kernels
    // rather than cuDNN's.
    .streaming_pixels = 24000,
    .streaming_channels = 64,
    .streaming_products_per_element = 105,
    // From the expansions of mobilenet_v2 and efficientnet_b0, 64 images.
    .paired_channels = 32,
    .paired_pixels = 150000,
    // From networks that infer batches of few images.
    .split_steps = 8,
    .split_blocks = 2,
    .most_small_tiles = 3,
    .most_small_int8_tiles = 4,
    // From layers of 768 columns, as of vit_b_16. Narrow tiles wait more for shared memory.
    .narrow_numerator = 5,
    .narrow_denominator = 4,
    .saving_numerator = 49,
    .saving_denominator = 50,
    // From layers of networks that infer one image.
    .idle_multiprocessors = 2,
    // Computed: the L2 cache of 50 MB holds them beside what else the kernels read.
    .product_sum_bytes = 32 << 20,
    // Chosen: memory that even large models have left.
    .split_operand_bytes = std::size_t{128} << 20,
    .split_workspace_bytes = std::size_t{384} << 20,
    // From heads of 64 and 128 columns: up to it the float sums of dQ through memory would weigh
    // more than the two further products.
    .separate_gradient_elements = 2048 * 64,
    // From heads of 32 and 64 columns: beyond it a third warpgroup gains more than its coarser
    // tiles lose.
    .third_warpgroup_seq = 1024,
    // Computed: some 10 us at the 790 TFLOP/s that large products reach, or 8 us at 3 TB/s.
    .sharing_flops = 8'000'000'000,
    // From vocabularies and batches of the LLaMA's sizes.
    .embedding_looks = std::int64_t{1} << 22,
    // Computed: 64 warps on each of the multiprocessors, rounded down to a power of two.
    .index_add_warps = 8192,
    // Up to the largest of efficientnet_b0, 1152 x 48, which gains up to 4 % of a pass. With the
    // larger ones of mobilenet_v3_large, from 480 x 120 on, a pass lost 3 to 8 %.
    .most_squeeze_weights = 56 << 10,
    // Computed: an element of a weight costs 12 bytes at 3 TB/s to fill up and to take apart, and a
    // row gains 6 FLOPs at 600 in place of 150 TFLOP/s. That is 133 rows, and some for launches.
    .least_aligned_rows = 192,
    // Computed: AdamW moves seven times as many bytes, some 60 us at 4 TB/s, in which a launch of 2
    // or 3 us hardly shows. Gradients of so few bytes may still be in the L2 cache of 50 MB.
    .least_update_bytes = std::size_t{32} << 20,
    // Computed like sharing_flops.
    .filling_flops = 8e9,
    .filling_bytes = 24e6,
    // Chosen: about one block's backward pass. What is larger belongs to kernels that fill the card
    // by themselves.
    .lingering_bytes = std::size_t{16} << 20,
    .lingering_nodes = 24};

// No other card has been measured.
constexpr const Crossovers& others = sm90;

}  // namespace

const Crossovers& crossovers_of(int compute_capability) {
  return compute_capability == 90 ? sm90 : others;
}

}  // namespace ridge::gpu
