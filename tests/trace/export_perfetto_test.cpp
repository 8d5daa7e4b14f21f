#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "ridge/trace/export.h"
#include "tests/base/temporary_directory.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct PerfettoSlice {
  std::string track, category, name;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::vector<std::uint64_t> flows;
  std::map<std::string, std::string> annotations;
};

// What a file says, read as Perfetto's descriptions of its messages have it, which the exporter
// shares no code with but the numbers of fields.
class PerfettoFile {
 public:
  explicit PerfettoFile(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    protozero::pbf_reader trace(text);
    while (trace.next(1)) add_packet(trace.get_message());
    for (const auto& [uuid, open] : open_) EXPECT_TRUE(open.empty()) << "a slice without an end";
  }

  std::map<std::string, std::vector<double>> counters;  // by track
  std::vector<PerfettoSlice> slices;

  std::vector<std::string> on(const std::string& track) const {
    std::vector<std::string> names;
    for (const PerfettoSlice& slice : slices)
      if (slice.track == track) names.push_back(slice.name);
    return names;
  }
  bool has_track(const std::string& name) const {
    return std::ranges::any_of(tracks_,
                               [&](const auto& track) { return track.second.name == name; });
  }
  const PerfettoSlice& named(const std::string& name) const {
    for (const PerfettoSlice& slice : slices)
      if (slice.name == name) return slice;
    throw std::runtime_error("no slice called " + name);
  }

 private:
  struct OfTrack {
    std::string name;
    std::uint64_t parent = 0;
  };

  void add_packet(protozero::pbf_reader packet) {
    std::uint64_t time_ns = 0;
    std::string event;
    while (packet.next()) {
      if (packet.tag() == 8) {
        time_ns = packet.get_uint64();
      } else if (packet.tag() == 11) {
        event = packet.get_string();
      } else if (packet.tag() == 12) {
        add_texts(packet.get_message());
      } else if (packet.tag() == 60) {
        add_track(packet.get_message());
      } else {
        packet.skip();
      }
    }
    if (!event.empty()) add_event(protozero::pbf_reader(event), time_ns);
  }

  void add_texts(protozero::pbf_reader texts) {
    while (texts.next()) {
      std::map<std::uint64_t, std::string>& of_kind = texts_[texts.tag()];
      protozero::pbf_reader one = texts.get_message();
      std::uint64_t id = 0;
      while (one.next()) {
        if (one.tag() == 1)
          id = one.get_uint64();
        else
          EXPECT_TRUE(of_kind.emplace(id, one.get_string()).second) << "a number given twice";
      }
    }
  }

  // By process, "python", and track below it.
  void add_track(protozero::pbf_reader track) {
    std::uint64_t uuid = 0;
    OfTrack of;
    while (track.next()) {
      if (track.tag() == 1) {
        uuid = track.get_uint64();
      } else if (track.tag() == 2) {
        of.name = track.get_string();
      } else if (track.tag() == 5) {
        of.parent = track.get_uint64();
      } else if (track.tag() == 3 || track.tag() == 4) {
        const std::uint32_t name = track.tag() == 3 ? 6 : 5;
        protozero::pbf_reader descriptor = track.get_message();
        while (descriptor.next())
          if (descriptor.tag() == name)
            of.name = descriptor.get_string();
          else
            descriptor.skip();
      } else {
        track.skip();
      }
    }
    EXPECT_TRUE(of.parent == 0 || tracks_.contains(of.parent));
    EXPECT_TRUE(tracks_.emplace(uuid, of).second);
  }

  void add_event(protozero::pbf_reader message, std::uint64_t time_ns) {
    PerfettoSlice slice{.begin_ns = time_ns, .end_ns = time_ns};
    std::int32_t type = 0;
    std::uint64_t uuid = 0;
    double value = 0;
    while (message.next()) {
      switch (message.tag()) {
        case 3:
          slice.category = texts_[1].at(message.get_uint64());
          break;
        case 4:
          add_annotation(message.get_message(), slice);
          break;
        case 9:
          type = message.get_int32();
          break;
        case 10:
          slice.name = texts_[2].at(message.get_uint64());
          break;
        case 11:
          uuid = message.get_uint64();
          break;
        case 22:
          slice.category = message.get_string();
          break;
        case 23:
          slice.name = message.get_string();
          break;
        case 44:
          value = message.get_double();
          break;
        case 47:
          slice.flows.push_back(message.get_fixed64());
          break;
        default:
          ADD_FAILURE() << "field " << message.tag();
          message.skip();
      }
    }
    const OfTrack& track = tracks_.at(uuid);
    EXPECT_GE(time_ns, last_ns_[uuid]) << "on one track the order is that of time";
    last_ns_[uuid] = time_ns;
    if (type == 4) return counters[track.name].push_back(value);
    std::vector<std::size_t>& open = open_[uuid];
    if (type == 1) {
      slice.track = track.name;
      open.push_back(slices.size());
      slices.push_back(slice);
      return;
    }
    ASSERT_EQ(type, 2);
    ASSERT_FALSE(open.empty());
    slices[open.back()].end_ns = time_ns;
    open.pop_back();
  }

  void add_annotation(protozero::pbf_reader message, PerfettoSlice& slice) {
    std::string name, value;
    while (message.next()) {
      if (message.tag() == 1)
        name = texts_[3].at(message.get_uint64());
      else if (message.tag() == 4)
        value = std::to_string(message.get_int64());
      else if (message.tag() == 6)
        value = message.get_string();
      else if (message.tag() == 17)
        value = texts_[29].at(message.get_uint64());
      else
        message.skip();
    }
    slice.annotations[name] = value;
  }

