#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/graph/graph.h"
#include "ridge/passes/freeze.h"
#include "ridge/passes/int8.h"
#include "ridge/passes/precision.h"
#include "ridge/passes/target.h"

namespace ridge {

struct Schedule;  // passes/schedules.h

// Which forward values are computed again for the backward pass rather than kept.
struct Recompute {
  enum Part : std::uint8_t {
    none,
    attention,  // all inside the attention of a block
    block,      // all inside a block: only what flows between blocks is kept
  };
  static constexpr std::int64_t all_blocks = 1 << 30;

  constexpr Recompute(Part p = none, std::int64_t first = all_blocks) : part(p), blocks(first) {}

  Part part;
  std::int64_t blocks;  // the first so many, whose values are kept longest
  bool operator==(const Recompute&) const = default;
};
std::string name_of(Recompute recompute);  // "none", "attention", "block:3"

// What a graph is for.
enum class Use : std::uint8_t { inference, training };
std::string_view name_of(Use use);

// What a pass works on: the forward graph, before its gradient is appended, so that a fused
// operator brings its own; the whole graph of a step; or nothing of the graph, but how it is
// executed.
enum class Stage : std::uint8_t { forward, step, run };
std::string_view name_of(Stage stage);

// What decides whether a run has a pass.
enum class ChosenBy : std::uint8_t {
  schedule,         // its row, --enable-pass and --disable-pass
  precision,        // the pass is what --dtype means
  recompute,        // --recompute
  ranks,            // --ranks, or a launcher that started several
  sync_batch_norm,  // that option, of several ranks
};

// What applying passes gives and takes beside the graph.
struct PassRun {
  const Schedule& schedule;
  // The largest magnitudes of values in a calibration run of a graph; null where there is none to
  // be had, as in planning: then every scale is 1.
  std::function<Int8Ranges(const Graph&, std::span<const ValueId>)> calibrate = {};
  // Whether every run reads the same input, whose conversions may then be frozen too.
  bool fixed_input = true;
  std::optional<Frozen> frozen = {};  // what frozen-weights took out of the graph
  std::int64_t rank = 0;              // of those that share the batch
  // Those of the model. A pass may give the logits more columns behind the classes.
  Value loss = {}, logits = {};
};

// The most names of passes that one pass needs or excludes.
inline constexpr std::size_t most_names = 12;
using PassList = std::array<std::string_view, most_names>;  // the rest is empty

// Something done for speed or memory that leaves what is computed the same, and can be left out; or
// what a precision or a recomputation means, which is done in the same way.
struct Pass {
  std::string_view name;         // "fuse-qkv", as --enable-pass takes it
  std::string_view description;  // a sentence without subject, which begins with a verb
  Stage stage = Stage::step;
  std::optional<Use> use = {};  // none: both
  // Where schedules have it. --enable-pass has a rewrite anywhere, a choice of execution there
  // alone.
  std::optional<DeviceKind> where = {};
  Precisions precisions = {};  // in which it can be had at all
  PassList needs = {};         // the passes without which it finds nothing
  PassList excludes = {};      // those that leave where it comes: both would want one node
  ChosenBy chosen_by = ChosenBy::schedule;
  bool of_ranks = false;  // for several ranks alone
  std::int64_t zero = 0;  // from which --zero on it is chosen
  // Rewrites the graph and returns how often it found something; null in Stage::run.
  std::size_t (*apply)(Graph&, PassRun&) = nullptr;
};

// Those of Stage::run, and others that somebody asks for by name.
inline constexpr std::string_view packed_products = "packed-products";
inline constexpr std::string_view planned_memory = "planned-memory";
inline constexpr std::string_view captured_launches = "captured-launches";
inline constexpr std::string_view concurrent_kernels = "concurrent-kernels";
inline constexpr std::string_view tuned_products = "tuned-products";
inline constexpr std::string_view split_bf16_products = "split-bf16-products";
inline constexpr std::string_view scaled_products = "scaled-products";
inline constexpr std::string_view frozen_weights = "frozen-weights";
inline constexpr std::string_view channels_last_pass = "channels-last";

// All of them, in the order in which they run.
std::span<const Pass> passes();
// UsageError, naming all there are, for a name that is none.
const Pass& pass_named(std::string_view name);
// Whether `pass` is `other`, or needs it, or needs what needs it.
bool needs(const Pass& pass, std::string_view other);

// Applies the passes of a schedule that belong to the stage, in the table's order. Returns how
// often they found something.
std::size_t apply_passes(Graph& graph, Stage stage, PassRun& run);

// The passes, each in the file of its name; two that are one idea share in_place.cpp, results.cpp,
// swiglu.cpp, recompute.cpp, shard_optimizer.cpp or batch_norm_epilogues.cpp.
std::size_t unread_rows(Graph& graph);
// Decides which weights aligned_rows() fills up.
struct AlignedRows {
  std::int64_t least_rows = 1;  // of activations, below which a weight stays as it is
  bool of_f32 = false;          // whether weights of f32 are filled up too, not of 16 bits alone
};
// Replaces `logits` by those with more columns, if the pass adds any.
std::size_t aligned_rows(Graph& graph, const AlignedRows& rules, Value& logits);
std::size_t channels_last(Graph& graph);
std::size_t conv_epilogues(Graph& graph);
std::size_t norm_activations(Graph& graph);
std::size_t residual_bottlenecks(Graph& graph, const BottleneckRules& rules);
// Leaves larger weights to products.
std::size_t squeeze_excitation(Graph& graph, std::int64_t most_weights);
std::size_t fuse_qkv(Graph& graph);
// Leaves the scores of wider heads stored.
std::size_t flash_attention(Graph& graph, std::int64_t widest_head);
std::size_t fold_rope(Graph& graph);
std::size_t swiglu(Graph& graph);
std::size_t fuse_gate_up(Graph& graph);
std::size_t residual_norm(Graph& graph);
std::size_t masked_softmax(Graph& graph);
std::size_t common_subexpressions(Graph& graph);
std::size_t f32_products(Graph& graph);
std::size_t pointwise_chains(Graph& graph);
std::size_t cross_entropy_in_place(Graph& graph);
std::size_t swiglu_in_place(Graph& graph);
std::size_t linear_swiglu(Graph& graph);
std::size_t linear_epilogues(Graph& graph);
std::size_t fuse_optimizer(Graph& graph);
std::size_t rounded_weights(Graph& graph);
std::size_t split_weights(Graph& graph);
std::size_t dead_nodes(Graph& graph);
std::size_t accumulating_products(Graph& graph);
std::size_t norm_results(Graph& graph);
std::size_t gate_results(Graph& graph);
std::size_t recompute_light(Graph& graph);
std::size_t fold_batch_norm(Graph& graph);
std::size_t batch_norm_epilogues(Graph& graph);
std::size_t batch_norm_gradients(Graph& graph);
std::size_t recompute_units(Graph& graph, Recompute recompute);
std::size_t sync_batch_norm(Graph& graph, std::int64_t ranks);
std::size_t data_parallel(Graph& graph, const PassRun& run);
std::size_t rounded_gradients(Graph& graph);
std::size_t shard_optimizer(Graph& graph, const PassRun& run);
std::size_t shard_gradients(Graph& graph, const PassRun& run);
std::size_t shard_parameters(Graph& graph, const PassRun& run);
std::size_t gather_weights(Graph& graph, const PassRun& run);
std::size_t bucket_gradients(Graph& graph, const Target& target);
// Splits the update of all parameters into several, each by at least so many bytes of gradients.
std::size_t early_updates(Graph& graph, std::size_t least_bytes);

}  // namespace ridge
