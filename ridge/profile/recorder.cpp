#include "ridge/profile/recorder.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

constexpr std::size_t first_reserve = 1 << 16;

std::int64_t nanoseconds(std::chrono::nanoseconds duration) { return duration.count(); }

// The run of a node to which a part of a graph belongs: the nodes of a replay are told of in the
// order in which they were captured.
std::uint32_t run_in_replay(const Recording& recording, const Activity& part) {
  if (part.run >= recording.replays.size() || part.captured_run == Activity::no_run)
    return Activity::no_run;
  const std::uint32_t run = recording.replays[part.run].first_node + part.captured_run;
  const bool right = run < recording.nodes.size() && recording.nodes[run].node == part.node;
  return right ? run : Activity::no_run;
}

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
  recording_.device_kind = executor.device().target().kind;
  recording_.hardware = executor.device().hardware();
  recording_.device_description = executor.device().description();
  recording_.rank = executor.device().rank();
  recording_.ranks = executor.device().ranks();
  recording_.threads = executor.device().threads();
  recording_.process_id = ::getpid();
  recording_.thread_id = ::syscall(SYS_gettid);
  recording_.nodes.reserve(first_reserve);
  if (options_.memory) recording_.memory.reserve(first_reserve);
  recording_.processor = executor.device().info().limits;
  tracer_ = executor.device().tools().tracer();
  if (tracer_) {
    tracer_->start();
    executor.renew_captures();
  }
  epoch_ = Clock::now();
  recording_.epoch_ns = nanoseconds(std::chrono::system_clock::now().time_since_epoch());
  executor.observe(*this);
}

void Recorder::detach(Executor& executor) {
  if (in_step_) {  // the device failed in it
    const auto of_step = [this](const auto& run) { return run.step == step_; };
    std::erase_if(recording_.nodes, of_step);
    std::erase_if(recording_.phases, of_step);
    in_step_ = false;
  }
  executor.forget(*this);
  if (!tracer_) return;
  executor.device().synchronize();
  add_activities(std::exchange(tracer_, nullptr)->stop());
  executor.renew_captures();
}

// Keeps what was asked for within a step, as with all other records. What runs on a device may do
// so later; the call that asked for it, of the same correlation, says when that was.
void Recorder::add_activities(DeviceTrace trace) {
  const std::int64_t epoch_ns = nanoseconds(epoch_.time_since_epoch());
  std::unordered_map<std::uint32_t, std::int64_t> asked;  // by correlation
  for (Activity& activity : trace.activities) {
    activity.begin_ns -= epoch_ns;
    activity.end_ns -= epoch_ns;
    if (activity.kind == Activity::Kind::call && activity.correlation != 0)
      asked[activity.correlation] = activity.begin_ns;
  }
  const auto in_a_step = [&](const Activity& activity) {
    const auto call = asked.find(activity.correlation);
    const std::int64_t time = call == asked.end() ? activity.begin_ns : call->second;
    const auto after =
        std::ranges::upper_bound(recording_.steps, time, {}, &Recording::Step::begin_ns);
    return after != recording_.steps.begin() && time <= std::prev(after)->end_ns;
  };
  recording_.activity_names = std::move(trace.names);
  recording_.activities_dropped = trace.dropped;
  recording_.activities_out_of_order = trace.out_of_order;
  for (Activity& activity : trace.activities) {
    if (!in_a_step(activity)) continue;
    if (activity.in_graph) activity.run = run_in_replay(recording_, activity);
    if (recording_.activities.size() < options_.max_records)
      recording_.activities.push_back(activity);
    else
      ++recording_.activities_dropped;
  }
}

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

void Recorder::add_card(std::vector<CardState> states) {
  const std::int64_t epoch_ns = nanoseconds(epoch_.time_since_epoch());
  for (CardState& state : states) state.time_ns -= epoch_ns;
  recording_.card = std::move(states);
}

void Recorder::add_system(SystemSamples samples) {
  samples.shift(-nanoseconds(epoch_.time_since_epoch()));
  recording_.system = std::make_shared<const SystemSamples>(std::move(samples));
}

void Recorder::on_node_begin(const Graph&, NodeId node) {
  if (!in_step_ || !tracer_) return;
  tracer_->enter(node, static_cast<std::uint32_t>(recording_.nodes.size()));
  entered_ = true;
}

void Recorder::on_node(const Graph&, NodeId node, Clock::time_point begin, Clock::time_point end) {
  if (!in_step_) return;
  if (std::exchange(entered_, false)) tracer_->leave();
  append(recording_.nodes,
         {.node = node, .step = step_, .begin_ns = since_epoch(begin), .end_ns = since_epoch(end)});
}

void Recorder::on_replay_begin(const Graph&) {
  if (in_step_ && tracer_)
    tracer_->enter(no_node, static_cast<std::uint32_t>(recording_.replays.size()));
}

void Recorder::on_replay(const Graph&, Clock::time_point begin, Clock::time_point end) {
  if (!in_step_) return;
  if (tracer_) tracer_->leave();
  append(recording_.replays, {.step = step_,
                              .begin_ns = since_epoch(begin),
                              .end_ns = since_epoch(end),
                              .first_node = static_cast<std::uint32_t>(recording_.nodes.size())});
}

void Recorder::on_replayed(const Graph& graph, NodeId node) {
  const auto now = Clock::now();
  on_node(graph, node, now, now);
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
