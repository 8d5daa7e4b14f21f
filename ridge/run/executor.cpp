#include "ridge/run/executor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/graph/op_rules.h"
#include "ridge/run/allocation_trial.h"
#include "ridge/run/arena_needs.h"

namespace ridge {
namespace {

constexpr Phase phases[] = {Phase::forward, Phase::backward, Phase::optimizer};

// Two kernels at the same time pay where neither fills the device; where they do, each disturbs the
// other.
bool fills(const Target& device, const Graph& graph, const Node& node) {
  if (is_collective(graph, node)) return false;
  const Cost cost = ridge::cost(graph, node);
  return static_cast<double>(cost.flops) > device.filling_flops ||
         static_cast<double>(cost.bytes()) > device.filling_bytes;
}

// By node: its phase, but the backward phase for an update that comes before the end of that.
std::vector<Phase> phases_of_runs(const Graph& graph) {
  std::vector<Phase> found;
  std::size_t end = 0;  // of the backward phase
  for (const Node& node : graph.nodes()) {
    found.push_back(node.phase);
    if (node.phase == Phase::backward) end = found.size();
  }
  std::replace(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(end), Phase::optimizer,
               Phase::backward);
  return found;
}

std::vector<DeviceWork> in_critical_order(std::vector<DeviceWork> works) {
  Precedence after;
  for (const DeviceWork& work : works) after.push_back(work.after);
  const std::vector<std::size_t> order = critical_first(after);
  std::vector<std::size_t> place(works.size());
  for (std::size_t k = 0; k < order.size(); ++k) place[order[k]] = k;
  std::vector<DeviceWork> ordered;
  for (const std::size_t i : order) {
    for (std::size_t& before : works[i].after) before = place[before];
    ordered.push_back(std::move(works[i]));
  }
  return ordered;
}

// Does something for a node; what the device throws then says for which.
template <class Action>
auto on_behalf_of(const Graph& graph, NodeId n, const Action& action) {
  const auto name = [&] {
    const Node& node = graph.nodes()[n];
    const std::string& scope = graph.scope_name(node.scope);
    return fmt::format("{} of {} ({})", name_of(*node.op), scope.empty() ? "the model" : scope,
                       name_of(node.phase));
  };
  try {
    return action();
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError("{}: {}", name(), error.what());
  } catch (const DeviceError& error) {
    throw DeviceError("{}: {}", name(), error.what());
  }
}

}  // namespace

Executor::Executor(Graph& graph, Device& device, Execution execution)
    : graph_(graph),
      device_(device),
      concurrent_(execution.concurrent),
      capture_(execution.captured),
      lifetimes_(lifetimes_of(graph)),
      runs_in_(phases_of_runs(graph)),
      allocator_(device),
      places_{.storage = std::vector<std::size_t>(graph.value_count()),
              .workspace = std::vector<std::size_t>(graph.nodes().size())},
      memory_(graph.value_count(), nullptr) {
  std::vector<std::size_t> workspace(graph.nodes().size(), 0);
  const MemoryPlan least = plan_memory(graph, lifetimes_, workspace);
  check_memory(least.peak_bytes, least.at_peak);
  prepare(execution.kernels);
  choose_packed_inputs();
  std::ranges::transform(steps_, workspace.begin(), &Step::workspace);
  plan_ = plan_memory(graph, lifetimes_, workspace, packed_bytes_);
  if (execution.planned) {
    plan(workspace, plan_.at_peak);
  } else {
    check_memory(plan_.peak_bytes, plan_.at_peak);
    check_pieces(workspace);
  }
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && lifetimes_.storage[id] == id) take(id);
  place_packed_inputs();
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).copy_of != no_value && graph.info(id).whole == no_value)
      copies_.push_back(id);
}

