#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/profile/perfetto_packets.h"
#include "ridge/trace/counters.h"
#include "ridge/trace/critical_path.h"
#include "ridge/trace/export.h"
#include "ridge/trace/report.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

namespace pf = perfetto;
using EventBuilder = protozero::pbf_builder<pf::TrackEvent>;
using TrackBuilder = protozero::pbf_builder<pf::Track>;

// The numbers of annotations' names, which stand once in the file.
enum class Key : std::uint8_t {
  input_shapes = 1,
  input_types,
  grid,
  block,
  bytes,
  operation,
  step,
  waited_for,
  remedy,
  see,
  saves,
  next,
  blocking,
};
constexpr const char* key_names[] = {
    "",     "input shapes", "input types", "grid",          "block",      "bytes",     "operator",
    "step", "waited for",   "what to do",  "how to see it", "would save", "next work", "waited in"};

// The number of a process or a thread, if it is one; 0 is the idle one's there.
std::optional<std::int32_t> number_of(const std::string& text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number <= 0) return std::nullopt;
  return number;
}

// The rows of each track, outer slices before those within them.
std::vector<std::vector<Row>> rows_by_track(const Trace& trace) {
  std::vector<std::vector<Row>> rows(trace.tracks.size());
  for (Row row = 0; row < trace.events.size(); ++row) rows[trace.events.track[row]].push_back(row);
  for (std::vector<Row>& of_track : rows) sort_outer_first(trace.events, of_track);
  return rows;
}

// Perfetto counts time without a sign.
std::int64_t zero_of(const Trace& trace) {
  std::int64_t first = 0;
  for (const std::int64_t begin : trace.events.begin_ns) first = std::min(first, begin);
  for (const CounterPoint& point : trace.counters) first = std::min(first, point.time_ns);
  for (const MemoryInstant& instant : trace.memory) first = std::min(first, instant.time_ns);
  return first;
}

class PerfettoExport {
 public:
  PerfettoExport(const Trace& trace, pf::PacketFile& file)
      : trace_(trace),
        nesting_(trace),
        work_(work_of(trace, nesting_)),
        report_(report_of(trace, work_, nesting_)),
        file_(file),
        zero_ns_(zero_of(trace)),
        named_(trace.texts.size()),
        quoted_(trace.texts.size()) {}

  void write() {
    clear_state();
    if (!work_.of_host && !work_.device.empty()) add_path();
    add_findings();
    if (!work_.of_host) add_idle();
    find_launches();
    const auto rows = rows_by_track(trace_);
    for (std::uint32_t track = 0; track < rows.size(); ++track)
      if (!rows[track].empty()) add_rows(track, rows[track]);
    add_counters();
    add_memory();
  }

 private:
  // A track of the file on which slices nest: a thread, a stream, or what else overlaps there.
  struct Lane {
    std::uint64_t uuid;
    std::vector<std::int64_t> ends;  // of the slices that are open
  };

  template <class Fill>
  std::uint64_t track(std::uint64_t parent, std::string_view name, const Fill& fill);
  std::uint64_t track(std::uint64_t parent, std::string_view name) {
    return track(parent, name, [](TrackBuilder&) {});
  }
  std::uint64_t group(bool device, const std::string& process);
  std::uint64_t ridge_group();
  std::uint64_t track_of(std::uint32_t number);
  std::uint64_t counter_track(std::uint64_t parent, const std::string& name, bool in_bytes);

  template <class Fill>
  void event(std::int32_t type, std::uint64_t on_track, std::int64_t time_ns, const Fill& fill);
  template <class Fill>
  void slice(std::uint64_t on_track, const Interval& time, const Fill& fill) {
    event(pf::slice_begin, on_track, time.begin_ns, fill);
    event(pf::slice_end, on_track, time.end_ns, [](EventBuilder&) {});
  }
  void count(std::uint64_t on_track, std::int64_t time_ns, double value) {
    event(pf::counter, on_track, time_ns, [&](EventBuilder& event) {
      event.add_double(pf::TrackEvent::double_counter_value, value);
    });
  }

