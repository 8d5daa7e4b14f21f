#include "ridge/profile/chrome_trace.h"

#include <fmt/format.h>

#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "ridge/base/file.h"
#include "ridge/base/gzip.h"
#include "ridge/graph/op_rules.h"
#include "ridge/profile/aten.h"
#include "ridge/profile/timeline.h"

namespace ridge {
namespace {

using Kind = TimelineItem::Kind;
using json = nlohmann::json;

// Names come from models, files and users: anything may be in them, UTF-8 or not.
std::string json_string(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Nanoseconds as microseconds with three decimals: exact, which no double would be.
struct Microseconds {
  std::int64_t ns;
};

template <class Out>
void append(Out out, Microseconds time) {
  const std::uint64_t ns =
      time.ns < 0 ? -static_cast<std::uint64_t>(time.ns) : static_cast<std::uint64_t>(time.ns);
  fmt::format_to(out, "{}{}.{:03}", time.ns < 0 ? "-" : "", ns / 1000, ns % 1000);
}

// The events of a file, one a line, up to a number of bytes.
class EventList {
 public:
  EventList(const std::filesystem::path& path, std::uint64_t max_bytes)
      : file_(path), max_bytes_(max_bytes) {
    if (path.extension() == ".gz") gzip_.emplace(file_);
  }

  void text(std::string_view text) {
    if (gzip_)
      gzip_->write(text);
    else
      file_.write(text);
    size_.bytes += text.size();
  }

  // Takes an event, unless it or one before it did not fit.
  void event(std::string_view event) {
    constexpr std::uint64_t closing = 4096;  // for what follows the events
    full_ |= size_.bytes + event.size() + closing > max_bytes_;
    if (full_) {
      ++size_.left_out;
      return;
    }
    text(size_.events++ == 0 ? "\n" : ",\n");
    text(event);
  }

  const TraceSize& size() const { return size_; }

  void commit() {
    if (gzip_) gzip_->finish();
    file_.commit();
  }

 private:
  AtomicFile file_;
  std::optional<GzipWriter> gzip_;
  std::uint64_t max_bytes_;
  TraceSize size_;
  bool full_ = false;
};

class ChromeTrace {
 public:
  ChromeTrace(const Recording& recording, EventList& events)
      : recording_(recording),
        graph_(*recording.graph),
        events_(events),
        timeline_(recording),
        node_args_(graph_.nodes().size()) {}

  void write(std::string_view name) {
    head(name);
    tracks();
    ranges();
    timeline_.walk([this](const TimelineItem& item) { add(item); });
    events_.text(
        fmt::format("\n],\n\"ridge\": {{\"events\": {}, \"events_left_out\": {}, "
                    "\"records_dropped\": {}}}\n}}\n",
                    events_.size().events, events_.size().left_out, recording_.dropped));
  }

 private:
  void head(std::string_view name) {
    events_.text(fmt::format(
        "{{\n\"schemaVersion\": 1,\n\"deviceProperties\": [],\n"
        "\"distributedInfo\": {{\"backend\": \"none\", \"rank\": 0, \"world_size\": 1}},\n"
        "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": {},\n\"traceName\": {},\n"
        "\"device\": {},\n\"threads\": {},\n\"traceEvents\": [",
        recording_.epoch_ns, json_string(name), json_string(recording_.device_description),
        recording_.threads));
  }

  void metadata(std::string_view what, std::int64_t thread, std::string_view args) {
    events_.event(fmt::format(
        R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0.000, "args": {{{}}}}})", what,
        recording_.process_id, thread, args));
  }

  void tracks() {
    metadata("process_name", 0, R"("name": "ridge")");
    metadata("process_labels", 0, R"("labels": "CPU")");
    metadata("process_sort_index", 0, R"("sort_index": 0)");
    name_thread(recording_.thread_id, fmt::format("thread {} (executor)", recording_.thread_id), 0);
  }

  void name_thread(std::int64_t thread, std::string_view name, std::size_t place) {
    metadata("thread_name", thread, "\"name\": " + json_string(name));
    metadata("thread_sort_index", thread, fmt::format(R"("sort_index": {})", place));
  }

  void ranges() {
    const RangeTracks tracks = range_tracks(recording_);
    // Threads that nobody has: the greatest that Linux gives is 2^22.
    const auto thread_of = [](std::size_t track) {
      return (std::int64_t{1} << 24) + static_cast<std::int64_t>(track);
    };
    for (std::size_t t = 0; t < tracks.count; ++t)
      name_thread(thread_of(t), fmt::format("ranges {}", t), t + 1);
    for (const std::size_t i : tracks.order) {
      const Recording::Range& range = recording_.ranges[i];
      begin_slice("user_annotation", json_string(recording_.names[range.name]), range.begin_ns,
                  range.end_ns, thread_of(tracks.track[i]));
      fmt::format_to(out(), R"("External id": {}}}}})", ++external_id_);
      events_.event(event_);
    }
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
    event_.clear();
    fmt::format_to(out(), R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": )",
                   category, name, recording_.process_id, thread);
    append(out(), Microseconds{begin_ns});
    event_ += R"(, "dur": )";
    append(out(), Microseconds{end_ns - begin_ns});
    event_ += R"(, "args": {)";
  }
  void begin_slice(std::string_view category, std::string_view name, const TimelineItem& item) {
    begin_slice(category, name, item.begin_ns, item.end_ns, recording_.thread_id);
  }