void Executor::prepare(const KernelChoice& kernels) {
  for (NodeId n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    PreparedKernel prepared = on_behalf_of(graph_, n, [&] {
      return device_.prepare(*node.op, graph_.types_of(node.inputs), graph_.types_of(node.outputs),
                             kernels);
    });
    steps_.push_back({std::move(prepared.kernel), prepared.workspace,
                      std::vector<const void*>(node.inputs.size()),
                      std::vector<void*>(node.outputs.size())});
  }
}

void Executor::choose_packed_inputs() {
  const std::vector<bool> packable = seldom_written(graph_, lifetimes_);
  for (NodeId n = 0; n < steps_.size(); ++n) {
    auto* const kernel = dynamic_cast<PackingKernel*>(steps_[n].kernel.get());
    if (!kernel) continue;
    const PackingKernel::Packed packed = kernel->packed();
    const ValueId value = graph_.nodes()[n].inputs[packed.input];
    if (packed.bytes == 0 || !packable[value]) continue;
    packed_inputs_.push_back({n, kernel, value, packed.bytes});
    packed_bytes_ += packed.bytes;
    steps_[n].workspace = packed.workspace;
  }
  wants_packing_ = packed_bytes_ > 0;
}

// In an arena, behind everything else.
void Executor::place_packed_inputs() {
  std::size_t offset = arena_ ? places_.bytes : 0;
  for (PackedInput& input : packed_inputs_) {
    input.memory = allocate(input.bytes, offset);
    offset += input.bytes;
  }
}

void Executor::pack_inputs() {
  if (!std::exchange(wants_packing_, false)) return;
  for (const PackedInput& input : packed_inputs_)
    on_behalf_of(graph_, input.node,
                 [&] { input.kernel->pack(address(input.value), input.memory); });
}

void Executor::check_memory(std::size_t needed, const TensorBytes& parts) const {
  if (const std::size_t available = device_.available_memory(); needed > available)
    throw OutOfMemoryError(
        "this needs {} for tensors ({}), but the {} has {} left of {}: use a smaller batch, "
        "sequence or model",
        format_bytes(needed), to_string(parts), device_.name(), format_bytes(available),
        format_bytes(device_.total_memory()));
}

void Executor::check_pieces(std::span<const std::size_t> workspace) const {
  // CUDA and HIP give away pages of 2 MiB.
  const std::size_t granularity = device_.is_gpu() ? std::size_t{2} << 20 : 1;
  const std::size_t available = device_.available_memory();
  if (available / 2 > plan_.peak_bytes ||
      can_allocate(graph_, lifetimes_, workspace, packed_bytes_, available, granularity))
    return;
  throw OutOfMemoryError(
      "this needs {} for tensors, and the {} has {} left, but in too small pieces as tensors come "
      "and go: use the pass {}, which places them beforehand, or a smaller batch, sequence or "
      "model",
      format_bytes(plan_.peak_bytes), device_.name(), format_bytes(available), planned_memory);
}

void Executor::plan(std::span<const std::size_t> workspace, const TensorBytes& parts) {
  if (!std::ranges::is_sorted(runs_in_))
    throw UsageError("a graph can only be planned if its nodes are in the order of their phases");
  places_ = plan_arena(graph_, lifetimes_, workspace, arena_needs(device_, concurrent_));
  check_memory(places_.bytes + packed_bytes_, parts);
  try {
    const bool jointly = std::ranges::any_of(
        graph_.nodes(), [this](const Node& node) { return sent_bytes(graph_, node) > 0; });
    arena_.emplace(device_, std::max(places_.bytes + packed_bytes_, tensor_alignment), jointly);
  } catch (const OutOfMemoryError& error) {  // somebody else took what was left, or it is in pieces
    throw OutOfMemoryError("{}; all tensors: {}", error.what(), to_string(parts));
  }
  // While the launches are put together every value has its memory.
  for (ValueId id = 0; id < memory_.size(); ++id) memory_[id] = arena_->at(places_.storage[id]);
  for (NodeId n = 0; n < steps_.size(); ++n) {
    steps_[n].scratch = workspace[n] ? arena_->at(places_.workspace[n]) : nullptr;
    bind(n);
  }
  std::ranges::fill(memory_, nullptr);
  for (const Phase phase : phases) replays_[static_cast<std::size_t>(phase)] = replay_of(phase);
}