  std::map<std::uint32_t, std::map<std::uint64_t, std::string>> texts_;  // by field
  std::map<std::uint64_t, OfTrack> tracks_;
  std::map<std::uint64_t, std::uint64_t> last_ns_;
  std::map<std::uint64_t, std::vector<std::size_t>> open_;
};

PerfettoFile exported(const Trace& trace) {
  const TemporaryDirectory directory;
  export_perfetto(trace, directory.path / "out.pftrace");
  return PerfettoFile(directory.path / "out.pftrace");
}

TEST(ExportPerfetto, TiesLaunchesToTheirWork) {
  MadeTrace made;
  made.operation("aten::mm", 0, 50, "[[8,4],[4,16]]").launched("gemm", 10, 100, 30);
  const PerfettoFile file = exported(made.read());
  const PerfettoSlice &call = file.named("cudaLaunchKernel"), &mm = file.named("aten::mm");
  const PerfettoSlice* gemm = nullptr;
  for (const PerfettoSlice& slice : file.slices)
    if (slice.track == "stream 7") gemm = &slice;
  ASSERT_TRUE(gemm);
  EXPECT_EQ(gemm->flows, call.flows);
  EXPECT_EQ(call.flows.size(), 1U);
  EXPECT_EQ(gemm->category, "kernel");
  EXPECT_EQ(gemm->annotations.at("operator"), "aten::mm");
  EXPECT_EQ(mm.annotations.at("input shapes"), "[[8,4],[4,16]]");
  EXPECT_EQ(mm.track, "thread 100");
  EXPECT_EQ(mm.begin_ns, 0U);
  EXPECT_EQ(mm.end_ns, 50'000U);
}

TEST(ExportPerfetto, HasTheCriticalPathAndIdleTimeAndFindings) {
  MadeTrace made;
  for (int i = 0; i < 50; ++i) made.launched("tiny", i * 20, i * 20 + 4, 3);
  const PerfettoFile file = exported(made.read());
  std::uint64_t at = 0;
  std::map<std::string, int> kinds;
  for (const PerfettoSlice& slice : file.slices) {
    if (slice.track != "critical path") continue;
    EXPECT_EQ(slice.begin_ns, at) << "stretches follow each other";
    at = slice.end_ns;
    ++kinds[slice.category];
  }
  EXPECT_EQ(at, 987'000U);
  EXPECT_EQ(kinds["compute"], 1);
  EXPECT_EQ(kinds["host"], 49);
  EXPECT_THAT(file.on("why the card was idle"), ::testing::Contains("the host launches too late"));
  EXPECT_THAT(file.on("what would help").at(0), HasSubstr("launch"));
}

// Each stands where it nests; what overlaps goes to a track beside.
TEST(ExportPerfetto, KeepsSlicesThatOverlap) {
  MadeTrace made;
  made.operation("a", 0, 100).operation("b", 50, 100).operation("within b", 120, 10);
  made.operation("no time", 100, 0).operation("after", 160, 5);
  const PerfettoFile file = exported(made.read());
  EXPECT_THAT(file.on("thread 100"), ElementsAre("a", "no time", "within b", "after"));
  EXPECT_THAT(file.on("beside it"), ElementsAre("b"));
  EXPECT_EQ(file.named("b").end_ns, 150'000U);
}

TEST(ExportPerfetto, CountsFromTheFirstTimeIfThatIsBeforeZero) {
  const PerfettoFile file = exported(MadeTrace().operation("early", -50, 20).read());
  EXPECT_EQ(file.named("early").begin_ns, 0U);
}

TEST(ExportPerfetto, NamesTheRankAndTheProcess) {
  MadeTrace made;
  made.launched("gemm", 10, 100, 30);
  made.event(R"({"ph":"M","name":"process_name","pid":100,"tid":0,"args":{"name":"python"}})");
  const std::string text =
      made.text(R"("distributedInfo":{"rank":2},"deviceProperties":[{"id":0,"name":"A card"}],)");
  const PerfettoFile file = exported(read_text(text, "a.json"));
  for (const char* group : {"Ridge: rank 2", "rank 2: python", "rank 2: card 0 (A card)"})
    EXPECT_TRUE(file.has_track(group)) << group;
}

TEST(ExportPerfetto, HasCountersAndMemory) {
  MadeTrace made;
  made.operation("a", 0, 100);
  made.event(R"({"ph":"C","name":"power","pid":100,"tid":0,"ts":10,"args":{"value":250.5}})");
  made.event(R"({"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":100,"tid":100,)"
             R"("ts":5,"args":{"Device Type":1,"Device Id":0,"Addr":1,"Bytes":512,)"
             R"("Total Allocated":512,"Total Reserved":2048}})");
  const PerfettoFile file = exported(made.read());
  EXPECT_THAT(file.counters.at("power"), ElementsAre(250.5));
  EXPECT_THAT(file.counters.at("memory of card 0: allocated"), ElementsAre(512));
  EXPECT_THAT(file.counters.at("memory of card 0: reserved"), ElementsAre(2048));
}

TEST(ExportPerfetto, TakesAnyTrace) {
  EXPECT_TRUE(exported(read_text("[]", "empty.json")).slices.empty());
  MadeTrace made;
  for (int i = 0; i < 300; ++i) made.slice("other", "s" + std::to_string(i), i, 1000);
  EXPECT_EQ(exported(made.read()).slices.size(), 300U) << "more at once than tracks beside";
  made.slice("other", "\\ud800 \\u0000 \\\"\xFF", 0, 1);
  EXPECT_EQ(exported(made.read()).slices.size(), 301U);
}

}  // namespace
}  // namespace ridge::trace
