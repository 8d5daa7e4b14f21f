#include "ridge/trace/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "ridge/base/error.h"
#include "ridge/base/gzip.h"
#include "tests/base/temporary_directory.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string slice(const std::string& name, const std::string& begin, const std::string& duration) {
  return fmt::format(R"({{"ph":"X","name":"{}","ts":{},"dur":{},"pid":1,"tid":2}})", name, begin,
                     duration);
}

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (std::size_t row = 0; row < trace.events.size(); ++row) names.push_back(trace.name(row));
  return names;
}

// Everything a trace has, for comparison.
std::string all_of(const Trace& trace) {
  std::string all = fmt::format("{} {} {} {}\n", trace.event_count, trace.flow_count,
                                trace.memory.size(), trace.properties.size());
  const EventColumns& e = trace.events;
  for (std::size_t row = 0; row < e.size(); ++row) {
    const Track& track = trace.tracks[e.track[row]];
    all += fmt::format("{} {} {}/{} {}+{} {} {} {} {} {}\n", static_cast<int>(e.kind[row]),
                       trace.name(row), track.process, track.thread, e.begin_ns[row],
                       e.duration_ns[row], e.correlation[row], e.external[row], e.bytes[row],
                       trace.texts[e.shape[row]], trace.texts[e.types[row]]);
  }
  return all;
}

// Events of all kinds, with everything in them that looks like the end of an event.
std::string varied_text(int events) {
  std::mt19937 random(7);
  MadeTrace made;
  for (int i = 0; i < events; ++i) {
    const double begin = i * 10, duration = static_cast<double>(random() % 9);
    switch (random() % 7) {
      case 0:
        made.operation(fmt::format("aten::op{}", random() % 5), begin, duration, "[[1, 2], []]");
        break;
      case 1:
        made.launched("kernel<float>", begin, begin + 3, duration);
        break;
      case 2:
        made.slice("cpu_op", R"(a},{\"b\\)", begin, duration);
        break;
      case 3:
        made.slice("cpu_op", "nested", begin, duration,
                   R"({"list":[{"x":1},{"y":[{}, {}]}, {"z":2}, {"name":"no event"}]})");
        break;
      case 4:
        made.event(
            fmt::format(R"({{"ph":"s","cat":"ac2g","id":{},"ts":{},"pid":1,"tid":1}})", i, begin));
        break;
      case 5:
        made.event(fmt::format(
            R"({{"ph":"i","name":"[memory]","ts":{},"pid":1,"tid":1,"args":{{"Bytes":-8,"Total Allocated":64,"Device Type":1,"Device Id":2}}}})",
            begin));
        break;
      default:
        made.annotation("step },\\n{ \\\"ph\\\"", begin, duration);
        break;
    }
  }
  return made.text(R"("schemaVersion": 1, "list": [{"a": 1}, {"b": 2}], )",
                   R"(, "traceName": "x")");
}