Executor::Replay Executor::replay_of(Phase phase) const {
  Replay replay;
  std::vector<bool> born_here(graph_.value_count(), false);
  for (NodeId n = 0; n < steps_.size(); ++n) {
    if (runs_in_[n] != phase) continue;
    const Step& step = steps_[n];
    for (const ValueId id : lifetimes_.born[n]) {
      born_here[id] = true;
      replay.usage.take(lifetimes_.bytes[id]);
    }
    if (step.kernel) {
      replay.launches.push_back(n);
      replay.usage.take(step.workspace);
      replay.usage.release(step.workspace);
    }
    for (const ValueId id : lifetimes_.dead[n]) {
      replay.usage.release(lifetimes_.bytes[id]);
      if (!born_here[id]) replay.dead.push_back(id);
      born_here[id] = false;
    }
  }
  for (ValueId id = 0; id < born_here.size(); ++id)
    if (born_here[id]) replay.born.push_back(id);
  return replay;
}

Executor::~Executor() { settle(device_); }

std::size_t Executor::launches() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(steps_, [](const Step& step) { return step.kernel != nullptr; }));
}

std::size_t Executor::launches(Phase phase) const {
  std::size_t count = 0;
  for (std::size_t n = 0; n < steps_.size(); ++n)
    count += steps_[n].kernel != nullptr && runs_in_[n] == phase ? 1 : 0;
  return count;
}

bool Executor::updates_in_backward() const {
  return !std::ranges::equal(runs_in_, graph_.nodes(), {}, {}, &Node::phase);
}

void Executor::observe(Observer& observer) {
  for (ValueId id = 0; id < memory_.size(); ++id)
    if (memory_[id]) observer.on_allocate(graph_, id, memory_[id], lifetimes_.bytes[id], memory());
  observers_.push_back(&observer);
}

void* Executor::address(ValueId value) const {
  void* const memory = memory_[lifetimes_.storage[value]];
  return memory ? static_cast<std::byte*>(memory) + lifetimes_.offset[value] : nullptr;
}

TensorBytes Executor::held() const {
  TensorBytes held;
  for (ValueId id = 0; id < memory_.size(); ++id)
    if (memory_[id]) held.of(graph_.info(id).role) += lifetimes_.bytes[id];
  return held;
}

void* Executor::allocate(std::size_t bytes, std::size_t offset) {
  if (arena_) return arena_->take(offset, bytes);
  try {
    return allocator_.allocate(bytes);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError("{}; tensors so far: {}", error.what(), to_string(held()));
  }
}

void Executor::release(void* memory, std::size_t bytes) {
  if (arena_)
    arena_->release(bytes);
  else
    allocator_.release(memory);
}

void Executor::take(ValueId storage) {
  memory_[storage] = allocate(lifetimes_.bytes[storage], places_.storage[storage]);
  for (Observer* o : observers_)
    o->on_allocate(graph_, storage, memory_[storage], lifetimes_.bytes[storage], memory());
}

void Executor::give_back(ValueId storage) {
  void* const memory = std::exchange(memory_[storage], nullptr);
  release(memory, lifetimes_.bytes[storage]);
  for (Observer* o : observers_)
    o->on_release(graph_, storage, memory, lifetimes_.bytes[storage], this->memory());
}

void* Executor::take_workspace(NodeId n) {
  const std::size_t bytes = steps_[n].workspace;
  void* const workspace = allocate(bytes, places_.workspace[n]);
  for (Observer* o : observers_) o->on_workspace(graph_, n, workspace, bytes, memory());
  return workspace;
}

void Executor::give_back_workspace(NodeId n, void* workspace) {
  const std::size_t bytes = steps_[n].workspace;
  release(workspace, bytes);
  for (Observer* o : observers_) o->on_workspace_release(graph_, n, workspace, bytes, memory());
}

