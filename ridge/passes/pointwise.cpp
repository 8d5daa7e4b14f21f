#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

using Code = Pointwise::Code;

// Registers are numbered in 16 bits; far fewer fit in a cache besides.
constexpr std::size_t longest_chain = 32;

bool is_elementwise(const Rewriter& rw, NodeId n) {
  if (!rw.op<Add>(n) && !rw.op<Mul>(n) && !rw.op<Scale>(n) && !rw.op<Silu>(n) &&
      !rw.op<SiluGrad>(n) && !rw.op<Relu>(n) && !rw.op<ReluGrad>(n) && !rw.op<Cast>(n))
    return false;
  const Node& node = rw.node(n);
  return std::ranges::all_of(node.inputs, [&](ValueId in) {  // nothing is broadcast
    return rw.type(in).shape == rw.type(node.outputs[0]).shape;
  });
}

// The step that a node is; none for a conversion, which only decides a dtype.
std::optional<Pointwise::Step> step_of(const Rewriter& rw, NodeId n) {
  if (rw.op<Cast>(n)) return std::nullopt;
  if (const Scale* scale = rw.op<Scale>(n)) return {{.code = Code::scale, .factor = scale->factor}};
  if (rw.op<Add>(n)) return {{.code = Code::add}};
  if (rw.op<Mul>(n)) return {{.code = Code::mul}};
  if (rw.op<Silu>(n)) return {{.code = Code::silu}};
  if (rw.op<SiluGrad>(n)) return {{.code = Code::silu_grad}};
  if (rw.op<Relu>(n)) return {{.code = Code::relu}};
  return {{.code = Code::relu_grad}};
}

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

// Appends each elementwise node to the chain that computes one of its operands, where that may be
// computed as late as this node.
std::vector<Chain> chains_of(const Rewriter& rw) {
  std::vector<Chain> chains;
  std::map<NodeId, std::size_t> chain_of;
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!is_elementwise(rw, n)) continue;
    std::optional<std::size_t> joined;
    for (const ValueId in : rw.node(n).inputs) {
      const auto found = chain_of.find(rw.producer(in));
      if (found == chain_of.end() || joined) continue;
      const Chain& chain = chains[found->second];
      if (chain.size() < longest_chain && rw.node(chain[0]).phase == rw.node(n).phase &&
          may_move_to(rw, chain, n))
        joined = found->second;
    }
    if (!joined) {
      joined = chains.size();
      chains.emplace_back();
    }
    chains[*joined].push_back(n);
    chain_of[n] = *joined;
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

}  // namespace

std::size_t pointwise_chains(Graph& graph) {
  Rewriter rw(graph);
  for (const Chain& chain : chains_of(rw)) {
    const Program program = program_of(rw, chain);
    if (program.op.steps.empty() || program.op.results.empty()) continue;
    rw.replace(chain, chain.back(), [&rw, &graph, program] {
      std::vector<Value> operands;
      for (const ValueId v : program.operands) operands.push_back(rw.value(v));
      const std::vector<Value> out = graph.apply(program.op, operands);
      Rewriter::Substitutes substitutes;
      for (std::size_t i = 0; i < out.size(); ++i)
        substitutes.emplace_back(program.results[i], out[i]);
      return substitutes;
    });
  }
  return rw.commit();
}

}  // namespace ridge