TEST(ReadTrace, IsTheSameHoweverItIsCutAndOnAnyNumberOfThreads) {
  const std::string text = varied_text(400);
  const Trace whole = made_of(text, {.threads = 1, .progress = {}});
  EXPECT_EQ(whole.event_count,
            400 + whole.events.size() - 400 + whole.flow_count + whole.memory.size());
  EXPECT_FALSE(whole.damage.any());
  EXPECT_EQ(whole.properties.size(), 3U);
  for (const std::size_t bytes : {64, 100, 333, 1000, 4096, 50'000})
    for (const int threads : {1, 2, 4}) {
      const Trace cut = made_of(text, {.threads = threads, .piece_bytes = bytes, .progress = {}});
      EXPECT_EQ(all_of(cut), all_of(whole)) << bytes << " bytes, " << threads << " threads";
      EXPECT_FALSE(cut.damage.any()) << bytes;
    }
}

TEST(ReadTrace, TakesEachFormOfAList) {
  const std::string a = slice("a", "1", "2"), b = slice("b", "3", "4");
  for (const std::string& text :
       {"[" + a + "," + b + "]", "[" + a + ",\n" + b + "\n", "[" + a + "," + b + ",\n",
        "\xEF\xBB\xBF{\"traceEvents\" : [ " + a + " , " + b + " ] }",
        "{\"other\":{\"traceEvents\":0},\"traceEvents\":[" + a + "," + b + "],\"more\":[{},{}]}"}) {
    const Trace trace = made_of(text);
    EXPECT_THAT(names_of(trace), ElementsAre("a", "b")) << text;
    EXPECT_FALSE(trace.damage.any()) << text;
  }
}

TEST(ReadTrace, CutsAlsoWhereNoEventBeginsAsMostDo) {
  std::string text = "[";
  for (int i = 0; i < 500; ++i)
    text += fmt::format(R"({}{{"sf":1,"ph":"X","name":"n{}","ts":{},"dur":1,"pid":1,"tid":1}})",
                        i == 0 ? "" : ",", i, i);
  const Trace trace = made_of(text + "]", {.piece_bytes = 256, .progress = {}});
  EXPECT_EQ(trace.events.size(), 500U);
  EXPECT_FALSE(trace.damage.any());
}

TEST(ReadTrace, KeepsNanoseconds) {
  const Trace trace =
      made_of("[" + slice("exact", "1712195495519689.123", "0.001") + "," +
              slice("integer", "5", "1e3") + "," + slice("rounded", "1.0005", "0.0004") + "," +
              slice("text", "\"7.25\"", "\"1\"") + "," + slice("negative", "-3.5", "-1") + "," +
              slice("none", "null", "1") + "," + slice("beyond", "1e300", "1") + "]");
  EXPECT_THAT(names_of(trace), ElementsAre("exact", "integer", "rounded", "text", "negative"));
  EXPECT_THAT(trace.events.begin_ns, ElementsAre(1712195495519689123, 5000, 1001, 7250, -3500));
  EXPECT_THAT(trace.events.duration_ns, ElementsAre(1, 1'000'000, 0, 1000, 0));
}

TEST(ReadTrace, UnpacksGzipAndReadsAsFarAsItGoes) {
  const std::string text = varied_text(3000);
  const std::string packed = gzipped(text);
  EXPECT_EQ(all_of(made_of(packed)), all_of(made_of(text)));
  const Trace cut =
      made_of(packed.substr(0, packed.size() / 2), {.piece_bytes = 4096, .progress = {}});
  EXPECT_GT(cut.event_count, 800U);
  EXPECT_LT(cut.event_count, 3000U);
  EXPECT_EQ(cut.damage.unpacking, "cut short");
  std::string damaged = packed;
  for (std::size_t i = packed.size() / 2; i < packed.size() / 2 + 40; ++i) damaged[i] ^= 0x55;
  EXPECT_EQ(made_of(damaged, {.piece_bytes = 4096, .progress = {}}).damage.unpacking, "damaged");
}

TEST(ReadTrace, ReadsWhatACutFileHas) {
  const std::string text = varied_text(12);
  const std::size_t begin = text.find("traceEvents") + 15, end = text.rfind(']');
  std::uint64_t most = 0;
  for (std::size_t bytes = begin; bytes <= end; ++bytes) {
    try {
      const Trace trace = made_of(text.substr(0, bytes), {.piece_bytes = 512, .progress = {}});
      EXPECT_GE(trace.event_count, most) << bytes;
      most = trace.event_count;
      EXPECT_TRUE(trace.damage.cut_short) << bytes;
      EXPECT_LT(trace.damage.lost_bytes, 250U) << bytes << ": more than one event";
    } catch (const FormatError&) {
      EXPECT_EQ(most, 0U) << bytes;
    }
  }
  EXPECT_EQ(most, made_of(text).event_count);
}

TEST(ReadTrace, LosesOnlyTheEventThatIsDamaged) {
  std::string text = varied_text(200);
  const std::uint64_t events = made_of(text).event_count;
  std::size_t at = text.find("\"dur\"", text.size() / 2);
  text.replace(at, 5, "\"dur }");
  const Trace trace = made_of(text, {.piece_bytes = 3000, .progress = {}});
  EXPECT_EQ(trace.event_count, events - 1);
  EXPECT_LE(trace.damage.first_at, at);
  EXPECT_GE(trace.damage.first_at + trace.damage.lost_bytes, at);
  EXPECT_LT(trace.damage.lost_bytes, 300U);
  EXPECT_FALSE(trace.damage.cut_short);
}

TEST(ReadTrace, ReplacesBytesThatNoJsonMayHave) {
  std::string text = "[" +
                     slice(
                         "a\xFF"
                         "b\x01",
                         "1", "2") +
                     ",\n" + slice("c", "3", "4") + "]";
  const Trace trace = made_of(text);
  EXPECT_THAT(names_of(trace), ElementsAre("a?b ", "c"));
  EXPECT_EQ(trace.damage.repaired_bytes, 2U);
  EXPECT_EQ(trace.damage.lost_bytes, 0U);
}

TEST(ReadTrace, ReadsFilesAsItReadsTexts) {
  const TemporaryDirectory directory;
  const std::string text = varied_text(300);
  std::uint64_t last = 0;
  for (const bool packed : {false, true}) {
    const std::string file = packed ? gzipped(text) : text;
    std::ofstream(directory.path / "x", std::ios::binary) << file;
    const Trace trace =
        read(directory.path / "x",
             {.threads = 2, .piece_bytes = 1000, .progress = [&](std::uint64_t b) { last = b; }});
    EXPECT_EQ(all_of(trace), all_of(made_of(text)));
    EXPECT_EQ(trace.bytes, text.size());
    EXPECT_EQ(last, file.size());
  }
}

TEST(ReadTrace, UnescapesNames) {
  const Trace trace =
      made_of(R"([{"ph":"X","name":"a\"\\\u00e9\n","ts":1,"dur":2,"pid":"Spans","tid":"a b"}])");
  EXPECT_THAT(names_of(trace), ElementsAre("a\"\\\u00e9\n"));
  EXPECT_EQ(trace.tracks.at(0).process, "Spans");
  EXPECT_EQ(trace.tracks.at(0).thread, "a b");
}

