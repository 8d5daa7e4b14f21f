#include "ridge/profile/perfetto.h"

#include <fmt/format.h>

#include "ridge/graph/op_rules.h"
#include "ridge/profile/aten.h"
#include "ridge/profile/perfetto_packets.h"
#include "ridge/profile/system_events.h"
#include "ridge/profile/timeline.h"

namespace ridge {
namespace {

using Kind = TimelineItem::Kind;
using namespace perfetto;

// Tracks, by uuid.
constexpr std::uint64_t process_track = 1, thread_track = 2, live_track = 3, reserved_track = 4,
                        loss_track = 5, allocation_track = 6,
                        first_card_track = std::uint64_t{1} << 32,
                        first_system_track = std::uint64_t{3} << 32,
                        first_activity_track = std::uint64_t{2} << 32;
// Ids of the flows from calls to what they made the device do; those of nodes are smaller.
constexpr std::uint64_t correlation_flow = std::uint64_t{1} << 40;

class PerfettoTrace {
 public:
  PerfettoTrace(const Recording& recording, PacketFile& file)
      : recording_(recording),
        graph_(*recording.graph),
        file_(file),
        timeline_(recording),
        node_texts_(graph_.nodes().size()) {}

  void write() {
    tracks();
    std::int64_t end_ns = 0;  // of what was written
    timeline_.walk([&](const TimelineItem& item) {
      add(item);
      if (file_.size().left_out == 0) end_ns = item.begin_ns;
    });
    close_slices(0);
    activities();
    card();
    system();
    if (file_.size().left_out == 0) return;
    event(
        instant, allocation_track, end_ns, "ridge",
        fmt::format("cut here: {} events left out", file_.size().left_out), [](EventBuilder&) {},
        true);
  }

 private:
  using EventBuilder = protozero::pbf_builder<TrackEvent>;
  using TrackBuilder = protozero::pbf_builder<Track>;

  template <class Fill>
  void track(std::uint64_t uuid, std::string_view name, const Fill& fill) {
    packet_.clear();
    {
      protozero::pbf_builder<Packet> packet(packet_);
      packet.add_uint32(Packet::trusted_packet_sequence_id, sequence_id);
      if (uuid == process_track) packet.add_uint32(Packet::sequence_flags, state_cleared);
      TrackBuilder descriptor(packet, Packet::track_descriptor);
      descriptor.add_uint64(Track::uuid, uuid);
      if (!name.empty()) descriptor.add_string(Track::name, name.data(), name.size());
      fill(descriptor);
    }
    file_.add(packet_);
  }

  void tracks() {
    const auto pid = static_cast<std::int32_t>(recording_.process_id);
    const auto below_process = [](TrackBuilder& t) {
      t.add_uint64(Track::parent_uuid, process_track);
    };
    track(process_track, "", [&](TrackBuilder& t) {
      protozero::pbf_builder<Process> process(t, Track::process);
      process.add_int32(Process::pid, pid);
      process.add_string(Process::process_name, "ridge");
    });
    track(thread_track, "", [&](TrackBuilder& t) {
      t.add_uint64(Track::parent_uuid, process_track);
      protozero::pbf_builder<Thread> thread(t, Track::thread);
      thread.add_int32(Thread::pid, pid);
      thread.add_int32(Thread::tid, static_cast<std::int32_t>(recording_.thread_id));
      thread.add_string(Thread::thread_name,
                        recording_.on_device_time ? "operators, by the GPU's clock" : "executor");
    });
    const auto bytes = [&](TrackBuilder& t) {
      below_process(t);
      protozero::pbf_builder<Counter>(t, Track::counter).add_int32(Counter::unit, size_in_bytes);
    };
    track(live_track, "memory: live bytes", bytes);
    track(reserved_track, "memory: reserved bytes", bytes);
    track(loss_track, "loss", [&](TrackBuilder& t) {
      below_process(t);
      protozero::pbf_builder<Counter>(t, Track::counter).add_int32(Counter::unit, 0);
    });
    track(allocation_track, "allocations", below_process);
  }

