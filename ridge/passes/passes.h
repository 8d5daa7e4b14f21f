#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// What a pass works on: the forward graph, whose gradient is appended afterwards, so that a fused
// operator brings its own; the whole training step; the forward graph of a network that nobody
// trains, where operators without a gradient may stand; or nothing of the graph, but how it is run.
enum class Stage : std::uint8_t { forward, step, inference, run };

// Whether training can have passes of the stage.
constexpr bool is_for_training(Stage stage) { return stage != Stage::inference; }

// Something done for speed or memory that leaves what is computed the same, and can be left out.
struct Pass {
  std::string_view name;  // "fuse-qkv", as --enable-pass takes it
  std::string_view description;
  Stage stage;
  std::string_view needs;      // a pass without which this one finds nothing; may be empty
  std::size_t (*run)(Graph&);  // how often it found something to rewrite; null in Stage::run
};

// Those of Stage::run.
inline constexpr std::string_view packed_products = "packed-products";
inline constexpr std::string_view planned_memory = "planned-memory";
inline constexpr std::string_view concurrent_kernels = "concurrent-kernels";
inline constexpr std::string_view tuned_products = "tuned-products";
inline constexpr std::string_view products_in_pieces = "products-in-pieces";
inline constexpr std::string_view scaled_products = "scaled-products";

// All of them, in the order in which they run.
std::span<const Pass> passes();
// UsageError, naming all there are, for a name that is none.
const Pass& pass_named(std::string_view name);
// Whether `pass` is `other`, or needs it, or needs what needs it.
bool needs(std::string_view pass, std::string_view other);

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

using PassNames = std::set<std::string_view>;  // from the table

// Runs those of `enabled` that belong to the stage, and in Stage::step the recomputation.
void run_passes(Graph& graph, Stage stage, const PassNames& enabled, Recompute recompute);

// The passes, each in the file of its name; two that are one idea share in_place.cpp, results.cpp,
// swiglu.cpp, recompute.cpp or batch_norm_epilogues.cpp.
std::size_t unread_rows(Graph& graph);
std::size_t channels_last(Graph& graph);
std::size_t conv_epilogues(Graph& graph);
std::size_t norm_activations(Graph& graph);
std::size_t residual_bottlenecks(Graph& graph);
std::size_t squeeze_excitation(Graph& graph);
std::size_t fuse_qkv(Graph& graph);
std::size_t flash_attention(Graph& graph);
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

}  // namespace ridge