  void clear_state();
  void intern(pf::Interned field, std::uint64_t id, std::string_view text);
  void name(EventBuilder& event, TextPool::Id id);
  void name(EventBuilder& event, const std::string& text);
  void annotate(EventBuilder& event, Key key, TextPool::Id text);
  void annotate(EventBuilder& event, Key key, const std::string& text);
  void annotate(EventBuilder& event, Key key, std::int64_t value);

  void add_path();
  void add_findings();
  void add_idle();
  void find_launches();
  void add_rows(std::uint32_t track, std::span<const Row> rows);
  Lane& lane_for(std::vector<Lane>& lanes, std::int64_t begin, std::int64_t end);
  void close(Lane& lane, std::int64_t until);
  void describe(EventBuilder& event, Row row);
  void add_counters();
  void add_memory();

  const Trace& trace_;
  const HostNesting nesting_;
  const Work work_;
  const Report report_;
  pf::PacketFile& file_;
  std::int64_t zero_ns_;
  std::uint64_t last_uuid_ = 0, ridge_group_ = 0;
  std::map<std::pair<bool, std::string>, std::uint64_t> groups_;  // of cards or hosts, by process
  std::vector<bool> named_, quoted_;  // texts that the file has as names, and in annotations
  // By row: the pieces of work that a call launched, in work_.device, and the piece that a row is.
  std::vector<std::uint32_t> first_launched_, next_launched_, piece_of_;
  std::string packet_, body_, interned_;
};

// Those that follow are the file's only state: categories, and names of annotations.
void PerfettoExport::clear_state() {
  for (int kind = 0; kind <= static_cast<int>(EventKind::overhead); ++kind)
    intern(pf::Interned::categories, static_cast<std::uint64_t>(kind) + 1,
           name_of(static_cast<EventKind>(kind)));
  for (std::size_t key = 1; key < std::size(key_names); ++key)
    intern(pf::Interned::annotation_names, key, key_names[key]);
  packet_.clear();
  {
    protozero::pbf_builder<pf::Packet> packet(packet_);
    packet.add_uint32(pf::Packet::trusted_packet_sequence_id, pf::sequence_id);
    packet.add_uint32(pf::Packet::sequence_flags, pf::state_cleared);
    packet.add_message(pf::Packet::interned_data, interned_);
  }
  interned_.clear();
  file_.add(packet_);
}

// Numbers a text, in the packet that is written next.
void PerfettoExport::intern(pf::Interned field, std::uint64_t id, std::string_view text) {
  protozero::pbf_builder<pf::Interned> interned(interned_);
  protozero::pbf_builder<pf::InternedText> one(interned, field);
  const std::string valid = pf::as_utf8(std::string(text));
  one.add_uint64(pf::InternedText::iid, id);
  one.add_string(pf::InternedText::text, valid);
}

template <class Fill>
std::uint64_t PerfettoExport::track(std::uint64_t parent, std::string_view name, const Fill& fill) {
  packet_.clear();
  {
    protozero::pbf_builder<pf::Packet> packet(packet_);
    packet.add_uint32(pf::Packet::trusted_packet_sequence_id, pf::sequence_id);
    TrackBuilder descriptor(packet, pf::Packet::track_descriptor);
    descriptor.add_uint64(pf::Track::uuid, ++last_uuid_);
    if (parent != 0) descriptor.add_uint64(pf::Track::parent_uuid, parent);
    if (!name.empty()) descriptor.add_string(pf::Track::name, pf::as_utf8(std::string(name)));
    fill(descriptor);
  }
  file_.add(packet_);
  return last_uuid_;
}

