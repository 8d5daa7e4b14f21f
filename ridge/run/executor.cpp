#include "ridge/run/executor.h"

#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/units.h"
#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/plan/memory.h"

namespace ridge {

Executor::Executor(Graph& graph, Device& device)
    : graph_(graph),
      device_(device),
      lifetimes_(lifetimes_of(graph)),
      allocator_(device),
      memory_(graph.value_count(), nullptr) {
  std::vector<std::size_t> workspace;
  for (const Node& node : graph.nodes()) {
    PreparedKernel prepared =
        device.prepare(*node.op, graph.types_of(node.inputs), graph.types_of(node.outputs));
    workspace.push_back(prepared.workspace);
    steps_.push_back({std::move(prepared.kernel), prepared.workspace});
  }
  peak_bytes_ = peak_live_bytes(graph, lifetimes_, workspace);
  if (const std::size_t available = device.available_memory(); peak_bytes_ > available)
    throw OutOfMemoryError(
        "this needs {} for tensors, but the {} has {} left of {}: use a smaller batch, sequence or "
        "model",
        format_bytes(peak_bytes_), device.name(), format_bytes(available),
        format_bytes(device.total_memory()));
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && lifetimes_.storage[id] == id) take(id);
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

void Executor::fill_zero(Value value) {
  const std::vector<std::byte> zeros(value.type().bytes());
  write(value, std::span<const std::byte>(zeros));
}

void Executor::observe(Observer& observer) {
  for (ValueId id = 0; id < memory_.size(); ++id)
    if (memory_[id])
      observer.on_allocate(graph_, id, memory_[id], lifetimes_.bytes[id], allocator_.stats());
  observers_.push_back(&observer);
}

void* Executor::address(ValueId value) const {
  void* const memory = memory_[lifetimes_.storage[value]];
  return memory ? static_cast<std::byte*>(memory) + lifetimes_.offset[value] : nullptr;
}

void Executor::take(ValueId storage) {
  memory_[storage] = allocator_.allocate(lifetimes_.bytes[storage]);
  for (Observer* o : observers_)
    o->on_allocate(graph_, storage, memory_[storage], lifetimes_.bytes[storage],
                   allocator_.stats());
}

void Executor::give_back(ValueId storage) {
  void* const memory = std::exchange(memory_[storage], nullptr);
  allocator_.release(memory);
  for (Observer* o : observers_)
    o->on_release(graph_, storage, memory, lifetimes_.bytes[storage], allocator_.stats());
}

void Executor::release_transients() {
  for (ValueId id = 0; id < memory_.size(); ++id)
    if (memory_[id] && !graph_.info(id).persistent) give_back(id);
}

void Executor::run_node(NodeId n) {
  const Node& node = graph_.nodes()[n];
  const Step& step = steps_[n];
  for (const ValueId storage : lifetimes_.born[n]) take(storage);
  if (step.kernel) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const ValueId in : node.inputs) inputs.push_back(address(in));
    for (const ValueId out : node.outputs) outputs.push_back(address(out));
    void* workspace = nullptr;
    if (step.workspace) {
      workspace = allocator_.allocate(step.workspace);
      for (Observer* o : observers_)
        o->on_workspace(graph_, n, workspace, step.workspace, allocator_.stats());
    }
    const Launch call{inputs, outputs, workspace};
    if (observers_.empty()) {
      step.kernel->launch(call);
    } else {
      for (Observer* o : observers_) o->on_node_begin(graph_, n);
      const auto begin = Clock::now();
      step.kernel->launch(call);
      const auto end = Clock::now();
      for (Observer* o : observers_) o->on_node(graph_, n, begin, end);
    }
    if (workspace) {
      allocator_.release(workspace);
      for (Observer* o : observers_)
        o->on_workspace_release(graph_, n, workspace, step.workspace, allocator_.stats());
    }
  }
  for (const ValueId storage : lifetimes_.dead[n]) give_back(storage);
}

void Executor::run(Phase phase) {
  if (phase == Phase::forward) release_transients();
  for (Observer* o : observers_) o->on_phase_begin(phase);
  const auto begin = observers_.empty() ? Clock::time_point{} : Clock::now();
  for (NodeId n = 0; n < graph_.nodes().size(); ++n)
    if (graph_.nodes()[n].phase == phase) run_node(n);
  if (observers_.empty()) return;
  const auto end = Clock::now();
  for (Observer* o : observers_) o->on_phase(phase, begin, end);
}

void Executor::run() {
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) run(phase);
}

}  // namespace ridge