void Executor::release_transients() {
  for (ValueId id = 0; id < memory_.size(); ++id)
    if (memory_[id] && !graph_.info(id).persistent) give_back(id);
}

void Executor::bind(NodeId n) {
  const Node& node = graph_.nodes()[n];
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    steps_[n].inputs[i] = address(node.inputs[i]);
  for (std::size_t o = 0; o < node.outputs.size(); ++o)
    steps_[n].outputs[o] = address(node.outputs[o]);
}

void Executor::launch(NodeId n) {
  const auto launch = [&step = steps_[n]] { step.kernel->launch(step.call()); };
  if (observers_.empty()) return on_behalf_of(graph_, n, launch);
  for (Observer* o : observers_) o->on_node_begin(graph_, n);
  const auto begin = Clock::now();
  on_behalf_of(graph_, n, launch);
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_node(graph_, n, begin, end);
}

void Executor::run_node(NodeId n) {
  Step& step = steps_[n];
  for (const ValueId storage : lifetimes_.born[n]) take(storage);
  if (step.kernel) {
    if (step.workspace) step.scratch = take_workspace(n);
    if (!arena_) bind(n);
    launch(n);
    if (step.workspace) give_back_workspace(n, step.scratch);
  }
  for (const ValueId storage : lifetimes_.dead[n]) give_back(storage);
}

void Executor::replay(Phase phase) {
  for (const NodeId n : replays_[static_cast<std::size_t>(phase)].launches)
    on_behalf_of(graph_, n, [&step = steps_[n]] { step.kernel->launch(step.call()); });
}

std::vector<Access> Executor::accesses_of(const PlannedLaunch& launch) const {
  const Node& node = graph_.nodes()[launch.node];
  const Step& step = steps_[launch.node];
  std::vector<Access> accesses;
  const auto add = [&](const void* memory, std::size_t bytes, bool writes) {
    const auto begin = reinterpret_cast<std::size_t>(memory);
    if (bytes > 0) accesses.push_back({begin, begin + bytes, writes});
  };
  const auto late = step.kernel->late_outputs();
  for (std::size_t o = 0; o < node.outputs.size(); ++o) {
    const bool is_late = std::ranges::find(late, o) != late.end();
    if (launch.part == PlannedLaunch::Part::whole ||
        is_late == (launch.part == PlannedLaunch::Part::rest))
      add(step.outputs[o], graph_.info(node.outputs[o]).type.bytes(), true);
  }
  add(step.scratch, step.workspace, launch.part != PlannedLaunch::Part::rest);
  if (launch.part == PlannedLaunch::Part::rest) return accesses;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    add(step.inputs[i], graph_.info(node.inputs[i]).type.bytes(), false);
  // The device is as good as memory that only one of them may have, and so is the way to other
  // ranks, who all take it in the same order: addresses 0 and 1 stand for them.
  if (fills(device_.target(), graph_, node)) accesses.push_back({0, 1, true});
  if (sent_bytes(graph_, node) > 0) accesses.push_back({1, 2, true});
  return accesses;
}

// Where work may overlap, kernels in two parts are two launches: so nothing waits for the second
// that can do without.
std::vector<Executor::PlannedLaunch> Executor::launches_of(Phase phase,
                                                           std::size_t first_place) const {
  std::vector<PlannedLaunch> launches;
  auto place = static_cast<std::uint32_t>(first_place);
  for (const NodeId n : replays_[static_cast<std::size_t>(phase)].launches) {
    if (concurrent_ && !steps_[n].kernel->late_outputs().empty()) {
      launches.push_back({n, PlannedLaunch::Part::first, place});
      launches.push_back({n, PlannedLaunch::Part::rest, place});
    } else {
      launches.push_back({n, PlannedLaunch::Part::whole, place});
    }
    ++place;
  }
  return launches;
}