// The packet's events come before the texts that they need: the body is built first.
template <class Fill>
void PerfettoExport::event(std::int32_t type, std::uint64_t on_track, std::int64_t time_ns,
                           const Fill& fill) {
  body_.clear();
  {
    EventBuilder event(body_);
    event.add_int32(pf::TrackEvent::type, type);
    event.add_uint64(pf::TrackEvent::track_uuid, on_track);
    fill(event);
  }
  packet_.clear();
  {
    protozero::pbf_builder<pf::Packet> packet(packet_);
    packet.add_uint64(pf::Packet::timestamp, static_cast<std::uint64_t>(time_ns - zero_ns_));
    packet.add_uint32(pf::Packet::trusted_packet_sequence_id, pf::sequence_id);
    packet.add_uint32(pf::Packet::sequence_flags, pf::needs_state);
    if (!interned_.empty()) packet.add_message(pf::Packet::interned_data, interned_);
    packet.add_message(pf::Packet::track_event, body_);
  }
  interned_.clear();
  file_.add(packet_);
}

void PerfettoExport::name(EventBuilder& event, TextPool::Id id) {
  if (id == 0) return;
  if (!named_[id]) intern(pf::Interned::names, id, trace_.texts[id]);
  named_[id] = true;
  event.add_uint64(pf::TrackEvent::name_iid, id);
}

void PerfettoExport::name(EventBuilder& event, const std::string& text) {
  event.add_string(pf::TrackEvent::name, pf::as_utf8(text));
}

void PerfettoExport::annotate(EventBuilder& event, Key key, TextPool::Id text) {
  if (text == 0) return;
  if (!quoted_[text]) intern(pf::Interned::annotation_texts, text, trace_.texts[text]);
  quoted_[text] = true;
  protozero::pbf_builder<pf::Annotation> annotation(event, pf::TrackEvent::debug_annotations);
  annotation.add_uint64(pf::Annotation::name_iid, static_cast<std::uint64_t>(key));
  annotation.add_uint64(pf::Annotation::string_value_iid, text);
}

void PerfettoExport::annotate(EventBuilder& event, Key key, const std::string& text) {
  protozero::pbf_builder<pf::Annotation> annotation(event, pf::TrackEvent::debug_annotations);
  annotation.add_uint64(pf::Annotation::name_iid, static_cast<std::uint64_t>(key));
  annotation.add_string(pf::Annotation::string_value, pf::as_utf8(text));
}

void PerfettoExport::annotate(EventBuilder& event, Key key, std::int64_t value) {
  protozero::pbf_builder<pf::Annotation> annotation(event, pf::TrackEvent::debug_annotations);
  annotation.add_uint64(pf::Annotation::name_iid, static_cast<std::uint64_t>(key));
  annotation.add_int64(pf::Annotation::int_value, value);
}

// What the report says, above the tracks of the trace.
std::uint64_t PerfettoExport::ridge_group() {
  if (ridge_group_ == 0)
    ridge_group_ =
        track(0, "Ridge: " + (report_.rank ? fmt::format("rank {}", *report_.rank) : report_.file));
  return ridge_group_;
}

// The tracks of a card, or of a process of the host.
std::uint64_t PerfettoExport::group(bool device, const std::string& process) {
  std::uint64_t& uuid = groups_[{device, process}];
  if (uuid != 0) return uuid;
  const std::string rank = report_.rank ? fmt::format("rank {}: ", *report_.rank) : "";
  if (device) {
    const std::string card = report_.device.empty() ? "" : fmt::format(" ({})", report_.device);
    return uuid = track(0, fmt::format("{}card {}{}", rank, process, card));
  }
  const auto known = trace_.process_names.find(process);
  const std::string name =
      rank + (known == trace_.process_names.end() ? "process " + process : known->second);
  const std::optional<std::int32_t> pid = number_of(process);
  if (!pid) return uuid = track(0, name);
  return uuid = track(0, "", [&](TrackBuilder& t) {
           protozero::pbf_builder<pf::Process> descriptor(t, pf::Track::process);
           descriptor.add_int32(pf::Process::pid, *pid);
           descriptor.add_string(pf::Process::process_name, pf::as_utf8(name));
         });
}

