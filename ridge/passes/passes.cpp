#include "ridge/passes/passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/passes/scaled_products.h"
#include "ridge/passes/schedules.h"

namespace ridge {
namespace {

using Products = Precision::Products;

// A rewrite that asks for nothing but the graph.
template <std::size_t (*Rewrite)(Graph&)>
std::size_t plain(Graph& graph, PassRun&) {
  return Rewrite(graph);
}

std::size_t without_scores(Graph& graph, PassRun& run) {
  return flash_attention(graph, run.schedule.target.widest_head);
}

std::size_t grown_rows(Graph& graph, PassRun& run) {
  const AlignedRows rules{run.schedule.target.least_aligned_rows,
                          run.schedule.precision.products == Products::tf32};
  return aligned_rows(graph, rules, run.logits);
}

std::size_t bottlenecks(Graph& graph, PassRun& run) {
  return residual_bottlenecks(graph, run.schedule.target.bottleneck);
}

std::size_t squeezes(Graph& graph, PassRun& run) {
  return squeeze_excitation(graph, run.schedule.target.most_squeeze_weights);
}

std::size_t recompute(Graph& graph, PassRun& run) {
  return recompute_units(graph, run.schedule.recompute);
}

// With several ranks an update would wait for gradients of other ranks, and the kernels after it
// for the update.
std::size_t updates(Graph& graph, PassRun& run) {
  const Schedule& schedule = run.schedule;
  return schedule.ranks > 1 ? 0 : early_updates(graph, schedule.target.least_update_bytes);
}

std::size_t int8(Graph& graph, PassRun& run) {
  const Int8Rules& rules = run.schedule.target.int8;
  Int8Ranges ranges;
  if (run.calibrate) ranges = run.calibrate(graph, int8_values(graph, rules));
  return int8_layers(graph, rules, ranges);
}

std::size_t freeze_weights(Graph& graph, PassRun& run) {
  run.frozen = freeze(graph, run.fixed_input ? FrozenInputs::conversions : FrozenInputs::none);
  return run.frozen->values.size();
}

}  // namespace

std::string_view name_of(Use use) { return use == Use::training ? "training" : "inference"; }

std::string_view name_of(Stage stage) {
  constexpr std::string_view names[] = {"forward graph", "whole graph", "execution"};
  return names[static_cast<int>(stage)];
}

std::span<const Pass> passes() {
  static constexpr Pass table[] = {
      {.name = "fold-batch-norm",
       .description = "put batch norm's factors and offsets into the weights before it",
       .stage = Stage::forward,
       .use = Use::inference,
       .apply = plain<fold_batch_norm>},
      {.name = "unread-rows",
       .description = "compute only the rows that a later window reads",
       .stage = Stage::forward,
       .apply = plain<unread_rows>},
      {.name = "fuse-qkv",
       .description = "compute queries, keys and values in one product, and split heads at once",
       .stage = Stage::forward,
       .apply = plain<fuse_qkv>},
      {.name = "flash-attention",
       .description = "never store attention's scores, forward or backward",
       .stage = Stage::forward,
       .apply = without_scores},
      {.name = "fold-rope",
       .description = "apply the rotary embedding where heads are split or attention loads them",
       .stage = Stage::forward,
       .apply = plain<fold_rope>},
      {.name = "swiglu",
       .description = "compute SiLU and the product with up in one kernel",
       .stage = Stage::forward,
       .apply = plain<swiglu>},
      {.name = "fuse-gate-up",
       .description = "compute gate and up projection in one product",
       .stage = Stage::forward,
       .needs = {"swiglu"},
       .apply = plain<fuse_gate_up>},
      {.name = "residual-norm",
       .description = "compute residual addition, RMSNorm and conversion in one kernel",
       .stage = Stage::forward,
       .apply = plain<residual_norm>},
      {.name = "masked-softmax",
       .description = "compute scale, causal mask and softmax in one kernel",
       .stage = Stage::forward,
       .apply = plain<masked_softmax>},
      {.name = channels_last_pass,
       .description = "keep the channels of a pixel side by side, without transposing back",
       .stage = Stage::forward,
       .apply = plain<channels_last>},
      {.name = "batch-norm-epilogues",
       .description = "put residual addition and activation into the batch norm before them",
       .stage = Stage::forward,
       .use = Use::training,
       .apply = plain<batch_norm_epilogues>},
      {.name = "sync-batch-norm",
       .description = "normalize by the statistics of what all ranks have of a batch",
       .stage = Stage::forward,
       .use = Use::training,
       .chosen_by = ChosenBy::sync_batch_norm,
       .of_ranks = true,
       .apply = [](Graph& graph,
                   PassRun& run) { return sync_batch_norm(graph, run.schedule.ranks); }},
      // Behind what joins layers.
      {.name = "aligned-rows",
       .description = "fill rows of logits and gates up to where products are fast",
       .stage = Stage::forward,
       .use = Use::training,
       .where = DeviceKind::gpu,
       .apply = grown_rows},
      {.name = "common-subexpressions",
       .description = "compute identical nodes once",
       .apply = plain<common_subexpressions>},
      {.name = "f32-products",
       .description = "keep a product in f32 where its consumer reads f32",
       .apply = plain<f32_products>},
      {.name = "norm-results",
       .description =
           "compute norm gradients from the outputs, so that the inputs need not be kept",
       .use = Use::training,
       .apply = plain<norm_results>},
      {.name = "gate-results",
       .description = "recompute SwiGLU's output in its backward kernel instead of keeping it",
       .use = Use::training,
       .needs = {"swiglu"},
       .apply = plain<gate_results>},
      // After equal nodes were joined, which would join a value and its recomputation again.
      {.name = "recompute",
       .description = "recompute blocks, or their attention, in the backward pass",
       .use = Use::training,
       .chosen_by = ChosenBy::recompute,
       .apply = recompute},
      // On a GPU this costs more than its memory is worth.
      {.name = "recompute-light",
       .description = "recompute gate and attention outputs in the backward pass",
       .use = Use::training,
       .where = DeviceKind::cpu,
       .apply = plain<recompute_light>},
      {.name = "batch-norm-gradients",
       .description = "sum gradients in the gradient of the batch norm behind them",
       .use = Use::training,
       .apply = plain<batch_norm_gradients>},
      {.name = "conv-epilogues",
       .description = "put residual addition and activation into the convolution before them",
       .apply = plain<conv_epilogues>},
      {.name = "residual-bottlenecks",
       .description = "compute a narrow bottleneck's convolutions in one kernel",
       .use = Use::inference,
       .where = DeviceKind::gpu,
       .needs = {"conv-epilogues"},
       .apply = bottlenecks},
      {.name = "norm-activations",
       .description = "put the activation after, and the concatenation before, into a batch norm",
       .use = Use::inference,
       .apply = plain<norm_activations>},
      {.name = "squeeze-excitation",
       .description = "compute both products of squeeze and excitation in one kernel",
       .use = Use::inference,
       .needs = {"conv-epilogues"},
       .apply = squeezes},
      {.name = "linear-epilogues",
       .description = "put bias, residual and activation into the products of linear layers",
       .apply = plain<linear_epilogues>},
      {.name = "pointwise",
       .description = "compute chains of elementwise operators in one kernel each",
       .apply = plain<pointwise_chains>},
      {.name = "cross-entropy-in-place",
       .description = "write the gradient of the logits over the logits",
       .use = Use::training,
       .apply = plain<cross_entropy_in_place>},
      {.name = "swiglu-in-place",
       .description = "write the gradient of gate and up over gate and up",
       .use = Use::training,
       .needs = {"fuse-gate-up"},
       .apply = plain<swiglu_in_place>},
      {.name = "linear-swiglu",
       .description = "compute SwiGLU in the epilogue of its products, forward and backward",
       .where = DeviceKind::gpu,
       .needs = {"fuse-gate-up"},
       .apply = plain<linear_swiglu>},
      // Behind what rewrites gradients, which it leaves where they are.
      {.name = "data-parallel",
       .description = "average loss and gradients over the ranks that share a batch",
       .chosen_by = ChosenBy::ranks,
       .of_ranks = true,
       .apply = [](Graph& graph, PassRun& run) { return data_parallel(graph, run); }},
      // Between processors Gloo sums, and sends, in f32.
      {.name = "rounded-gradients",
       .description = "send gradients of bf16 products to other ranks in bf16",
       .use = Use::training,
       .where = DeviceKind::gpu,
       .precisions = Precisions::computing_in(DType::bf16),
       .needs = {"f32-products"},
       .of_ranks = true,
       .apply = plain<rounded_gradients>},
      {.name = "shard-optimizer",
       .description = "keep and update only this rank's part of the optimizer state",
       .use = Use::training,
       .needs = {"data-parallel"},
       .excludes = {"rounded-weights"},
       .chosen_by = ChosenBy::ranks,
       .of_ranks = true,
       .zero = 1,
       .apply = [](Graph& graph, PassRun& run) { return shard_optimizer(graph, run); }},
      {.name = "shard-gradients",
       .description = "sum each gradient for the rank alone that updates by it",
       .use = Use::training,
       .needs = {"shard-optimizer"},
       .chosen_by = ChosenBy::ranks,
       .of_ranks = true,
       .zero = 1,
       .apply = [](Graph& graph, PassRun& run) { return shard_gradients(graph, run); }},
      {.name = "gather-weights",
       .description =
           "keep a part of the weights that are read in 16 bits, and gather them rounded",
       .use = Use::training,
       .needs = {"shard-optimizer"},
       .chosen_by = ChosenBy::ranks,
       .of_ranks = true,
       .zero = 1,
       .apply = [](Graph& graph, PassRun& run) { return gather_weights(graph, run); }},
      {.name = "shard-parameters",
       .description = "keep only this rank's part of the parameters, and gather them where needed",
       .use = Use::training,
       .needs = {"shard-gradients"},
       .excludes = {"gather-weights"},
       .chosen_by = ChosenBy::ranks,
       .of_ranks = true,
       .zero = 3,
       .apply = [](Graph& graph, PassRun& run) { return shard_parameters(graph, run); }},
      {.name = "fuse-optimizer",
       .description = "update all parameters in one kernel",
       .use = Use::training,
       .apply = plain<fuse_optimizer>},
      {.name = "rounded-weights",
       .description = "keep weights in 16 bits too, rounded where they are updated",
       .use = Use::training,
       .needs = {"fuse-optimizer"},
       .apply = plain<rounded_weights>},
      {.name = "split-weights",
       .description = "store bf16 weights as the upper halves of the f32 weights",
       .use = Use::training,
       .needs = {"rounded-weights"},
       .apply = plain<split_weights>},
      {.name = "bucket-gradients",
       .description = "send small tensors to other ranks together",
       .use = Use::training,
       .of_ranks = true,
       .apply = [](Graph& graph,
                   PassRun& run) { return bucket_gradients(graph, run.schedule.target); }},
      {.name = "dead-nodes", .description = "remove what nobody reads", .apply = plain<dead_nodes>},
      {.name = "accumulating-products",
       .description = "sum gradients over batches in the products that compute them",
       .use = Use::training,
       .apply = plain<accumulating_products>},
      {.name = "fp8-products",
       .description = "multiply 8-bit floats in the linear layers of the inner blocks",
       .precisions = Products::fp8,
       .excludes = {"gate-results", "linear-swiglu", "accumulating-products", "rounded-gradients"},
       .chosen_by = ChosenBy::precision,
       .apply = [](Graph& graph, PassRun&) { return fp8_products(graph); }},
      {.name = scaled_products,
       .description = "compute tf32 products and attention of f16 operands with a scale",
       .where = DeviceKind::gpu,
       .precisions = Products::tf32,
       .excludes = {"gate-results", "linear-swiglu"},
       .apply = [](Graph& graph, PassRun&) { return f16_products(graph); }},
      {.name = "int8-layers",
       .description = "compute convolutions and linear layers in 8-bit integers",
       .use = Use::inference,
       .precisions = Products::int8,
       .needs = {"fold-batch-norm", "unread-rows", channels_last_pass, "common-subexpressions",
                 "conv-epilogues", "norm-activations", "squeeze-excitation", "linear-epilogues",
                 "pointwise", "dead-nodes", frozen_weights},
       .excludes = {"residual-bottlenecks", "linear-swiglu"},
       .chosen_by = ChosenBy::precision,
       .apply = int8},
      // Behind all passes that add readers of a weight.
      {.name = "early-updates",
       .description = "update parameters in the backward pass, so that gradients need less memory",
       .use = Use::training,
       .where = DeviceKind::gpu,
       .needs = {"fuse-optimizer"},
       .apply = updates},
      {.name = frozen_weights,
       .description = "compute what follows from weights alone once, before the first run",
       .use = Use::inference,
       .apply = freeze_weights},
      {.name = packed_products,
       .description = "multiply with our own kernels, which pack each operand once",
       .stage = Stage::run,
       .where = DeviceKind::cpu},
      {.name = planned_memory,
       .description = "use one arena, with every address and launch fixed before the first step",
       .stage = Stage::run},
      {.name = captured_launches,
       .description = "launch the whole step at once, as a captured graph",
       .stage = Stage::run,
       .where = DeviceKind::gpu,
       .needs = {planned_memory}},
      {.name = concurrent_kernels,
       .description = "run kernels that do not depend on each other at the same time",
       .stage = Stage::run,
       .where = DeviceKind::gpu,
       .needs = {captured_launches}},
      {.name = tuned_products,
       .description = "time the candidates for each product and take the fastest",
       .stage = Stage::run},
      {.name = split_bf16_products,
       .description = "compute f32 products of split bf16 operands on tensor cores or AMX",
       .stage = Stage::run,
       .precisions = Precisions::exact_f32(),
       .needs = {tuned_products}},
  };
  return table;
}

const Pass& pass_named(std::string_view name) {
  const auto found = std::ranges::find(passes(), name, &Pass::name);
  if (found != passes().end()) return *found;
  std::vector<std::string_view> names;
  for (const Pass& pass : passes()) names.push_back(pass.name);
  throw UsageError("there is no pass '{}': choose from {}", name, fmt::join(names, ", "));
}

bool needs(const Pass& pass, std::string_view other) {
  if (pass.name == other) return true;
  return std::ranges::any_of(pass.needs, [&](std::string_view name) {
    return !name.empty() && needs(pass_named(name), other);
  });
}

std::string name_of(Recompute recompute) {
  constexpr std::string_view names[] = {"none", "attention", "block"};
  const std::string_view part = names[static_cast<int>(recompute.part)];
  if (recompute.part == Recompute::none || recompute.blocks == Recompute::all_blocks)
    return std::string(part);
  return fmt::format("{}:{}", part, recompute.blocks);
}

std::size_t apply_passes(Graph& graph, Stage stage, PassRun& run) {
  std::size_t found = 0;
  for (const Pass* pass : run.schedule.passes)
    if (pass->stage == stage && pass->apply) found += pass->apply(graph, run);
  return found;
}

}  // namespace ridge
