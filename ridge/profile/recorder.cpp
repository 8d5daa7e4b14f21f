#include "ridge/profile/recorder.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

constexpr std::size_t first_reserve = 1 << 16;

std::int64_t nanoseconds(std::chrono::nanoseconds duration) { return duration.count(); }

}  // namespace

std::string display_name(const Graph& graph, ValueId value) {
  const ValueInfo& info = graph.info(value);
  if (!info.name.empty()) return info.name;
  if (info.producer == no_node) return fmt::format("value {}", value);
  const Node& node = graph.nodes()[info.producer];
  const std::string& scope = graph.scope_name(node.scope);
  std::string name = scope.empty() ? "" : scope + ": ";
  name += name_of(*node.op);
  if (node.outputs.size() > 1) name += fmt::format(" #{}", info.output);
  return name;
}

void Recorder::attach(Executor& executor) {
  recording_.graph = &executor.graph();
  recording_.device = executor.device().name();
  recording_.device_description = executor.device().description();
  recording_.threads = executor.device().threads();
  recording_.process_id = ::getpid();
  recording_.thread_id = ::syscall(SYS_gettid);
  recording_.nodes.reserve(first_reserve);
  if (options_.memory) recording_.memory.reserve(first_reserve);
  epoch_ = Clock::now();
  recording_.epoch_ns = nanoseconds(std::chrono::system_clock::now().time_since_epoch());
  executor.observe(*this);
}

void Recorder::detach(Executor& executor) { executor.forget(*this); }

std::int64_t Recorder::since_epoch(Clock::time_point time) const {
  return nanoseconds(time - epoch_);
}

void Recorder::begin_step(std::int64_t step) {
  step_ = static_cast<std::int32_t>(step);
  in_step_ = true;
  phase_ = Phase::forward;
  step_begin_ = Clock::now();
}

void Recorder::end_step(double loss) {
  in_step_ = false;
  append(recording_.steps, {.step = step_,
                            .begin_ns = since_epoch(step_begin_),
                            .end_ns = since_epoch(Clock::now()),
                            .loss = loss});
}

void Recorder::add_range(std::string_view name, Clock::time_point begin, Clock::time_point end) {
  auto it = interned_.find(name);
  if (it == interned_.end()) {
    it = interned_.emplace(name, static_cast<std::uint32_t>(recording_.names.size())).first;
    recording_.names.emplace_back(name);
  }
  append(recording_.ranges, {.name = it->second,
                             .step = step_,
                             .begin_ns = since_epoch(begin),
                             .end_ns = since_epoch(end)});
}

void Recorder::on_node(const Graph&, NodeId node, Clock::time_point begin, Clock::time_point end) {
  if (!in_step_) return;
  append(recording_.nodes,
         {.node = node, .step = step_, .begin_ns = since_epoch(begin), .end_ns = since_epoch(end)});
}

void Recorder::change(bool workspace, std::uint32_t owner, const void* address, std::int64_t bytes,
                      const MemoryStats& stats) {
  if (!options_.memory) return;
  append(recording_.memory, {.time_ns = since_epoch(Clock::now()),
                             .step = step_,
                             .phase = phase_,
                             .workspace = workspace,
                             .owner = owner,
                             .address = reinterpret_cast<std::uintptr_t>(address),
                             .bytes = bytes,
                             .live = stats.live,
                             .reserved = stats.reserved});
}

void Recorder::on_allocate(const Graph&, ValueId value, const void* address, std::size_t bytes,
                           const MemoryStats& stats) {
  change(false, value, address, static_cast<std::int64_t>(bytes), stats);
}

void Recorder::on_release(const Graph&, ValueId value, const void* address, std::size_t bytes,
                          const MemoryStats& stats) {
  change(false, value, address, -static_cast<std::int64_t>(bytes), stats);
}

void Recorder::on_workspace(const Graph&, NodeId node, const void* address, std::size_t bytes,
                            const MemoryStats& stats) {
  change(true, node, address, static_cast<std::int64_t>(bytes), stats);
}

void Recorder::on_workspace_release(const Graph&, NodeId node, const void* address,
                                    std::size_t bytes, const MemoryStats& stats) {
  change(true, node, address, -static_cast<std::int64_t>(bytes), stats);
}

void Recorder::on_phase_begin(Phase phase) { phase_ = phase; }

void Recorder::on_phase(Phase phase, Clock::time_point begin, Clock::time_point end) {
  if (!in_step_) return;
  append(
      recording_.phases,
      {.phase = phase, .step = step_, .begin_ns = since_epoch(begin), .end_ns = since_epoch(end)});
}

}  // namespace ridge