std::uint64_t PerfettoExport::track_of(std::uint32_t number) {
  const Track& of = trace_.tracks[number];
  const std::uint64_t parent = group(of.device, of.process);
  if (of.device)
    return track(parent, of.thread_name.empty() ? "stream " + of.thread : of.thread_name);
  const std::string name = of.thread_name.empty() ? "thread " + of.thread : of.thread_name;
  const auto pid = number_of(of.process), tid = number_of(of.thread);
  if (!pid || !tid) return track(parent, name);
  return track(parent, "", [&](TrackBuilder& t) {
    protozero::pbf_builder<pf::Thread> descriptor(t, pf::Track::thread);
    descriptor.add_int32(pf::Thread::pid, *pid);
    descriptor.add_int32(pf::Thread::tid, *tid);
    descriptor.add_string(pf::Thread::thread_name, pf::as_utf8(name));
  });
}

std::uint64_t PerfettoExport::counter_track(std::uint64_t parent, const std::string& name,
                                            bool in_bytes) {
  return track(parent, name, [&](TrackBuilder& t) {
    protozero::pbf_builder<pf::Counter>(t, pf::Track::counter)
        .add_int32(pf::Counter::unit, in_bytes ? pf::size_in_bytes : 0);
  });
}

void PerfettoExport::add_path() {
  const CriticalPath path = critical_path(trace_, work_, nesting_);
  const std::uint64_t on = track(ridge_group(), "critical path");
  for (const PathPiece& piece : path.pieces) {
    const PathShare& share = path.shares[piece.share];
    slice(on, {piece.begin_ns, piece.end_ns}, [&](EventBuilder& event) {
      event.add_string(pf::TrackEvent::categories, path_kind_name(share.kind));
      name(event, share.name);
      if (piece.waited_for != no_row)
        annotate(event, Key::waited_for, trace_.events.name[piece.waited_for]);
    });
  }
}

// Findings are of the whole trace: each lasts as long as that, one within the other.
void PerfettoExport::add_findings() {
  if (report_.findings.empty()) return;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = zero_ns_;
  for (Row row = 0; row < trace_.events.size(); ++row) {
    begin = std::min(begin, trace_.events.begin_ns[row]);
    end = std::max(end, trace_.events.end_ns(row));
  }
  const std::uint64_t on = track(ridge_group(), "what would help");
  for (const Finding& finding : report_.findings)
    event(pf::slice_begin, on, begin, [&](EventBuilder& event) {
      event.add_string(pf::TrackEvent::categories, finding.rule);
      name(event, finding.what);
      annotate(event, Key::saves,
               fmt::format("{} at most, {} of the span", time(finding.gain_us),
                           part_of(finding.gain_part, 1)));
      annotate(event, Key::remedy, finding.remedy);
      annotate(event, Key::see, finding.see);
    });
  for (std::size_t i = 0; i < report_.findings.size(); ++i)
    event(pf::slice_end, on, end, [](EventBuilder&) {});
}

void PerfettoExport::add_idle() {
  if (report_.idle.stretches.empty()) return;
  const std::uint64_t on = track(ridge_group(), "why the card was idle");
  for (const IdleStretch& stretch : report_.idle.stretches)
    slice(on, stretch.time, [&](EventBuilder& event) {
      event.add_string(pf::TrackEvent::categories, idle_cause_name(stretch.cause));
      name(event, idle_cause_sentence(stretch.cause));
      if (stretch.next != no_row) annotate(event, Key::next, trace_.events.name[stretch.next]);
      if (stretch.blocking != no_row)
        annotate(event, Key::blocking, trace_.events.name[stretch.blocking]);
    });
}

void PerfettoExport::find_launches() {
  first_launched_.assign(trace_.events.size(), no_row);
  piece_of_.assign(trace_.events.size(), no_row);
  next_launched_.assign(work_.device.size(), no_row);
  if (work_.of_host) return;
  for (std::uint32_t i = static_cast<std::uint32_t>(work_.device.size()); i-- > 0;) {
    const DeviceWork& one = work_.device[i];
    piece_of_[one.row] = i;
    if (one.call == no_row) continue;
    next_launched_[i] = std::exchange(first_launched_[one.call], i);
  }
}

void PerfettoExport::close(Lane& lane, std::int64_t until) {
  while (!lane.ends.empty() && lane.ends.back() <= until) {
    event(pf::slice_end, lane.uuid, lane.ends.back(), [](EventBuilder&) {});
    lane.ends.pop_back();
  }
}