TEST(ReadTrace, PairsBeginsAndEnds) {
  const auto half = [](char phase, const std::string& name, int time, int thread) {
    return fmt::format(R"({{"ph":"{}","name":"{}","ts":{},"pid":1,"tid":{},"cat":"cpu_op"}})",
                       phase, name, time, thread);
  };
  const Trace trace =
      made_of("[" + half('B', "outer", 1, 1) + "," + half('B', "other", 2, 2) + "," +
              half('B', "inner", 3, 1) + "," + half('E', "", 5, 1) + "," + half('E', "", 9, 1) +
              "," + half('E', "", 4, 2) + "," + half('E', "alone", 20, 1) + "]");
  EXPECT_THAT(names_of(trace), ElementsAre("other", "inner", "outer"));
  EXPECT_THAT(trace.events.duration_ns, ElementsAre(2000, 2000, 8000));
}

TEST(ReadTrace, KnowsLabelsPropertiesAndMemory) {
  const Trace trace = made_of(
      R"({"distributedInfo": {"rank": 3}, "traceEvents": [
        {"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"python"}},
        {"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"main"}},
        {"ph":"i","name":"[memory]","ts":4,"pid":1,"tid":7,
         "args":{"Bytes":512,"Total Allocated":1024,"Total Reserved":2048,"Device Type":1,"Device Id":2}},
        {"ph":"X","cat":"cpu_op","name":"x","ts":1,"dur":1,"pid":1,"tid":7}], "traceName": "t"})");
  EXPECT_EQ(trace.properties.at("distributedInfo"), R"({"rank": 3})");
  EXPECT_EQ(trace.properties.at("traceName"), "\"t\"");
  EXPECT_EQ(trace.process_names.at("1"), "python");
  EXPECT_EQ(trace.tracks.at(trace.events.track.at(0)).thread_name, "main");
  ASSERT_EQ(trace.memory.size(), 1U);
  EXPECT_EQ(trace.memory[0].device, 2);
  EXPECT_EQ(trace.memory[0].bytes, 512);
  EXPECT_EQ(trace.memory[0].allocated, 1024);
  EXPECT_EQ(trace.memory[0].reserved, 2048);
}

TEST(ReadTrace, TellsWorkOfACardByItsStream) {
  const Trace trace = MadeTrace().kernel("k", 1, 2, 5, 9, "gpu_memcpy", 64).read();
  EXPECT_EQ(trace.events.kind.at(0), EventKind::copy);
  EXPECT_EQ(trace.events.bytes.at(0), 64);
  EXPECT_EQ(trace.events.correlation.at(0), 5);
  EXPECT_EQ(trace.tracks.at(trace.events.track.at(0)).thread, "9");
  EXPECT_TRUE(trace.tracks.at(trace.events.track.at(0)).device);
}

// What is refused, and with which words.
std::string refusal_of(const std::string& text) {
  try {
    made_of(text);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "read";
}

TEST(ReadTrace, RefusesWhatIsNoTrace) {
  EXPECT_EQ(refusal_of(""), "\"made.json\" is no trace: there is no list of events");
  EXPECT_THAT(refusal_of("{\"a\": [1, 2]}"), HasSubstr("there is no list of events"));
  EXPECT_THAT(refusal_of("hello"), HasSubstr("there is no list of events"));
  EXPECT_EQ(refusal_of("[{\"ph\""), "\"made.json\" has no event that can be read");
  EXPECT_EQ(refusal_of("[]"), "read");
  EXPECT_THROW(read("/no/such/file"), IoError);
  EXPECT_THROW(read("/"), IoError);
}

}  // namespace
}  // namespace ridge::trace
