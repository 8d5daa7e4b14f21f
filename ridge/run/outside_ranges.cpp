#include "ridge/run/outside_ranges.h"

#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ridge/gpu/profile/nvtx.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

class NvtxRanges final : public OutsideRanges {
 public:
  explicit NvtxRanges(std::unique_ptr<gpu::NvtxDomain> domain) : domain_(std::move(domain)) {}

  void begin_step(std::int64_t step) override {
    replayed_ = false;
    domain_->begin(fmt::format("step {}", step));
  }
  void end_step() override { domain_->end(); }

  bool wants_nodes() const override { return false; }
  void on_replay_begin(const Graph&) override {
    replayed_ = true;
    domain_->begin(captured_);
  }
  void on_replay(const Graph&, Clock::time_point, Clock::time_point) override { domain_->end(); }
  // What is told of phases after a replay happens elsewhere, at another time.
  void on_phase_begin(Phase phase) override {
    if (!replayed_) domain_->begin(phases_[static_cast<std::size_t>(phase)]);
  }
  void on_phase(Phase, Clock::time_point, Clock::time_point) override {
    if (!replayed_) domain_->end();
  }
  void on_node_begin(const Graph& graph, NodeId node) override {
    if (nodes_.size() <= node) nodes_.resize(graph.nodes().size());
    if (!nodes_[node]) nodes_[node] = domain_->registered(name_of_node(graph, node));
    domain_->begin(nodes_[node]);
  }
  void on_node(const Graph&, NodeId, Clock::time_point, Clock::time_point) override {
    domain_->end();
  }

 private:
  static std::string name_of_node(const Graph& graph, NodeId id) {
    const Node& node = graph.nodes()[id];
    const std::string& scope = graph.scope_name(node.scope);
    return fmt::format("{}{}{}", scope, scope.empty() ? "" : ": ", name_of(*node.op));
  }

  std::unique_ptr<gpu::NvtxDomain> domain_;
  gpu::NvtxDomain::Name captured_ = domain_->registered("captured step");
  gpu::NvtxDomain::Name phases_[3] = {domain_->registered("forward"),
                                      domain_->registered("backward"),
                                      domain_->registered("optimizer")};
  std::vector<gpu::NvtxDomain::Name> nodes_;  // registered when they first run
  bool replayed_ = false;                     // in this step
};

}  // namespace

std::unique_ptr<OutsideRanges> OutsideRanges::open() {
  auto domain = gpu::NvtxDomain::open();
  return domain ? std::make_unique<NvtxRanges>(std::move(domain)) : nullptr;
}

}  // namespace ridge

#else

namespace ridge {

std::unique_ptr<OutsideRanges> OutsideRanges::open() { return nullptr; }

}  // namespace ridge

#endif