// The first lane in which a slice nests.
PerfettoExport::Lane& PerfettoExport::lane_for(std::vector<Lane>& lanes, std::int64_t begin,
                                               std::int64_t end) {
  for (Lane& lane : lanes) {
    close(lane, begin);
    if (lane.ends.empty() || end <= lane.ends.back()) return lane;
  }
  constexpr std::size_t most_lanes = 64;
  if (lanes.size() < most_lanes) lanes.push_back({track(lanes.front().uuid, "beside it"), {}});
  return lanes.back();
}

void PerfettoExport::add_rows(std::uint32_t number, std::span<const Row> rows) {
  std::vector<Lane> lanes = {{track_of(number), {}}};
  for (const Row row : rows) {
    const std::int64_t begin = trace_.events.begin_ns[row], end = trace_.events.end_ns(row);
    Lane& lane = lane_for(lanes, begin, end);
    event(pf::slice_begin, lane.uuid, begin, [&](EventBuilder& event) { describe(event, row); });
    // Of more slices at once than there are lanes, one ends with that around it.
    lane.ends.push_back(lane.ends.empty() ? end : std::min(end, lane.ends.back()));
  }
  for (Lane& lane : lanes) close(lane, std::numeric_limits<std::int64_t>::max());
}

void PerfettoExport::describe(EventBuilder& event, Row row) {
  const EventColumns& events = trace_.events;
  const EventKind kind = events.kind[row];
  const bool on_card = is_on_device(kind);
  event.add_uint64(pf::TrackEvent::category_iids, static_cast<std::uint64_t>(kind) + 1);
  name(event, events.name[row]);
  annotate(event, on_card ? Key::grid : Key::input_shapes, events.shape[row]);
  annotate(event, on_card ? Key::block : Key::input_types, events.types[row]);
  if (events.bytes[row] != EventColumns::none) annotate(event, Key::bytes, events.bytes[row]);
  // Each launch and its work have the number of the work as a flow, which must not be 0.
  const auto flow = [&](std::uint32_t piece) {
    event.add_fixed64(pf::TrackEvent::flow_ids, std::uint64_t{piece} + 1);
  };
  for (std::uint32_t i = first_launched_[row]; i != no_row; i = next_launched_[i]) flow(i);
  if (piece_of_[row] == no_row) return;
  const DeviceWork& one = work_.device[piece_of_[row]];
  if (one.step >= 0) annotate(event, Key::step, one.step);
  if (one.call == no_row) return;
  flow(piece_of_[row]);
  if (const Row operation = nesting_.operation_of(one.call); operation != no_row)
    annotate(event, Key::operation, events.name[operation]);
}

void PerfettoExport::add_counters() {
  std::vector<std::uint64_t> tracks;
  for (const CounterSeries& series : trace_.counter_series) {
    const std::string name = name_of(trace_, series);
    tracks.push_back(counter_track(group(false, series.process), name, name.ends_with("(B)")));
  }
  for (const CounterPoint& point : trace_.counters)
    count(tracks[point.series], point.time_ns, point.value);
}

void PerfettoExport::add_memory() {
  std::map<std::int32_t, std::pair<std::uint64_t, std::uint64_t>> tracks;  // allocated, reserved
  for (const MemoryInstant& instant : trace_.memory) {
    auto [at, is_new] = tracks.try_emplace(instant.device);
    if (is_new) {
      const std::string of =
          instant.device < 0 ? "host memory" : fmt::format("memory of card {}", instant.device);
      at->second = {counter_track(ridge_group(), of + ": allocated", true),
                    counter_track(ridge_group(), of + ": reserved", true)};
    }
    count(at->second.first, instant.time_ns, static_cast<double>(instant.allocated));
    count(at->second.second, instant.time_ns, static_cast<double>(instant.reserved));
  }
}

}  // namespace

void export_perfetto(const Trace& trace, const std::filesystem::path& file) {
  pf::PacketFile packets(file, std::numeric_limits<std::uint64_t>::max());
  PerfettoExport(trace, packets).write();
  packets.commit();
}

}  // namespace ridge::trace