  // Whether there was room for it.
  template <class Fill>
  bool event(std::int32_t type, std::uint64_t on_track, std::int64_t time_ns,
             std::string_view category, std::string_view name, const Fill& fill,
             bool always = false) {
    packet_.clear();
    {
      protozero::pbf_builder<Packet> packet(packet_);
      packet.add_uint64(Packet::timestamp,
                        static_cast<std::uint64_t>(recording_.epoch_ns + time_ns));
      packet.add_uint32(Packet::trusted_packet_sequence_id, sequence_id);
      EventBuilder track_event(packet, Packet::track_event);
      track_event.add_int32(TrackEvent::type, type);
      track_event.add_uint64(TrackEvent::track_uuid, on_track);
      if (!category.empty())
        track_event.add_string(TrackEvent::categories, category.data(), category.size());
      if (!name.empty()) track_event.add_string(TrackEvent::name, name.data(), name.size());
      fill(track_event);
    }
    return file_.add(packet_, type == slice_end || always);
  }

  void end_slice(std::uint64_t on_track, std::int64_t time_ns) {
    event(slice_end, on_track, time_ns, "", "", [](EventBuilder&) {});
  }

  // Ends what is open on the executor's thread, down to `depth`.
  void close_slices(std::size_t depth) {
    while (open_.size() > depth) {
      if (open_.back().written) end_slice(thread_track, open_.back().end_ns);
      open_.pop_back();
    }
  }

  template <class Fill>
  void slice(const TimelineItem& item, std::string_view category, std::string_view name,
             const Fill& fill) {
    close_slices(item.depth);
    const bool written = event(slice_begin, thread_track, item.begin_ns, category, name, fill);
    open_.push_back({item.end_ns, written});
  }

  static void annotate(EventBuilder& event, std::string_view name, std::int64_t value) {
    protozero::pbf_builder<Annotation> annotation(event, TrackEvent::debug_annotations);
    annotation.add_string(Annotation::name, name.data(), name.size());
    annotation.add_int64(Annotation::int_value, value);
  }
  static void annotate(EventBuilder& event, std::string_view name, std::string_view value) {
    protozero::pbf_builder<Annotation> annotation(event, TrackEvent::debug_annotations);
    annotation.add_string(Annotation::name, name.data(), name.size());
    annotation.add_string(Annotation::string_value, value.data(), value.size());
  }

  // Flows tie a node to what differentiates it. Its id must not be 0.
  static void tie(EventBuilder& event, std::size_t forward_run) {
    if (forward_run != TimelineItem::no_run)
      event.add_fixed64(TrackEvent::flow_ids, forward_run + 1);
  }

  void add(const TimelineItem& item) {
    const auto nothing = [](EventBuilder&) {};
    switch (item.kind) {
      case Kind::step:
        return add_step(item);
      case Kind::phase:
        return slice(item, "user_annotation", name_of(item.phase), nothing);
      case Kind::module:
        return slice(item, "module", as_utf8(timeline_.modules().modules[item.index].path),
                     nothing);
      case Kind::gradient:
        return slice(item, "gradient",
                     fmt::format("gradient of {}", name_of(*graph_.nodes()[item.index].op)),
                     [&](EventBuilder& event) { tie(event, item.forward_run); });
      case Kind::node:
        return add_node(item);
      case Kind::memory:
        return add_memory(item);
    }
  }

  void add_step(const TimelineItem& item) {
    const Recording::Step& step = recording_.steps[item.index];
    slice(item, "user_annotation", fmt::format("ProfilerStep#{}", step.step), [](EventBuilder&) {});
    event(counter, loss_track, step.begin_ns, "", "", [&](EventBuilder& event) {
      event.add_double(TrackEvent::double_counter_value, step.loss);
    });
  }

