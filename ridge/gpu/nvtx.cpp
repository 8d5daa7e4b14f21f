#include "ridge/gpu/nvtx.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "ridge/graph/op_rules.h"

namespace ridge::gpu {
namespace {

class NvtxRanges final : public OutsideRanges {
 public:
  explicit NvtxRanges(nvtxDomainHandle_t domain) : domain_(domain) {}
  ~NvtxRanges() override { nvtxDomainDestroy(domain_); }

  void begin_step(std::int64_t step) override {
    replayed_ = false;
    nvtxEventAttributes_t range = attributes();
    const std::string name = fmt::format("step {}", step);
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name.c_str();
    nvtxDomainRangePushEx(domain_, &range);
  }
  void end_step() override { end(); }

  bool wants_nodes() const override { return false; }
  void on_replay_begin(const Graph&) override {
    replayed_ = true;
    begin(captured_);
  }
  void on_replay(const Graph&, Clock::time_point, Clock::time_point) override { end(); }
  // What is told of phases after a replay happens elsewhere, at another time.
  void on_phase_begin(Phase phase) override {
    if (!replayed_) begin(phases_[static_cast<std::size_t>(phase)]);
  }
  void on_phase(Phase, Clock::time_point, Clock::time_point) override {
    if (!replayed_) end();
  }
  void on_node_begin(const Graph& graph, NodeId node) override {
    if (nodes_.size() <= node) nodes_.resize(graph.nodes().size());
    if (!nodes_[node]) nodes_[node] = registered(name_of_node(graph, node));
    begin(nodes_[node]);
  }
  void on_node(const Graph&, NodeId, Clock::time_point, Clock::time_point) override { end(); }

 private:
  static nvtxEventAttributes_t attributes() {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    return range;
  }
  static std::string name_of_node(const Graph& graph, NodeId id) {
    const Node& node = graph.nodes()[id];
    const std::string& scope = graph.scope_name(node.scope);
    return fmt::format("{}{}{}", scope, scope.empty() ? "" : ": ", name_of(*node.op));
  }
  nvtxStringHandle_t registered(const std::string& name) const {
    return nvtxDomainRegisterStringA(domain_, name.c_str());
  }
  void begin(nvtxStringHandle_t name) const {
    nvtxEventAttributes_t range = attributes();
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = name;
    nvtxDomainRangePushEx(domain_, &range);
  }
  void end() const { nvtxDomainRangePop(domain_); }

  nvtxDomainHandle_t domain_;
  nvtxStringHandle_t captured_ = registered("captured step");
  nvtxStringHandle_t phases_[3] = {registered("forward"), registered("backward"),
                                   registered("optimizer")};
  std::vector<nvtxStringHandle_t> nodes_;  // registered when they first run
  bool replayed_ = false;                  // in this step
};

}  // namespace

std::unique_ptr<OutsideRanges> make_nvtx_ranges() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("ridge");
  return domain ? std::make_unique<NvtxRanges>(domain) : nullptr;
}

}  // namespace ridge::gpu