Footprint Executor::footprint_of(const PlannedLaunch& launch) const {
  const Node& node = graph_.nodes()[launch.node];
  if (launch.part == PlannedLaunch::Part::rest) return Footprint::some;
  if (is_collective(graph_, node)) return Footprint::few;
  if (fills(device_.target(), graph_, node)) return Footprint::all;
  return ridge::footprint_of(*node.op);
}

// Marks come after all work of their phase; the work of the next phase need not wait for them.
std::vector<DeviceWork> Executor::works_of(std::span<const Phase> phases,
                                           std::optional<std::size_t> first_mark) const {
  std::vector<PlannedLaunch> launches;
  std::vector<std::size_t> ends;  // of the phases, in launches
  std::size_t nodes = 0;
  for (const Phase phase : phases) {
    const std::vector<PlannedLaunch> more = launches_of(phase, nodes);
    launches.insert(launches.end(), more.begin(), more.end());
    ends.push_back(launches.size());
    nodes += replays_[static_cast<std::size_t>(phase)].launches.size();
  }
  Precedence after;
  std::vector<bool> background(launches.size(), false);
  if (concurrent_) {
    std::vector<std::vector<Access>> accesses;
    std::vector<Footprint> footprints;
    for (const PlannedLaunch& launch : launches) {
      accesses.push_back(accesses_of(launch));
      footprints.push_back(footprint_of(launch));
    }
    after = order_of(accesses);
    background = defer_background(after, footprints);
  } else {
    for (std::size_t i = 0; i < launches.size(); ++i)
      after.push_back(i == 0 ? std::vector<std::size_t>{} : std::vector{i - 1});
  }

  std::vector<DeviceWork> works;
  if (first_mark) works.push_back({.enqueue = [this, m = *first_mark] { device_.mark(m); }});
  const std::size_t first_work = works.size();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    DeviceWork work{.enqueue = [this, launch = launches[i]] { launch_for_capture(launch); },
                    .background = background[i]};
    for (const std::size_t j : after[i]) work.after.push_back(first_work + j);
    if (work.after.empty() && first_mark) work.after.push_back(0);
    works.push_back(std::move(work));
  }
  if (first_mark) {
    std::size_t begin = 0, mark_before = 0;
    for (std::size_t p = 0; p < phases.size(); ++p) {
      // The mark before, and all of this phase that nothing else in it follows.
      std::set<std::size_t> last{mark_before};
      for (std::size_t i = begin; i < ends[p]; ++i) last.insert(first_work + i);
      for (std::size_t i = begin; i < ends[p]; ++i)
        for (const std::size_t j : after[i]) last.erase(first_work + j);
      mark_before = works.size();
      works.push_back({.enqueue = [this, m = *first_mark + p + 1] { device_.mark(m); },
                       .after = {last.begin(), last.end()}});
      begin = ends[p];
    }
  }
  return concurrent_ ? in_critical_order(std::move(works)) : works;
}

void Executor::count(const Replay& replay) {
  for (const ValueId id : replay.born) memory_[id] = arena_->at(places_.storage[id]);
  for (const ValueId id : replay.dead) memory_[id] = nullptr;
  arena_->count(replay.usage);
}

void Executor::renew_captures() {
  Tracer* const tracer = device_.tools().tracer();
  const bool traced = tracer && tracer->active();
  if (traced == traced_capture_) return;
  traced_capture_ = traced;
  for (auto& [key, kernel] : captured_) {
    if (!kernel) continue;
    const auto& [first, count, first_mark] = key;
    kernel = device_.capture(
        works_of(std::span(phases).subspan(static_cast<std::size_t>(first), count), first_mark));
  }
}

// Null until it ran once without.
const Kernel* Executor::captured(std::span<const Phase> of, std::optional<std::size_t> first_mark) {
  if (!capture_) return nullptr;
  renew_captures();
  const auto [entry, first_time] = captured_.try_emplace({of.front(), of.size(), first_mark});
  if (!entry->second && !first_time) entry->second = device_.capture(works_of(of, first_mark));
  return entry->second.get();
}