  void add_step(const TimelineItem& item) {
    const Recording::Step& step = recording_.steps[item.index];
    begin_slice("user_annotation", fmt::format("\"ProfilerStep#{}\"", step.step), item);
    // Through json, because a loss may be infinite or no number at all.
    fmt::format_to(out(), R"("External id": {}, "loss": {}}}}})", ++external_id_,
                   json(step.loss).dump());
    events_.event(event_);
  }

  void add_phase(const TimelineItem& item) {
    begin_slice("user_annotation", json_string(name_of(item.phase)), item);
    fmt::format_to(out(), R"("External id": {}}}}})", ++external_id_);
    events_.event(event_);
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
    events_.event(event_);
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
    events_.event(event_);
    if (item.forward_run == TimelineItem::no_run) return;
    flow("s", item.forward_run, recording_.nodes[item.forward_run].begin_ns);
    flow("f", item.forward_run, item.begin_ns);
  }

  void flow(std::string_view end, std::size_t id, std::int64_t time_ns) {
    event_.clear();
    fmt::format_to(out(),
                   R"({{"ph": "{}", "cat": "fwdbwd", "name": "fwdbwd", "id": {}, "pid": {}, )"
                   R"("tid": {}, "ts": )",
                   end, id, recording_.process_id, recording_.thread_id);
    append(out(), Microseconds{time_ns});
    event_ += end == "f" ? R"(, "bp": "e"})" : "}";
    events_.event(event_);
  }

  void add_node(const TimelineItem& item) {
    const NodeId node = recording_.nodes[item.index].node;
    NodeText& text = node_args_[node];
    if (text.name.empty()) text = describe(node);
    begin_slice("cpu_op", text.name, item);
    ++external_id_;
    fmt::format_to(out(), R"("External id": {}, "Ev Idx": {}, )", external_id_, external_id_);
    if (item.forward_run != TimelineItem::no_run)
      fmt::format_to(out(), R"("Sequence number": {}, "Fwd thread id": 0, )", item.forward_run);
    event_ += text.args;
    event_ += "}}";
    events_.event(event_);
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
    return {
        json_string(call.name),
        fmt::format(R"("Input Dims": {}, "Input Strides": {}, "Input type": {}, "node": {}, )"
                    R"("operator": {}, "scope": {}, "flops": {}, "bytes": {})",
                    dims.dump(), strides.dump(), types.dump(), id, json_string(name_of(*node.op)),
                    json_string(graph_.scope_name(node.scope)), work.flops, work.bytes())};
  }

  void add_memory(const TimelineItem& item) {
    const Recording::MemoryChange& change = recording_.memory[item.index];
    event_.clear();
    fmt::format_to(out(),
                   R"({{"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", )"
                   R"("pid": {}, "tid": {}, "ts": )",
                   recording_.process_id, recording_.thread_id);
    append(out(), Microseconds{change.time_ns});
    ++external_id_;
    fmt::format_to(out(),
                   R"(, "args": {{"Ev Idx": {}, "Addr": {}, "Bytes": {}, "Total Allocated": {}, )"
                   R"("Total Reserved": {}, "Device Id": -1, "Device Type": 0, "owner": {}}}}})",
                   external_id_, change.address, change.bytes, change.live, change.reserved,
                   owner(change));
    events_.event(event_);
    event_.clear();
    fmt::format_to(out(),
                   R"({{"ph": "C", "cat": "memory", "name": "memory", "pid": {}, "tid": 0, )"
                   R"("ts": )",
                   recording_.process_id);
    append(out(), Microseconds{change.time_ns});
    fmt::format_to(out(), R"(, "args": {{"live bytes": {}, "free, held": {}}}}})", change.live,
                   change.reserved - change.live);
    events_.event(event_);
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

  const Recording& recording_;
  const Graph& graph_;
  EventList& events_;
  Timeline timeline_;
  std::vector<NodeText> node_args_;  // by NodeId, once run
  std::unordered_map<std::uint32_t, std::string> value_names_, workspace_names_;  // quoted
  std::vector<std::pair<std::size_t, std::uint64_t>> open_modules_;  // their depth and Python id
  std::string event_;                                                // being written
  std::uint64_t external_id_ = 0, python_id_ = 0;
};

}  // namespace

TraceSize write_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                             const TraceOptions& options) {
  EventList events(path, options.max_bytes);
  ChromeTrace(recording, events).write(path.filename().string());
  events.commit();
  return events.size();
}

std::string worker_trace_name(std::string_view host, std::int64_t process_id, std::int64_t n) {
  std::string worker;
  for (const char c : host)
    worker += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  return fmt::format("{}_{}.{}.pt.trace.json", worker.empty() ? "localhost" : worker, process_id,
                     n);
}

std::string step_trace_name(std::int64_t first_step, std::int64_t last_step) {
  return fmt::format("trace_step_{}_{}.json", first_step, last_step);
}

}  // namespace ridge
