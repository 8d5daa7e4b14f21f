#include "ridge/profile/chrome_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "ridge/graph/op_rules.h"
#include "ridge/profile/aten.h"
#include "ridge/profile/event_list.h"
#include "ridge/profile/system_events.h"
#include "ridge/profile/timeline.h"

namespace ridge {
namespace {

using Kind = TimelineItem::Kind;
using json = nlohmann::json;

class ChromeEvents {
 public:
  ChromeEvents(const Recording& recording, const ShownRank& shown, const EmitEvent& emit)
      : recording_(recording),
        shown_(shown),
        graph_(*recording.graph),
        emit_(emit),
        timeline_(recording),
        node_args_(graph_.nodes().size()) {}

  void emit_all() {
    tracks();
    timeline_.walk([this](const TimelineItem& item) { add(item); });
    activities();
    card();
    system();
  }

 private:
  void metadata(std::string_view what, std::int64_t process, std::int64_t thread,
                std::string_view args) {
    emit_(fmt::format(
        R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0.000, "args": {{{}}}}})", what,
        process, thread, args));
  }
  void metadata(std::string_view what, std::int64_t thread, std::string_view args) {
    metadata(what, shown_.process, thread, args);
  }

  void tracks() {
    metadata("process_name", 0, "\"name\": " + json_string(shown_.name));
    metadata("process_labels", 0, R"("labels": "CPU")");
    metadata("process_sort_index", 0, fmt::format(R"("sort_index": {})", shown_.sorted));
    name_thread(recording_.thread_id, fmt::format("thread {} (executor)", recording_.thread_id), 0);
    if (recording_.on_device_time)
      name_thread(slice_thread_, "operators, by the device's clock", 1);
  }

  void name_thread(std::int64_t thread, std::string_view name, std::size_t place) {
    metadata("thread_name", thread, "\"name\": " + json_string(name));
    metadata("thread_sort_index", thread, fmt::format(R"("sort_index": {})", place));
  }

  void add(const TimelineItem& item) {
    switch (item.kind) {
      case Kind::step:
        return add_step(item);
      case Kind::phase:
        return add_phase(item);
      case Kind::module:
        return add_module(item);
      case Kind::gradient:
        return add_gradient(item);
      case Kind::node:
        return add_node(item);
      case Kind::memory:
        return add_memory(item);
    }
  }

  // Starts event_ up to its args, which the caller fills in and closes. `name` is a JSON string.
  void begin_slice(std::string_view category, std::string_view name, std::int64_t begin_ns,
                   std::int64_t end_ns, std::int64_t thread) {
    begin_slice(category, name, begin_ns, end_ns, shown_.process, thread);
  }
  void begin_slice(std::string_view category, std::string_view name, std::int64_t begin_ns,
                   std::int64_t end_ns, std::int64_t process, std::int64_t thread) {
    event_.clear();
    fmt::format_to(out(), R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": )",
                   category, name, process, thread);
    append_time(begin_ns);
    event_ += R"(, "dur": )";
    append(out(), Microseconds{end_ns - begin_ns});
    event_ += R"(, "args": {)";
  }
  void begin_slice(std::string_view category, std::string_view name, const TimelineItem& item) {
    begin_slice(category, name, item.begin_ns, item.end_ns, slice_thread_);
  }

  void add_step(const TimelineItem& item) {
    const Recording::Step& step = recording_.steps[item.index];
    begin_slice("user_annotation", fmt::format("\"ProfilerStep#{}\"", step.step), item);
    // Through json, because a loss may be infinite or no number at all.
    fmt::format_to(out(), R"("External id": {}, "loss": {}}}}})", ++external_id_,
                   json(step.loss).dump());
    emit_(event_);
  }

  void add_phase(const TimelineItem& item) {
    begin_slice("user_annotation", json_string(name_of(item.phase)), item);
    fmt::format_to(out(), R"("External id": {}}}}})", ++external_id_);
    emit_(event_);
  }

  // Only forward runs count as calls of a module; PyTorch's traces have none going backward.
  void add_module(const TimelineItem& item) {
    const Module& module = timeline_.modules().modules[item.index];
    const bool forward = item.phase == Phase::forward;
    begin_slice("python_function",
                forward ? json_string("nn.Module: " + timeline_.instance_names()[item.index])
                        : json_string(fmt::format("{} ({})", module.path, name_of(item.phase))),
                item);
    while (!open_modules_.empty() && open_modules_.back().first >= item.depth)
      open_modules_.pop_back();
    fmt::format_to(out(), R"("Python id": {}, "Python parent id": )", ++python_id_);
    if (open_modules_.empty())
      event_ += "null";
    else
      fmt::format_to(out(), "{}", open_modules_.back().second);
    if (forward) fmt::format_to(out(), R"(, "Python module id": {})", item.index);
    fmt::format_to(out(), R"(, "path": {}}}}})", json_string(module.path));
    open_modules_.emplace_back(item.depth, python_id_);
    emit_(event_);
  }

  void add_gradient(const TimelineItem& item) {
    const std::string name = camel_case(name_of(*graph_.nodes()[item.index].op));
    begin_slice("cpu_op",
                json_string(fmt::format("autograd::engine::evaluate_function: {}Backward0", name)),
                item);
    ++external_id_;
    fmt::format_to(out(), R"("External id": {}, "Ev Idx": {}, "Fwd thread id": 1)", external_id_,
                   external_id_);
    if (item.forward_run != TimelineItem::no_run)
      fmt::format_to(out(), R"(, "Sequence number": {})", item.forward_run);
    event_ += "}}";
    emit_(event_);
    if (item.forward_run == TimelineItem::no_run) return;
    flow("fwdbwd", "s", item.forward_run, recording_.nodes[item.forward_run].begin_ns,
         shown_.process, slice_thread_);
    flow("fwdbwd", "f", item.forward_run, item.begin_ns, shown_.process, slice_thread_);
  }

  void flow(std::string_view kind, std::string_view end, std::size_t id, std::int64_t time_ns,
            std::int64_t process, std::int64_t thread) {
    event_.clear();
    fmt::format_to(out(),
                   R"({{"ph": "{0}", "cat": "{1}", "name": "{1}", "id": {2}, "pid": {3}, )"
                   R"("tid": {4}, "ts": )",
                   end, kind, shown_.first_flow + id, process, thread);
    append_time(time_ns);
    event_ += end == "f" ? R"(, "bp": "e"})" : "}";
    emit_(event_);
  }

  void add_node(const TimelineItem& item) {
    const NodeId node = recording_.nodes[item.index].node;
    NodeText& text = node_args_[node];
    if (text.name.empty()) text = describe(node);
    begin_slice("cpu_op", text.name, item);
    ++external_id_;
    if (!recording_.activities.empty() && !recording_.on_device_time)
      external_id_of_run_[item.index] = external_id_;
    fmt::format_to(out(), R"("External id": {}, "Ev Idx": {}, )", external_id_, external_id_);
    if (item.forward_run != TimelineItem::no_run)
      fmt::format_to(out(), R"("Sequence number": {}, "Fwd thread id": 0, )", item.forward_run);
    event_ += text.args;
    event_ += "}}";
    emit_(event_);
  }

  // As PyTorch's events of collectives have it.
  std::string collective_args(const Node& node, const AtenCall& call) const {
    std::int64_t elements = 0;
    for (const TensorType& type : graph_.types_of(node.inputs)) elements += type.shape.numel();
    const std::string_view dtype = call.inputs.empty() ? "" : call.inputs.front().dtype;
    return fmt::format(R"(, "Collective name": {}, "In msg nelems": {}, "dtype": {})",
                       json_string(name_of(*node.op)), elements, json_string(dtype));
  }

  // What is the same whenever the node runs.
  struct NodeText {
    std::string name, args;
  };
  NodeText describe(NodeId id) const {
    const Node& node = graph_.nodes()[id];
    const AtenCall call = aten_call(graph_, node);
    json dims = json::array(), strides = json::array(), types = json::array();
    for (const AtenCall::Operand& operand : call.inputs) {
      dims.push_back(operand.dims);
      strides.push_back(operand.strides);
      types.push_back(std::string(operand.dtype));
    }
    const Cost work = cost(graph_, node);
    std::string args =
        fmt::format(R"("Input Dims": {}, "Input Strides": {}, "Input type": {}, "node": {}, )"
                    R"("operator": {}, "scope": {}, "flops": {}, "bytes": {})",
                    dims.dump(), strides.dump(), types.dump(), id, json_string(name_of(*node.op)),
                    json_string(graph_.scope_name(node.scope)), work.flops, work.bytes());
    if (sent_bytes(graph_, node) > 0) args += collective_args(node, call);
    return {json_string(call.name), std::move(args)};
  }

  // What the device did, and the calls that asked for it.
  void activities() {
    if (recording_.activities.empty()) return;
    metadata("process_name", shown_.device, 0, "\"name\": " + json_string(shown_.name));
    metadata("process_labels", shown_.device, 0, R"("labels": "GPU 0")");
    metadata("process_sort_index", shown_.device, 0,
             fmt::format(R"("sort_index": {})", 5'000'000 + shown_.sorted));
    std::unordered_map<std::uint32_t, const Activity*> calls;  // by correlation
    std::unordered_set<std::uint32_t> led_from;                // whose flow has begun
    for (const Activity& activity : recording_.activities)
      if (activity.kind == Activity::Kind::call) calls[activity.correlation] = &activity;
    name_thread(overhead_thread, "overhead of tracing", 1);
    for (const Activity& activity : recording_.activities) {
      if (!activity.on_device()) {
        add_call(activity);
        continue;
      }
      const Place shown = place(activity);
      add_activity(activity, shown);
      const auto call = calls.find(activity.correlation);
      if (call == calls.end()) continue;
      if (led_from.insert(activity.correlation).second)
        flow("ac2g", "s", shown_correlation(activity), call->second->begin_ns, shown_.process,
             call->second->stream);
      flow("ac2g", "f", shown_correlation(activity), shown.begin_ns, shown_.device, shown.thread);
    }
  }

  // What ran at the same time on one stream, as parts of a graph may, goes to tracks of its own.
  // The clock of a device is not that exact: of what seems to overlap by very little, the second is
  // shown to begin at the end of the first. And nothing is shown to be shorter than a microsecond,
  // which HolisticTraceAnalysis counts as no time; its arguments have the true time.
  struct Place {
    std::int64_t thread, begin_ns, end_ns;
  };
  Place place(const Activity& activity) {
    std::vector<std::int64_t>& ends = lane_ends_[activity.stream];
    std::size_t lane = 0;
    while (lane < ends.size() && ends[lane] > activity.begin_ns + clock_error_ns) ++lane;
    const std::int64_t thread = activity.stream + static_cast<std::int64_t>(lane) * lane_step;
    if (lane == ends.size()) {
      ends.push_back(0);
      metadata("thread_name", shown_.device, thread,
               fmt::format(R"("name": "stream {}{}")", activity.stream, lane > 0 ? " (too)" : ""));
      metadata("thread_sort_index", shown_.device, thread,
               fmt::format(R"("sort_index": {})", activity.stream));
    }
    const std::int64_t begin_ns = std::max(activity.begin_ns, ends[lane]);
    ends[lane] = std::max(activity.end_ns, begin_ns + shortest_ns);
    return {thread, begin_ns, ends[lane]};
  }

  // HolisticTraceAnalysis stores the index of an event in as many bits as the largest correlation
  // needs, and with pandas 3 it fails at an index that needs more. A trace has fewer events than
  // the 31 bits count that a million needs.
  static std::int64_t shown_correlation(const Activity& activity) {
    return std::int64_t{1'000'000} + activity.correlation;
  }

  void add_call(const Activity& activity) {
    const bool overhead = activity.kind == Activity::Kind::overhead;
    const std::string& name = recording_.activity_names[activity.name];
    const bool of_runtime = name.starts_with("cuda");
    begin_slice(overhead     ? "overhead"
                : of_runtime ? "cuda_runtime"
                             : "cuda_driver",
                json_string(name), activity.begin_ns, activity.end_ns,
                overhead ? overhead_thread : activity.stream);
    add_owner(activity);
    fmt::format_to(out(), R"("correlation": {}}}}})", shown_correlation(activity));
    emit_(event_);
  }

  void add_activity(const Activity& activity, const Place& shown) {
    const bool kernel = activity.kind == Activity::Kind::kernel;
    const auto [name, added] = kernel_names_.try_emplace(activity.name);
    if (added) name->second = json_string(demangled(recording_.activity_names[activity.name]));
    const bool copy = activity.kind == Activity::Kind::copy;
    begin_slice(kernel ? "kernel"
                : copy ? "gpu_memcpy"
                       : "gpu_memset",
                name->second, shown.begin_ns, shown.end_ns, shown_.device, shown.thread);
    const std::int64_t ns = activity.end_ns - activity.begin_ns;
    if (ns != shown.end_ns - shown.begin_ns) fmt::format_to(out(), R"("ns": {}, )", ns);
    add_owner(activity);
    fmt::format_to(out(), R"("device": {}, "context": 1, "stream": {}, "correlation": {})",
                   shown_.device, activity.stream, shown_correlation(activity));
    if (kernel)
      add_launch_shape(activity);
    else
      fmt::format_to(
          out(), R"=(, "bytes": {}, "memory bandwidth (GB/s)": {:.3f})=", activity.bytes,
          static_cast<double>(activity.bytes) /
              static_cast<double>(std::max<std::int64_t>(activity.end_ns - activity.begin_ns, 1)));
    event_ += "}}";
    emit_(event_);
  }

  // The node on whose behalf something was done; its External id is that of the node's own slice.
  void add_owner(const Activity& activity) {
    if (const auto id = external_id_of_run_.find(activity.run); id != external_id_of_run_.end())
      fmt::format_to(out(), R"("External id": {}, )", id->second);
    if (activity.node == no_node) return;
    const Node& node = graph_.nodes()[activity.node];
    fmt::format_to(out(), R"("node": {}, "operator": {}, "scope": {}, "phase": {}, )",
                   activity.node, json_string(name_of(*node.op)),
                   json_string(graph_.scope_name(node.scope)), json_string(name_of(node.phase)));
  }

  void add_launch_shape(const Activity& a) {
    fmt::format_to(
        out(),
        R"(, "registers per thread": {}, "shared memory": {}, "local memory per thread": )"
        R"({}, "grid": [{}, {}, {}], "block": [{}, {}, {}])",
        a.registers, a.static_shared + a.dynamic_shared, a.local_memory, a.grid[0], a.grid[1],
        a.grid[2], a.block[0], a.block[1], a.block[2]);
    const ProcessorLimits& limits = recording_.processor;
    if (limits.count == 0) return;
    const double blocks = double{1} * a.grid[0] * a.grid[1] * a.grid[2] / limits.count;
    const double warps = blocks * a.block[0] * a.block[1] * a.block[2] / limits.warp_size;
    fmt::format_to(out(),
                   R"(, "blocks per SM": {:.3f}, "warps per SM": {:.3f}, )"
                   R"("est. achieved occupancy %": {:.0f}, "theoretical occupancy %": {:.0f})",
                   blocks, warps, 100 * std::min(1.0, warps / std::max(limits.warps, 1)),
                   100 * theoretical_occupancy(limits, a));
  }

  void card() {
    for (const CardState& state : recording_.card) {
      const auto counter = [&](std::string_view name, double value) {
        event_.clear();
        fmt::format_to(out(),
                       R"({{"ph": "C", "cat": "card", "name": "{}", "pid": {}, "tid": 0, "ts": )",
                       name, shown_.device);
        append_time(state.time_ns);
        fmt::format_to(out(), R"(, "args": {{"value": {:.1f}}}}})", value);
        emit_(event_);
      };
      counter("SM clock (MHz)", state.sm_mhz);
      counter("memory clock (MHz)", state.memory_mhz);
      counter("power (W)", state.power_w);
      counter("temperature (C)", state.temperature_c);
      counter("GPU busy (%)", state.busy_percent);
    }
  }

  // The counters of the machine, on a track of its own below the others, while steps were recorded.
  void system() {
    if (!recording_.system || recording_.steps.empty()) return;
    const std::int64_t process = system_process + shown_.process;
    metadata("process_name", process, 0, R"("name": "the system")");
    metadata("process_sort_index", process, 0,
             fmt::format(R"("sort_index": {})", 6'000'000 + shown_.sorted));
    emit_system_counters(*recording_.system,
                         {.process = process,
                          .begin_ns = recording_.steps.front().begin_ns,
                          .end_ns = recording_.steps.back().end_ns,
                          .zero_ns = shown_.ahead_ns},
                         emit_);
  }

  void add_memory(const TimelineItem& item) {
    const Recording::MemoryChange& change = recording_.memory[item.index];
    event_.clear();
    fmt::format_to(out(),
                   R"({{"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", )"
                   R"("pid": {}, "tid": {}, "ts": )",
                   shown_.process, slice_thread_);
    append_time(change.time_ns);
    ++external_id_;
    const bool on_cpu = recording_.device_kind == DeviceKind::cpu;
    fmt::format_to(out(),
                   R"(, "args": {{"Ev Idx": {}, "Addr": {}, "Bytes": {}, "Total Allocated": {}, )"
                   R"("Total Reserved": {}, "Device Id": {}, "Device Type": {}, "owner": {}}}}})",
                   external_id_, change.address, change.bytes, change.live, change.reserved,
                   on_cpu ? -1 : 0, on_cpu ? 0 : 1, owner(change));
    emit_(event_);
    event_.clear();
    fmt::format_to(out(),
                   R"({{"ph": "C", "cat": "memory", "name": "memory", "pid": {}, "tid": 0, )"
                   R"("ts": )",
                   shown_.process);
    append_time(change.time_ns);
    fmt::format_to(out(), R"(, "args": {{"live bytes": {}, "free, held": {}}}}})", change.live,
                   change.reserved - change.live);
    emit_(event_);
  }

  const std::string& owner(const Recording::MemoryChange& change) {
    std::string& name = (change.workspace ? workspace_names_ : value_names_)[change.owner];
    if (name.empty())
      name = change.workspace ? json_string(fmt::format(
                                    "workspace of {}",
                                    display_name(graph_, graph_.nodes()[change.owner].outputs[0])))
                              : json_string(display_name(graph_, change.owner));
    return name;
  }

  std::back_insert_iterator<std::string> out() { return std::back_inserter(event_); }
  void append_time(std::int64_t ns) { append(out(), Microseconds{ns - shown_.ahead_ns}); }

  // Threads that nobody has: the greatest that Linux gives is 2^22.
  static constexpr std::int64_t device_time_thread = (1 << 24) - 1, overhead_thread = (1 << 24) - 2;
  // A process that nobody has, for the same reason.
  static constexpr std::int64_t system_process = 1 << 24;
  static constexpr std::int64_t lane_step = 1'000'000, clock_error_ns = 500, shortest_ns = 1000;

  const Recording& recording_;
  const ShownRank& shown_;
  const Graph& graph_;
  const EmitEvent& emit_;
  Timeline timeline_;
  // The thread that shows steps, modules and nodes.
  std::int64_t slice_thread_ =
      recording_.on_device_time ? device_time_thread : recording_.thread_id;
  std::unordered_map<std::size_t, std::uint64_t> external_id_of_run_;  // if there are activities
  std::unordered_map<std::uint32_t, std::string> kernel_names_;        // quoted
  std::unordered_map<std::uint32_t, std::vector<std::int64_t>> lane_ends_;  // by stream
  std::vector<NodeText> node_args_;                                         // by NodeId, once run
  std::unordered_map<std::uint32_t, std::string> value_names_, workspace_names_;  // quoted
  std::vector<std::pair<std::size_t, std::uint64_t>> open_modules_;  // their depth and Python id
  std::string event_;                                                // being written
  std::uint64_t external_id_ = 0, python_id_ = 0;
};

}  // namespace

void emit_chrome_events(const Recording& recording, const ShownRank& shown, const EmitEvent& emit) {
  ChromeEvents(recording, shown, emit).emit_all();
}

std::string json_string(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ridge