  void add_node(const TimelineItem& item) {
    const NodeId id = recording_.nodes[item.index].node;
    const Node& node = graph_.nodes()[id];
    NodeText& text = node_texts_[id];
    if (text.name.empty()) text = describe(node);
    slice(item, "cpu_op", text.name, [&](EventBuilder& event) {
      annotate(event, "operator", name_of(*node.op));
      annotate(event, "scope", text.scope);
      annotate(event, "inputs", text.inputs);
      annotate(event, "flops", text.cost.flops);
      annotate(event, "bytes", text.cost.bytes());
      tie(event, item.forward_run);
    });
  }

  // What is the same whenever the node runs.
  struct NodeText {
    std::string name, scope, inputs;
    Cost cost;
  };
  NodeText describe(const Node& node) const {
    NodeText text{.name = aten_call(graph_, node).name,
                  .scope = as_utf8(graph_.scope_name(node.scope)),
                  .cost = cost(graph_, node)};
    for (const ValueId input : node.inputs)
      text.inputs += (text.inputs.empty() ? "" : ", ") + graph_.info(input).type.to_string();
    return text;
  }

  void add_memory(const TimelineItem& item) {
    const Recording::MemoryChange& change = recording_.memory[item.index];
    const auto count = [&](std::uint64_t on_track, std::uint64_t bytes) {
      event(counter, on_track, change.time_ns, "", "", [&](EventBuilder& event) {
        event.add_int64(TrackEvent::counter_value, static_cast<std::int64_t>(bytes));
      });
    };
    count(live_track, change.live);
    count(reserved_track, change.reserved);
    const ValueId owner = change.workspace ? graph_.nodes()[change.owner].outputs[0] : change.owner;
    event(instant, allocation_track, change.time_ns, "memory",
          (change.workspace ? "workspace of " : "") + as_utf8(display_name(graph_, owner)),
          [&](EventBuilder& event) { annotate(event, "bytes", change.bytes); });
  }

  // What the device did, on a track for each stream, and the calls that asked for it; both of one
  // correlation are tied by a flow. What overlaps on a stream goes to further tracks.
  void activities() {
    struct Lane {
      std::uint32_t stream;
      bool device;
      std::int64_t end_ns;
    };
    std::vector<Lane> lanes;
    const auto lane_of = [&](const Activity& a, std::int64_t begin_ns) {
      const auto free = std::ranges::find_if(lanes, [&](const Lane& lane) {
        return lane.stream == a.stream && lane.device == a.on_device() && lane.end_ns <= begin_ns;
      });
      if (free != lanes.end()) return static_cast<std::size_t>(free - lanes.begin());
      lanes.push_back({a.stream, a.on_device(), 0});
      track(first_activity_track + lanes.size() - 1,
            fmt::format("{} {}", a.on_device() ? "GPU stream" : "calls of thread", a.stream),
            [](TrackBuilder& t) { t.add_uint64(Track::parent_uuid, process_track); });
      return lanes.size() - 1;
    };
    for (const Activity& a : recording_.activities) {
      if (a.kind == Activity::Kind::overhead) continue;
      const std::size_t lane = lane_of(a, a.begin_ns);
      lanes[lane].end_ns = a.end_ns;
      const bool written =
          event(slice_begin, first_activity_track + lane, a.begin_ns, category(a),
                as_utf8(demangled(recording_.activity_names[a.name])), [&](EventBuilder& event) {
                  describe(event, a);
                  if (a.correlation != 0)
                    event.add_fixed64(TrackEvent::flow_ids, correlation_flow | a.correlation);
                });
      if (written) end_slice(first_activity_track + lane, a.end_ns);
    }
  }

  static std::string_view category(const Activity& activity) {
    switch (activity.kind) {
      case Activity::Kind::kernel:
        return "kernel";
      case Activity::Kind::copy:
        return "gpu_memcpy";
      case Activity::Kind::fill:
        return "gpu_memset";
      default:
        return "call";
    }
  }

