#include "ridge/profile/perfetto.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "ridge/ops/unary.h"
#include "tests/base/temporary_directory.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

struct TrackEvent {
  std::uint64_t time_ns = 0, track = 0;
  std::int64_t type = 0, counter = 0;
  double number = 0;
  std::string category, name;
  std::vector<std::uint64_t> flows;
};

struct PerfettoFile {
  std::map<std::uint64_t, std::string> tracks;
  std::vector<TrackEvent> events;
  std::uint64_t packets = 0;

  explicit PerfettoFile(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    protozero::pbf_reader trace(text);
    while (trace.next()) {
      EXPECT_EQ(trace.tag(), 1u);
      add_packet(trace.get_message());
    }
  }

  void add_packet(protozero::pbf_reader packet) {
    std::uint64_t time_ns = 0, sequence = 0, flags = 0;
    while (packet.next()) {
      switch (packet.tag()) {
        case 8:
          time_ns = packet.get_uint64();
          break;
        case 10:
          sequence = packet.get_uint32();
          break;
        case 13:
          flags = packet.get_uint32();
          break;
        case 11:
          add_event(packet.get_message(), time_ns);
          break;
        case 60:
          add_track(packet.get_message());
          break;
        default:
          ADD_FAILURE() << "field " << packet.tag();
          packet.skip();
      }
    }
    EXPECT_EQ(sequence, 1u);
    EXPECT_EQ(flags, packets == 0 ? 1u : 0u) << "the first packet says that the state is cleared";
    ++packets;
  }

  void add_track(protozero::pbf_reader track) {
    std::uint64_t uuid = 0;
    std::string name;
    while (track.next()) {
      if (track.tag() == 1)
        uuid = track.get_uint64();
      else if (track.tag() == 2)
        name = track.get_string();
      else
        track.skip();
    }
    EXPECT_TRUE(tracks.emplace(uuid, name).second);
  }

  void add_event(protozero::pbf_reader message, std::uint64_t time_ns) {
    TrackEvent event{.time_ns = time_ns};
    while (message.next()) {
      switch (message.tag()) {
        case 9:
          event.type = message.get_int32();
          break;
        case 11:
          event.track = message.get_uint64();
          break;
        case 22:
          event.category = message.get_string();
          break;
        case 23:
          event.name = message.get_string();
          break;
        case 30:
          event.counter = message.get_int64();
          break;
        case 44:
          event.number = message.get_double();
          break;
        case 47:
          event.flows.push_back(message.get_fixed64());
          break;
        default:
          message.skip();
      }
    }
    EXPECT_TRUE(tracks.contains(event.track)) << "an event on a track that nobody described";
    events.push_back(event);
  }
};

constexpr std::int64_t begin = 1, end = 2, counter_value = 4;

// Every slice ends, the inner before the outer, and none before it begins.
void expect_nesting(const std::vector<TrackEvent>& events) {
  std::map<std::uint64_t, int> depth;
  std::map<std::uint64_t, std::uint64_t> last;
  for (const TrackEvent& event : events) {
    EXPECT_LE(last[event.track], event.time_ns) << event.name;
    last[event.track] = event.time_ns;
    if (event.type == begin) ++depth[event.track];
    depth[event.track] -= event.type == end;
    EXPECT_GE(depth[event.track], 0);
  }
  for (const auto& [track, open] : depth) EXPECT_EQ(open, 0) << "track " << track;
}

TEST(Perfetto, HasEveryRecordOfARealRun) {
  const TemporaryDirectory directory;
  const RealRecording run(2, 2);
  const Recording& recording = run.recording();
  const auto path = directory.path / "trace.pftrace";
  const TraceSize size = write_perfetto(path, recording);
  const PerfettoFile file(path);
  EXPECT_EQ(size.bytes, std::filesystem::file_size(path));
  EXPECT_EQ(size.events, file.packets);
  EXPECT_EQ(size.left_out, 0u);
  expect_nesting(file.events);

  std::vector<TrackEvent> nodes;
  std::vector<std::int64_t> live;
  std::set<std::string> modules;
  std::map<std::uint64_t, std::vector<std::string>> flows;
  for (const TrackEvent& event : file.events) {
    if (event.type == begin && event.category == "cpu_op") nodes.push_back(event);
    if (event.type == begin && event.category == "module") modules.insert(event.name);
    if (event.type == counter_value && file.tracks.at(event.track) == "memory: live bytes")
      live.push_back(event.counter);
    for (const std::uint64_t id : event.flows) flows[id].push_back(event.category);
  }
  ASSERT_EQ(nodes.size(), recording.nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i)
    EXPECT_EQ(nodes[i].time_ns,
              static_cast<std::uint64_t>(recording.epoch_ns + recording.nodes[i].begin_ns));
  ASSERT_EQ(live.size(), recording.memory.size());
  for (std::size_t i = 0; i < live.size(); ++i)
    EXPECT_EQ(static_cast<std::uint64_t>(live[i]), recording.memory[i].live);
  EXPECT_TRUE(modules.contains("layers.1.attention.q_proj"));
  EXPECT_FALSE(flows.contains(0));
  std::size_t tied = 0;
  for (const auto& [id, ends] : flows)
    tied += ends == std::vector<std::string>{"cpu_op", "gradient"};
  EXPECT_GT(tied, 100u);
}

TEST(Perfetto, ClosesWhatIsOpenWhereItIsCut) {
  const TemporaryDirectory directory;
  const RealRecording run;
  const auto path = directory.path / "trace.pftrace";
  const TraceSize size = write_perfetto(path, run.recording(), {.max_bytes = 20000});
  const PerfettoFile file(path);
  expect_nesting(file.events);
  EXPECT_GT(size.left_out, 0u);
  EXPECT_EQ(size.events, file.packets);
  EXPECT_GT(size.bytes, 19000u);
  EXPECT_LT(size.bytes, 21000u);
  EXPECT_EQ(file.events.back().name,
            "cut here: " + std::to_string(size.left_out) + " events left out");
}

TEST(Perfetto, TakesAnyName) {
  const TemporaryDirectory directory;
  for (const std::string& name : {std::string("\xff\xfe\xc3"), std::string("nul\0 \"😀\"\n", 12)}) {
    Graph graph;
    const Scope scope(graph, name);
    const Value y = scale(graph.input(name, {DType::f32, {4}}), 2.0f);
    Recording recording;
    recording.graph = &graph;
    recording.nodes = {{graph.info(y.id).producer, 1, 10, 20}};
    const auto path = directory.path / "trace.pftrace";
    write_perfetto(path, recording);
    const PerfettoFile file(path);
    expect_nesting(file.events);
    const std::string expected = name.front() == '\xff' ? "???" : name;
    std::multiset<std::string> names;
    for (const TrackEvent& event : file.events) names.insert(event.name);
    EXPECT_EQ(names.count(expected), 1u) << "the module";
  }
}

}  // namespace
}  // namespace ridge
