// What --zero makes of a graph. That the ranks then compute what one does, and to which bits,
// tests/session/ranks_test.cpp holds.

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/part.h"
#include "ridge/ops/op.h"
#include "tests/passes/built_run.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

constexpr std::int64_t ranks = 4;

RunOptions on_ranks(std::int64_t zero, const std::string& version, RunOptions o) {
  o.version = version, o.zero = zero, o.ranks = ranks;
  o.resolve();
  return o;
}

struct Built : BuiltRun {
  Built(std::int64_t zero, const std::string& version, std::int64_t rank = 0,
        const RunOptions& o = small_llama({.batch_size = 8, .seq_len = 12}),
        const Target& target = {})
      : BuiltRun(on_ranks(zero, version, o), rank, target) {}

  // Returns the bytes of the persistent values of a role.
  std::size_t kept(Role role) const {
    std::size_t bytes = 0;
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (const ValueInfo& info = graph.info(id);
          info.persistent && info.role == role && info.whole == no_value)
        bytes += info.type.bytes();
    return bytes;
  }
};

const char* const versions[] = {"v1", "v2", "v3", "v4"};

// Returns the bytes of the parameters that have too few elements for a part each.
std::size_t small_bytes(Built& whole) {
  std::size_t bytes = 0;
  for (const Value& p : whole.graph.trainables())
    if (part_of(p.type().numel(), ranks - 1, ranks).count == 0) bytes += p.type().bytes();
  return bytes;
}

// Returns about how many of so many bytes a rank keeps.
std::size_t part_of_bytes(Built& whole, std::size_t bytes) {
  return bytes / ranks + small_bytes(whole) * (bytes / whole.kept(Role::parameter));
}

TEST(ShardOptimizer, KeepsAPartOfTheState) {
  for (const char* version : versions) {
    Built whole(0, version), sharded(1, version);
    EXPECT_EQ(whole.kept(Role::optimizer_state), 2 * whole.kept(Role::parameter)) << version;
    const std::size_t most = part_of_bytes(whole, whole.kept(Role::optimizer_state));
    EXPECT_LE(sharded.kept(Role::optimizer_state), most + most / 10) << version;
    EXPECT_EQ(sharded.kept(Role::parameter), whole.kept(Role::parameter));
    EXPECT_FALSE(sharded.nodes_of<AllGather>().empty());
  }
}

TEST(ShardOptimizer, OfAllRanksCoversEachElementOnce) {
  for (const char* version : versions) {
    std::size_t bytes = 0;
    Built whole(0, version);
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      bytes += Built(1, version, rank).kept(Role::optimizer_state);
    EXPECT_EQ(bytes, whole.kept(Role::optimizer_state) + 2 * (ranks - 1) * small_bytes(whole))
        << version;
  }
}

TEST(ShardOptimizer, SendsSmallPartsTogether) {
  EXPECT_GT(Built(1, "v1").nodes_of<AllGather>().size(), 10u);
  EXPECT_EQ(Built(1, "v2").nodes_of<AllGather>().size(), 1u);
  EXPECT_EQ(Built(1, "v2").nodes_of<AdamWAll>().size(), 1u);
}

TEST(ShardGradients, KeepsAPartOfTheGradients) {
  for (const char* version : versions) {
    const Built whole(0, version);
    for (const std::int64_t zero : {1, 2}) {
      const Built sharded(zero, version);
      EXPECT_FALSE(sharded.nodes_of<ReduceScatter>().empty()) << version;
      for (const Node* node : sharded.nodes_of<AllReduce>())
        for (const ValueId in : node->inputs)
          EXPECT_EQ(part_of(sharded.graph.info(in).type.numel(), ranks - 1, ranks).count, 0)
              << version << ": what is large is no more reduced as a whole";
      EXPECT_LT(sharded.memory().at_most.gradients, whole.memory().at_most.gradients) << version;
    }
  }
}

TEST(ShardGradients, OfSeveralBatchesKeepsAPartOfTheirSums) {
  for (const char* version : versions) {
    RunOptions o = small_llama({.batch_size = 8, .seq_len = 12});
    o.gradient_accumulation_steps = 2;
    const Built whole(1, version, 0, o), sharded(2, version, 0, o);
    EXPECT_LE(sharded.kept(Role::gradient) * 3, whole.kept(Role::gradient)) << version;
    EXPECT_TRUE(whole.nodes_of<ReduceScatter>().empty()) << version;
  }
}

TEST(ShardParameters, KeepsAPartOfThem) {
  for (const char* version : versions) {
    Built whole(2, version), sharded(3, version);
    const std::size_t most = part_of_bytes(whole, whole.kept(Role::parameter));
    EXPECT_LE(sharded.kept(Role::parameter), most + most / 10) << version;
    // And never has all of them at once.
    EXPECT_LT(sharded.memory().at_most.parameters, whole.memory().at_most.parameters) << version;
  }
}

// How many elements of weights with two dimensions a rank gathers in 16 bits, in some phases; and
// how many there are, but for embeddings, of which rows are read.
std::int64_t gathered_in_16_bits(const Built& built, std::initializer_list<Phase> phases) {
  std::int64_t elements = 0;
  for (const Node* node : built.nodes_of<AllGather>()) {
    if (std::ranges::find(phases, node->phase) == phases.end()) continue;
    for (const ValueId out : node->outputs)
      if (const TensorType& type = built.graph.info(out).type; type.dtype == DType::bf16)
        elements += type.numel();
  }
  return elements;
}