  void describe(EventBuilder& event, const Activity& a) const {
    if (a.node != no_node) {
      const Node& node = graph_.nodes()[a.node];
      annotate(event, "operator", name_of(*node.op));
      annotate(event, "scope", as_utf8(graph_.scope_name(node.scope)));
    }
    if (a.bytes > 0) annotate(event, "bytes", static_cast<std::int64_t>(a.bytes));
    if (a.kind != Activity::Kind::kernel) return;
    annotate(event, "grid", fmt::format("{} x {} x {}", a.grid[0], a.grid[1], a.grid[2]));
    annotate(event, "block", fmt::format("{} x {} x {}", a.block[0], a.block[1], a.block[2]));
    annotate(event, "registers per thread", a.registers);
    annotate(event, "shared memory", a.static_shared + a.dynamic_shared);
    if (const double occupancy = theoretical_occupancy(recording_.processor, a); occupancy > 0)
      annotate(event, "theoretical occupancy", fmt::format("{:.0f} %", 100 * occupancy));
  }

  // The state of the card, on counter tracks.
  void card() {
    if (recording_.card.empty()) return;
    struct Series {
      std::string_view name;
      double (*value)(const CardState&);
    };
    constexpr Series all[] = {
        {"GPU: SM clock (MHz)", [](const CardState& s) -> double { return s.sm_mhz; }},
        {"GPU: memory clock (MHz)", [](const CardState& s) -> double { return s.memory_mhz; }},
        {"GPU: power (W)", [](const CardState& s) { return s.power_w; }},
        {"GPU: temperature (C)", [](const CardState& s) -> double { return s.temperature_c; }},
        {"GPU: busy (%)", [](const CardState& s) -> double { return s.busy_percent; }}};
    for (std::uint64_t uuid = first_card_track; const auto& [name, value] : all) {
      track(uuid, name, [](TrackBuilder& t) {
        t.add_uint64(Track::parent_uuid, process_track);
        protozero::pbf_builder<Counter>(t, Track::counter).add_int32(Counter::unit, 0);
      });
      for (const CardState& state : recording_.card)
        event(counter, uuid, state.time_ns, "", "", [&](EventBuilder& event) {
          event.add_double(TrackEvent::double_counter_value, value(state));
        });
      ++uuid;
    }
  }

  // The counters of the machine while steps were recorded, on a track each.
  void system() {
    if (!recording_.system || recording_.steps.empty()) return;
    const SystemSamples& samples = *recording_.system;
    for (std::size_t s = 0; s < samples.series.size(); ++s) {
      const std::uint64_t uuid = first_system_track + s;
      track(uuid, counter_name(samples.series[s]), [](TrackBuilder& t) {
        t.add_uint64(Track::parent_uuid, process_track);
        protozero::pbf_builder<Counter>(t, Track::counter).add_int32(Counter::unit, 0);
      });
      for (const SystemPoint& point : points_of(samples, s))
        if (point.end_ns >= recording_.steps.front().begin_ns &&
            point.begin_ns <= recording_.steps.back().end_ns)
          event(counter, uuid, std::max(point.begin_ns, recording_.steps.front().begin_ns), "", "",
                [&](EventBuilder& event) {
                  event.add_double(TrackEvent::double_counter_value, point.value);
                });
    }
  }

  struct OpenSlice {
    std::int64_t end_ns;
    bool written;
  };

  const Recording& recording_;
  const Graph& graph_;
  PacketFile& file_;
  Timeline timeline_;
  std::vector<OpenSlice> open_;
  std::vector<NodeText> node_texts_;  // by NodeId, once run
  std::string packet_;                // being written
};

}  // namespace

TraceSize write_perfetto(const std::filesystem::path& path, const Recording& recording,
                         const TraceOptions& options) {
  PacketFile file(path, options.max_bytes);
  // Nodes that nobody launched one by one have times on the device's clock alone.
  const bool replayed = !recording.replays.empty() && !recording.activities.empty();
  const Recording on_device = replayed ? device_time(recording) : Recording();
  PerfettoTrace(replayed ? on_device : recording, file).write();
  file.commit();
  return file.size();
}

}  // namespace ridge
