#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// Registers are numbered in 16 bits; far fewer fit in a cache besides.
constexpr std::size_t longest_chain = 32;

const Shape& shape_of(const Rewriter& rw, NodeId n) { return rw.type(rw.node(n).outputs[0]).shape; }

// The step that a node is, if it is one.
std::optional<PointwiseStep> step_of(const Rewriter& rw, NodeId n) {
  return as_step(*rw.node(n).op, rw.graph().types_of(rw.node(n).inputs));
}

// A conversion is no step: it only decides a dtype.
bool may_join(const Rewriter& rw, NodeId n) { return rw.op<Cast>(n) || step_of(rw, n); }

// Nodes that become one, in order. They move to the place of the last.
using Chain = std::vector<NodeId>;

bool contains(const Chain& chain, NodeId n) { return std::ranges::find(chain, n) != chain.end(); }

// Whether all that the chain computes is used in it, or after node n only.
bool may_move_to(const Rewriter& rw, const Chain& chain, NodeId n) {
  for (const NodeId member : chain)
    for (const NodeId use : rw.uses(rw.node(member).outputs[0]))
      if (use < n && !contains(chain, use)) return false;
  return true;
}

Chain merged(const Chain& a, const Chain& b) {
  Chain both;
  std::ranges::merge(a, b, std::back_inserter(both));
  return both;
}

// Appends each elementwise node to the chains that compute its operands and makes them one, where
// they have as many elements and may be computed as late as this node.
std::vector<Chain> chains_of(const Rewriter& rw) {
  std::vector<Chain> chains;
  std::map<NodeId, std::size_t> chain_of;
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!may_join(rw, n)) continue;
    Chain chain;
    std::size_t joined = chains.size();
    for (const ValueId in : rw.node(n).inputs) {
      const auto found = chain_of.find(rw.producer(in));
      if (found == chain_of.end() || found->second == joined) continue;
      const Chain& candidate = chains[found->second];
      if (rw.node(candidate[0]).phase != rw.node(n).phase ||
          shape_of(rw, candidate[0]) != shape_of(rw, n))
        continue;
      Chain both = merged(chain, candidate);
      if (both.size() >= longest_chain || !may_move_to(rw, both, n)) continue;
      chain = std::move(both);
      joined = found->second;
      chains[joined].clear();
    }
    chain.push_back(n);
    for (const NodeId member : chain) chain_of[member] = joined;
    if (joined == chains.size()) chains.emplace_back();
    chains[joined] = std::move(chain);
  }
  std::erase_if(chains, [](const Chain& chain) { return chain.size() < 2; });
  return chains;
}

// The chain as a program, with the values that it reads and gives.
struct Program {
  Pointwise op;
  std::vector<ValueId> operands, results;
};

Program program_of(const Rewriter& rw, const Chain& chain) {
  Program program;
  std::map<ValueId, std::uint16_t> registers;
  std::set<ValueId> inside;
  for (const NodeId n : chain) inside.insert(rw.node(n).outputs[0]);
  for (const NodeId n : chain)
    for (const ValueId in : rw.node(n).inputs)
      if (!inside.contains(in) && registers.try_emplace(in, registers.size()).second)
        program.operands.push_back(in);
  for (const NodeId n : chain) {
    const Node& node = rw.node(n);
    const ValueId out = node.outputs[0];
    if (auto step = step_of(rw, n)) {
      step->a = registers.at(node.inputs[0]);
      if (node.inputs.size() > 1) step->b = registers.at(node.inputs[1]);
      registers[out] =
          static_cast<std::uint16_t>(program.operands.size() + program.op.steps.size());
      program.op.steps.push_back(*step);
    } else {
      registers[out] = registers.at(node.inputs[0]);
    }
    const bool used_outside =
        std::ranges::any_of(rw.uses(out), [&](NodeId use) { return !contains(chain, use); });
    if (!used_outside && !rw.is_readable(out)) continue;
    program.op.results.push_back({.value = registers[out], .dtype = rw.type(out).dtype});
    program.results.push_back(out);
  }
  return program;
}

// Whether the operands broadcast to the chain's shape, of which a share alone has only a part.
bool spans(const Rewriter& rw, const Program& program, const Shape& shape) {
  Shape all;
  for (const ValueId in : program.operands) all = broadcast(all, rw.type(in).shape);
  return all == shape;
}

}  // namespace

std::size_t pointwise_chains(Graph& graph) {
  Rewriter rw(graph);
  for (const Chain& chain : chains_of(rw)) {
    const Program program = program_of(rw, chain);
    if (program.op.steps.empty() || program.op.results.empty()) continue;
    if (!spans(rw, program, shape_of(rw, chain[0]))) continue;
    rw.replace(chain, chain.back(), [&rw, &graph, program] {
      return Rewriter::each(program.results, graph.apply(program.op, rw.values(program.operands)));
    });
  }
  return rw.commit();
}

}  // namespace ridge
