#include "ridge/run/executor.h"

#include <algorithm>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/units.h"
#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/plan/memory.h"

namespace ridge {
namespace {

constexpr Phase phases[] = {Phase::forward, Phase::backward, Phase::optimizer};

}  // namespace

Executor::Executor(Graph& graph, Device& device, Execution execution)
    : graph_(graph),
      device_(device),
      lifetimes_(lifetimes_of(graph)),
      allocator_(device),
      places_{.storage = std::vector<std::size_t>(graph.value_count()),
              .workspace = std::vector<std::size_t>(graph.nodes().size())},
      memory_(graph.value_count(), nullptr) {
  std::vector<std::size_t> workspace;
  for (const Node& node : graph.nodes()) {
    PreparedKernel prepared = device.prepare(*node.op, graph.types_of(node.inputs),
                                             graph.types_of(node.outputs), execution.kernels);
    workspace.push_back(prepared.workspace);
    steps_.push_back({std::move(prepared.kernel), prepared.workspace,
                      std::vector<const void*>(node.inputs.size()),
                      std::vector<void*>(node.outputs.size())});
  }
  peak_bytes_ = peak_live_bytes(graph, lifetimes_, workspace);
  if (execution.planned)
    plan(workspace);
  else
    check_memory(peak_bytes_);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && lifetimes_.storage[id] == id) take(id);
}

void Executor::check_memory(std::size_t needed) const {
  if (const std::size_t available = device_.available_memory(); needed > available)
    throw OutOfMemoryError(
        "this needs {} for tensors, but the {} has {} left of {}: use a smaller batch, sequence or "
        "model",
        format_bytes(needed), device_.name(), format_bytes(available),
        format_bytes(device_.total_memory()));
}

void Executor::plan(std::span<const std::size_t> workspace) {
  if (!std::ranges::is_sorted(graph_.nodes(), {}, &Node::phase))
    throw UsageError("a graph can only be planned if its nodes are in the order of their phases");
  places_ = plan_arena(graph_, lifetimes_, workspace);
  check_memory(places_.bytes);
  arena_.emplace(device_, std::max(places_.bytes, tensor_alignment));
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
    if (graph_.nodes()[n].phase != phase) continue;
    const Step& step = steps_[n];
    for (const ValueId id : lifetimes_.born[n]) {
      born_here[id] = true;
      replay.usage.take(lifetimes_.bytes[id]);
    }
    if (step.kernel) {
      replay.launches.emplace_back(step.kernel.get(), step.call());
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

Executor::~Executor() { device_.synchronize(); }

void Executor::initialize(std::uint64_t seed) {
  ThreadPool pool(CpuDevice::default_threads());  // the host's, whatever the device
  std::vector<float> host;
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    const ValueInfo& info = graph_.info(id);
    if (!info.persistent || !info.parts.empty() || info.role == Role::input) continue;
    if (info.type.dtype != DType::f32)
      throw UsageError("{} is {}, but only f32 values are initialised", info.name,
                       name_of(info.type.dtype));
    host.assign(static_cast<std::size_t>(info.type.numel()),
                info.init.kind == Init::Kind::ones ? 1.0f : 0.0f);
    if (info.init.kind == Init::Kind::normal) {
      const std::uint64_t stream = stream_of(info.name);
      parallel_for(pool, info.type.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
        const auto first = static_cast<std::size_t>(begin);
        fill_normal(std::span(host).subspan(first, static_cast<std::size_t>(end - begin)),
                    info.init.std, seed, stream, first);
      });
    }
    write(graph_.value(id), std::span<const float>(host));
  }
}

void Executor::write(Value value, std::span<const std::byte> data) {
  void* memory = address(value.id);
  if (!memory || data.size() != value.type().bytes())
    throw UsageError("{} bytes cannot be written to {}, a {}", data.size(),
                     graph_.info(value.id).name, value.type().to_string());
  device_.upload(memory, data.data(), data.size());
}

void Executor::read(Value value, std::span<std::byte> data) {
  const void* memory = address(value.id);
  if (!memory || data.size() != value.type().bytes())
    throw UsageError("{} bytes cannot be read from {}, a {}", data.size(),
                     graph_.info(value.id).name, value.type().to_string());
  device_.synchronize();
  device_.download(data.data(), memory, data.size());
}

float Executor::read_scalar(Value value) {
  float scalar = 0;
  read(value, std::span(&scalar, 1));
  return scalar;
}

std::vector<float> Executor::read_floats(Value value) {
  std::vector<float> floats(static_cast<std::size_t>(value.type().numel()));
  if (value.dtype() == DType::f32) {
    read(value, std::span(floats));
    return floats;
  }
  std::vector<BFloat16> narrow(floats.size());
  read(value, std::span(narrow));
  std::ranges::transform(narrow, floats.begin(), [](BFloat16 x) { return static_cast<float>(x); });
  return floats;
}

void Executor::fill_zero(Value value) {
  const std::vector<std::byte> zeros(value.type().bytes());
  write(value, std::span<const std::byte>(zeros));
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

void* Executor::allocate(std::size_t bytes, std::size_t offset) {
  return arena_ ? arena_->take(offset, bytes) : allocator_.allocate(bytes);
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
  const Step& step = steps_[n];
  if (observers_.empty()) {
    step.kernel->launch(step.call());
    return;
  }
  for (Observer* o : observers_) o->on_node_begin(graph_, n);
  const auto begin = Clock::now();
  step.kernel->launch(step.call());
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_node(graph_, n, begin, end);
}

void Executor::run_node(NodeId n) {
  Step& step = steps_[n];
  for (const ValueId storage : lifetimes_.born[n]) take(storage);
  if (step.kernel) {
    if (step.workspace) {
      step.scratch = allocate(step.workspace, places_.workspace[n]);
      for (Observer* o : observers_)
        o->on_workspace(graph_, n, step.scratch, step.workspace, memory());
    }
    if (!arena_) bind(n);
    launch(n);
    if (step.workspace) {
      release(step.scratch, step.workspace);
      for (Observer* o : observers_)
        o->on_workspace_release(graph_, n, step.scratch, step.workspace, memory());
    }
  }
  for (const ValueId storage : lifetimes_.dead[n]) give_back(storage);
}

void Executor::replay(Phase phase) {
  const Replay& replay = replays_[static_cast<std::size_t>(phase)];
  for (const auto& [kernel, call] : replay.launches) kernel->launch(call);
  for (const ValueId id : replay.born) memory_[id] = arena_->at(places_.storage[id]);
  for (const ValueId id : replay.dead) memory_[id] = nullptr;
  arena_->count(replay.usage);
}

void Executor::run(Phase phase) {
  if (phase == Phase::forward) release_transients();
  if (arena_ && observers_.empty()) return replay(phase);
  for (Observer* o : observers_) o->on_phase_begin(phase);
  const auto begin = observers_.empty() ? Clock::time_point{} : Clock::now();
  for (NodeId n = 0; n < graph_.nodes().size(); ++n)
    if (graph_.nodes()[n].phase == phase) run_node(n);
  if (observers_.empty()) return;
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_phase(phase, begin, end);
}

void Executor::run() {
  for (const Phase phase : phases) run(phase);
}

}  // namespace ridge
