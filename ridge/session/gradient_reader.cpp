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
  NodeId end = 0;  // of the backward phase
  for (NodeId n = 0; n < graph.nodes().size(); ++n)
    if (graph.nodes()[n].phase == Phase::backward) end = n;
  std::map<ValueId, NodeId> early;  // by storage: the first update before the end that reads it
  for (NodeId n = 0; n < end; ++n)
    if (graph.nodes()[n].phase == Phase::optimizer)
      for (const ValueId in : graph.nodes()[n].inputs) early.try_emplace(life.storage[in], n);
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
  if (phase == Phase::backward) scale_ = session_.gradient_scale();
  if (const auto found = behind_.find(phase); found != behind_.end()) read(found->second);
}

void GradientReader::read(const std::vector<std::size_t>& parameters) const {
  const std::span<const Value> gradients = gradients_of(session_.training());
  for (const std::size_t i : parameters) read_(i, gradients[i], scale_);
}

}  // namespace ridge
