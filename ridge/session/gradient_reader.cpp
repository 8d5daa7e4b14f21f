#include "ridge/session/gradient_reader.h"

#include <span>
#include <utility>

#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

std::span<const Value> gradients_of(const TrainingStep& step) {
  return step.accumulators.empty() ? step.gradients : step.accumulators;
}

}  // namespace

GradientReader::GradientReader(Session& session, Read read)
    : session_(session), read_(std::move(read)) {
  const Graph& graph = session.graph();
  const Lifetimes life = lifetimes_of(graph);
  // By storage: the first update that reads it and that comes before the end of the backward pass.
  std::map<ValueId, NodeId> early, updates;
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (node.phase == Phase::backward) early = updates;
    if (node.phase == Phase::optimizer)
      for (const ValueId in : node.inputs) updates.try_emplace(life.storage[in], n);
  }
  const bool are_sums = !session.training().accumulators.empty();
  const std::span<const Value> gradients = gradients_of(session.training());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto found = early.find(life.storage[gradients[i].id]);
    if (found != early.end())
      before_[found->second].push_back(i);
    else
      behind_[are_sums ? Phase::optimizer : Phase::backward].push_back(i);
  }
  session.executor().observe(*this);
}

GradientReader::~GradientReader() { session_.executor().forget(*this); }

void GradientReader::on_node_begin(const Graph&, NodeId node) {
  if (const auto found = before_.find(node); found != before_.end()) read(found->second);
}

void GradientReader::on_phase(Phase phase, Clock::time_point, Clock::time_point) {
  if (const auto found = behind_.find(phase); found != behind_.end()) read(found->second);
}

void GradientReader::read(const std::vector<std::size_t>& parameters) const {
  const std::span<const Value> gradients = gradients_of(session_.training());
  for (const std::size_t i : parameters) read_(i, gradients[i]);
}

}  // namespace ridge