void Executor::capture(std::size_t first_mark) {
  if (!capture_ || !arena_) return;
  renew_captures();
  KernelPtr& kernel = captured_[CaptureKey(phases[0], std::size(phases), first_mark)];
  if (!kernel) kernel = device_.capture(works_of(phases, first_mark));
}

// A tracer is told whose the launch is. The number of the run is the place among the nodes that
// tell_replay() will name.
void Executor::launch_for_capture(const PlannedLaunch& launch) const {
  Tracer* const tracer = traced_capture_ ? device_.tools().tracer() : nullptr;
  if (tracer) tracer->enter(launch.node, launch.place);
  on_behalf_of(graph_, launch.node, [&launch, &step = steps_[launch.node]] {
    switch (launch.part) {
      case PlannedLaunch::Part::whole:
        return step.kernel->launch(step.call());
      case PlannedLaunch::Part::first:
        return step.kernel->launch_first(step.call());
      case PlannedLaunch::Part::rest:
        return step.kernel->launch_rest(step.call());
    }
  });
  if (tracer) tracer->leave();
}

void Executor::launch_captured(const Kernel& kernel) {
  if (observers_.empty()) return kernel.launch({});
  for (Observer* o : observers_) o->on_replay_begin(graph_);
  const auto begin = Clock::now();
  kernel.launch({});
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_replay(graph_, begin, end);
}

// What has happened to memory and nodes once a phase was replayed.
void Executor::tell_replay(Phase phase) {
  const auto begin = Clock::now();
  for (Observer* o : observers_) o->on_phase_begin(phase);
  for (NodeId n = 0; n < steps_.size(); ++n) {
    if (runs_in_[n] != phase) continue;
    const Step& step = steps_[n];
    for (const ValueId storage : lifetimes_.born[n]) take(storage);
    if (step.kernel) {
      void* const workspace = step.workspace ? take_workspace(n) : nullptr;
      for (Observer* o : observers_) o->on_replayed(graph_, n);
      if (workspace) give_back_workspace(n, workspace);
    }
    for (const ValueId storage : lifetimes_.dead[n]) give_back(storage);
  }
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_phase(phase, begin, end);
}

void Executor::launch_at_once(std::span<const Phase> phases,
                              std::optional<std::size_t> first_mark) {
  const Kernel* const kernel = captured(phases, first_mark);
  if (kernel)
    launch_captured(*kernel);
  else if (first_mark)
    device_.mark(*first_mark);
  for (std::size_t p = 0; p < phases.size(); ++p) {
    if (!observers_.empty()) {
      kernel ? tell_replay(phases[p]) : run_nodes(phases[p]);
    } else {
      if (!kernel) replay(phases[p]);
      count(replays_[static_cast<std::size_t>(phases[p])]);
    }
    if (!kernel && first_mark) device_.mark(*first_mark + p + 1);
  }
}

bool Executor::wants_nodes() const {
  return std::ranges::any_of(observers_, [](const Observer* o) { return o->wants_nodes(); });
}

void Executor::run_nodes(Phase phase) {
  for (Observer* o : observers_) o->on_phase_begin(phase);
  const auto begin = observers_.empty() ? Clock::time_point{} : Clock::now();
  for (NodeId n = 0; n < graph_.nodes().size(); ++n)
    if (runs_in_[n] == phase) run_node(n);
  if (observers_.empty()) return;
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_phase(phase, begin, end);
}

void Executor::run(Phase phase) {
  if (phase == Phase::forward) {
    release_transients();
    pack_inputs();
  }
  if (arena_ && !wants_nodes()) return launch_at_once(std::array{phase}, std::nullopt);
  run_nodes(phase);
}

void Executor::run(std::size_t first_mark) {
  if (arena_ && !wants_nodes()) {
    release_transients();
    pack_inputs();
    return launch_at_once(phases, first_mark);
  }
  device_.mark(first_mark);
  for (const Phase phase : phases) {
    run(phase);
    device_.mark(++first_mark);
  }
}

}  // namespace ridge
