#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "ridge/run/observer.h"
#include "ridge/session/session.h"

namespace ridge {

// Tells, while it lives, when each gradient of a step is complete and still in memory: at the end
// of the backward pass, or before the node that updates by it, if that comes earlier; sums over the
// batches of a step at its end.
class GradientReader final : public Observer {
 public:
  // Called with the place of a parameter among those of the session's step, its gradient or sum,
  // and the loss scale that this was computed with, which may be another by the end of the step.
  using Read = std::function<void(std::size_t parameter, Value gradient, float scale)>;

  GradientReader(Session& session, Read read);
  ~GradientReader() override;
  GradientReader(const GradientReader&) = delete;
  GradientReader& operator=(const GradientReader&) = delete;

  void on_node_begin(const Graph& graph, NodeId node) override;
  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override;

 private:
  void read(const std::vector<std::size_t>& parameters) const;

  Session& session_;
  Read read_;
  float scale_ = 1;
  // The parameters whose gradients are read after a phase, or before a node.
  std::map<Phase, std::vector<std::size_t>> behind_;
  std::map<NodeId, std::vector<std::size_t>> before_;
};

}  // namespace ridge
