#include "ridge/passes/passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {

std::span<const Pass> passes() {
  static constexpr Pass table[] = {
      {"fold-batch-norm",
       "batch norm's factors and offsets in the weights of convolutions before it",
       Stage::inference, "", fold_batch_norm},
      {"unread-rows", "of what is computed row by row, only the rows that a window reads",
       Stage::forward, "", unread_rows},
      {"fuse-qkv", "queries, keys and values in one product, split into heads in one kernel",
       Stage::forward, "", fuse_qkv},
      {"flash-attention", "attention that never stores its scores, forward and backward",
       Stage::forward, "", flash_attention},
      {"fold-rope", "rotary embedding where heads are split or attention loads them",
       Stage::forward, "", fold_rope},
      {"swiglu", "silu and product of the feed-forward gate in one kernel", Stage::forward, "",
       swiglu},
      {"fuse-gate-up", "gate and up projection in one product", Stage::forward, "swiglu",
       fuse_gate_up},
      {"residual-norm", "residual addition, RMSNorm and conversion in one kernel", Stage::forward,
       "", residual_norm},
      {"masked-softmax", "scale, causal mask and softmax in one kernel", Stage::forward, "",
       masked_softmax},
      {"channels-last", "images with the channels of a pixel side by side, and no permute undone",
       Stage::forward, "", channels_last},
      {"batch-norm-epilogues", "residual addition and activation in the batch norm before them",
       Stage::forward, "", batch_norm_epilogues},
      {"common-subexpressions", "what two nodes compute alike is computed once", Stage::step, "",
       common_subexpressions},
      {"f32-products", "products that are wanted in f32 are never rounded to 16 bits", Stage::step,
       "", f32_products},
      {"norm-results", "gradients of norms from their results, so that their operands are not kept",
       Stage::step, "", norm_results},
      {"gate-results", "the gradient of SwiGLU gives its result again, which then is not kept",
       Stage::step, "swiglu", gate_results},
      {"recompute-light", "gates and attention's results again in the backward pass, not kept",
       Stage::step, "", recompute_light},
      {"conv-epilogues", "residual addition and activation in the convolution before them",
       Stage::step, "", conv_epilogues},
      {"residual-bottlenecks",
       "convolution, expansion and next reduction of narrow bottlenecks in one kernel, on a GPU",
       Stage::inference, "conv-epilogues", residual_bottlenecks},
      {"norm-activations",
       "batch norm by constant statistics with the activation after and the concatenation before "
       "it",
       Stage::inference, "", norm_activations},
      {"squeeze-excitation", "both products of squeeze and excitation in one kernel",
       Stage::inference, "conv-epilogues", squeeze_excitation},
      {"linear-epilogues", "bias, residual and activation in the products of linear layers",
       Stage::step, "", linear_epilogues},
      {"batch-norm-gradients", "sums of gradients in the gradient of the batch norm behind them",
       Stage::step, "", batch_norm_gradients},
      {"pointwise", "chains of elementwise operators in one kernel each", Stage::step, "",
       pointwise_chains},
      {"cross-entropy-in-place", "the gradient of the logits takes the place of the logits",
       Stage::step, "", cross_entropy_in_place},
      {"swiglu-in-place", "the gradient of gate and up takes their place", Stage::step,
       "fuse-gate-up", swiglu_in_place},
      {"linear-swiglu", "the gate in the products before it, forward and backward, on a GPU",
       Stage::step, "fuse-gate-up", linear_swiglu},
      {"fuse-optimizer", "one optimizer kernel over all parameters", Stage::step, "",
       fuse_optimizer},
      {"rounded-weights", "weights kept in 16 bits too, rounded where they are updated",
       Stage::step, "fuse-optimizer", rounded_weights},
      {"split-weights", "weights in 16 bits as the upper halves of those in f32, not beside them",
       Stage::step, "rounded-weights", split_weights},
      {"dead-nodes", "what nobody reads is not computed", Stage::step, "", dead_nodes},
      {"accumulating-products", "gradients are summed over batches by the products they come from",
       Stage::step, "", accumulating_products},
      {packed_products, "own products, which pack each operand once", Stage::run, "", nullptr},
      {planned_memory, "one arena, with every address and launch fixed before the first step",
       Stage::run, "", nullptr},
      {concurrent_kernels, "kernels that do not depend on each other at the same time, on a GPU",
       Stage::run, planned_memory, nullptr},
      {tuned_products, "each product by the kernel that measures fastest", Stage::run, "", nullptr},
      {products_in_pieces, "f32 products on tensor cores, by three bf16 pieces of each operand",
       Stage::run, tuned_products, nullptr},
      {scaled_products, "tf32 as f16: products and attention of scaled operands, on a GPU",
       Stage::run, "", nullptr},
  };
  return table;
}

const Pass& pass_named(std::string_view name) {
  const auto found = std::ranges::find(passes(), name, &Pass::name);
  if (found != passes().end()) return *found;
  std::string names;
  for (const Pass& pass : passes()) names += (names.empty() ? "" : ", ") + std::string(pass.name);
  throw UsageError("there is no pass '{}': choose from {}", name, names);
}

bool needs(std::string_view pass, std::string_view other) {
  while (pass != other && !pass.empty()) pass = pass_named(pass).needs;
  return !pass.empty();
}

std::string name_of(Recompute recompute) {
  constexpr std::string_view names[] = {"none", "attention", "block"};
  const std::string_view part = names[static_cast<int>(recompute.part)];
  if (recompute.part == Recompute::none || recompute.blocks == Recompute::all_blocks)
    return std::string(part);
  return fmt::format("{}:{}", part, recompute.blocks);
}

void run_passes(Graph& graph, Stage stage, const PassNames& enabled, Recompute recompute) {
  for (const Pass& pass : passes()) {
    // After equal nodes were joined, which would join a value and its recomputation again.
    if (pass.run == recompute_light && stage == pass.stage) recompute_units(graph, recompute);
    if (pass.stage == stage && enabled.contains(pass.name)) pass.run(graph);
  }
}

}  // namespace ridge