std::int64_t multiplied_weights(const Built& built) {
  std::int64_t elements = 0;
  for (const Value p : built.built.training.parameters)
    if (p.shape().rank() == 2 && !built.graph.info(p.id).name.starts_with("embed"))
      elements += p.type().numel();
  return elements;
}

Built in_bf16(std::int64_t zero, const std::string& version, const Target& target = {}) {
  RunOptions o = small_llama({.batch_size = 8, .seq_len = 12});
  o.dtype = "bf16";
  return Built(zero, version, 0, o, target);
}

// The f32 weights are optimizer state then: a rank keeps its part, and needs all of the rounded
// ones, once a step.
TEST(GatherWeights, GathersRoundedPartsOnceBeforeTheForwardPass) {
  for (const std::int64_t zero : {1, 2})
    for (const char* version : versions) {
      const Built sharded = in_bf16(zero, version);
      EXPECT_EQ(gathered_in_16_bits(sharded, {Phase::forward}), multiplied_weights(sharded));
      EXPECT_EQ(gathered_in_16_bits(sharded, {Phase::backward, Phase::optimizer}), 0);
      EXPECT_LT(sharded.kept(Role::parameter), Built(zero, version).kept(Role::parameter))
          << version << ", zero " << zero;
      // What comes together after the update is small.
      std::int64_t updated = 0;
      for (const Node* node : sharded.nodes_of<AllGather>())
        if (node->phase == Phase::optimizer)
          for (const ValueId out : node->outputs) updated += sharded.graph.info(out).type.numel();
      EXPECT_LT(updated, multiplied_weights(sharded) / 2);
    }
}

// One message for each block.
TEST(GatherWeights, SendsWhatABlockNeedsTogether) {
  const Built sharded = in_bf16(1, "v2");
  std::vector<ScopeId> blocks;
  for (const Node* node : sharded.nodes_of<AllGather>())
    if (const auto block = sharded.graph.enclosing(node->scope, ScopeKind::block))
      blocks.push_back(*block);
  EXPECT_EQ(blocks, sharded.graph.blocks());
}

// Beside a device that works meanwhile only the first block waits for what it needs, and for little
// at a time.
TEST(GatherWeights, StartWithShortMessages) {
  const std::size_t least = 1000;
  const Built sharded =
      in_bf16(1, "v2", {.kind = DeviceKind::gpu, .bucket_bytes = least, .buckets = 8});
  std::size_t before = 0;
  std::vector<ScopeId> blocks;
  for (const Node* node : sharded.nodes_of<AllGather>()) {
    if (node->phase != Phase::forward) continue;
    std::size_t bytes = 0;
    for (const ValueId out : node->outputs) bytes += sharded.graph.info(out).type.bytes();
    if (node->outputs.size() > 1) {
      EXPECT_LE(bytes, std::max(least, before));
    }
    before += bytes;
    if (const auto block = sharded.graph.enclosing(node->scope, ScopeKind::block))
      blocks.push_back(*block);
  }
  for (const ScopeId block : sharded.graph.blocks())
    EXPECT_EQ(std::ranges::count(blocks, block) > 1, block == sharded.graph.blocks().front());
}

// A kernel that rounds each of them would come before the message.
TEST(GatherWeights, RoundsThemInTheMessage) {
  for (const std::int64_t zero : {1, 2, 3})
    for (const char* version : versions) {
      const Built sharded = in_bf16(zero, version);
      for (const Node* node : sharded.nodes_of<Cast>())
        EXPECT_EQ(sharded.graph.info(node->inputs[0]).role, Role::activation)
            << version << ", zero " << zero;
    }
}

// Once before the forward and once before the backward pass of each block: a message for each
// dtype.
TEST(ShardParameters, GathersWhatABlockNeeds) {
  const Built sharded(3, "v1");
  std::vector<std::pair<Phase, ScopeId>> places;
  for (const Node* node : sharded.nodes_of<AllGather>()) {
    EXPECT_NE(node->phase, Phase::optimizer);
    if (const auto block = sharded.graph.enclosing(node->scope, ScopeKind::block))
      places.emplace_back(node->phase, *block);
  }
  std::vector<std::pair<Phase, ScopeId>> expected;
  const std::vector<ScopeId> blocks = sharded.graph.blocks();
  for (const ScopeId block : blocks) expected.emplace_back(Phase::forward, block);
  for (std::size_t i = blocks.size(); i-- > 0;) expected.emplace_back(Phase::backward, blocks[i]);
  EXPECT_EQ(places, expected);
}

// In the dtype in which they are multiplied: half the bytes.
TEST(ShardParameters, GathersRoundedWeights) {
  const Built sharded = in_bf16(3, "v2");
  EXPECT_EQ(gathered_in_16_bits(sharded, {Phase::forward}), multiplied_weights(sharded));
  EXPECT_EQ(gathered_in_16_bits(sharded, {Phase::backward}), multiplied_weights(sharded));
}

}  // namespace
}  // namespace ridge
