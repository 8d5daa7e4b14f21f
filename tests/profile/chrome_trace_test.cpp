#include "ridge/profile/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/unary.h"
#include "ridge/profile/timeline.h"
#include "ridge/trace/check/check.h"
#include "tests/base/temporary_directory.h"
#include "tests/dist/ranks.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

using json = nlohmann::json;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNull;

struct Written {
  TemporaryDirectory directory;
  TraceSize size;
  json trace;

  explicit Written(const Recording& recording, const TraceOptions& options = {}) {
    const auto path = directory.path / "trace.json";
    size = write_chrome_trace(path, recording, options);
    EXPECT_EQ(std::filesystem::file_size(path), size.bytes);
    trace = json::parse(std::ifstream(path));  // throws if it is no JSON
    EXPECT_EQ(events().size(), size.events);
  }

  const json& events() const { return trace["traceEvents"]; }

  std::vector<json> of(std::string_view category) const {
    std::vector<json> found;
    for (const json& event : events())
      if (event.value("cat", "") == category) found.push_back(event);
    return found;
  }
};

// Exact, since the text has three decimals.
std::int64_t ns(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

// What slices of one track must do for a viewer to draw them, which adds in doubles.
void expect_nesting(const json& events) {
  std::map<std::int64_t, std::vector<double>> open;  // by thread
  std::map<std::int64_t, double> last;
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    const std::int64_t thread = event["tid"];
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    EXPECT_LE(last[thread], begin);
    last[thread] = begin;
    std::vector<double>& ends = open[thread];
    while (!ends.empty() && end > ends.back()) {
      EXPECT_LE(ends.back(), begin) << event << " crosses the end of another";
      ends.pop_back();
    }
    ends.push_back(end);
  }
}

TEST(ChromeTrace, HasEveryRecordOfARealRun) {
  for (const std::int64_t accumulation : {1, 2}) {
    const RealRecording run(accumulation);
    const Recording& recording = run.recording();
    const Written written(recording);
    expect_nesting(written.events());
    EXPECT_EQ(written.trace["baseTimeNanoseconds"], recording.epoch_ns);
    EXPECT_EQ(written.size.left_out, 0u);

    std::vector<json> nodes = written.of("cpu_op");
    std::erase_if(nodes, [](const json& e) { return !e["args"].contains("node"); });
    ASSERT_EQ(nodes.size(), recording.nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Recording::NodeRun& node = recording.nodes[i];
      EXPECT_EQ(nodes[i]["args"]["node"], node.node);
      EXPECT_EQ(ns(nodes[i]["ts"]), node.begin_ns);
      EXPECT_EQ(ns(nodes[i]["dur"]), node.end_ns - node.begin_ns);
    }
    const std::vector<json> changes = written.of("cpu_instant_event");
    ASSERT_EQ(changes.size(), recording.memory.size());
    for (std::size_t i = 0; i < changes.size(); ++i) {
      EXPECT_EQ(changes[i]["args"]["Bytes"], recording.memory[i].bytes);
      EXPECT_EQ(changes[i]["args"]["Total Allocated"], recording.memory[i].live);
    }
    const std::vector<json> counters = written.of("memory");
    ASSERT_EQ(counters.size(), recording.memory.size());
    for (std::size_t i = 0; i < counters.size(); ++i) {
      const json& args = counters[i]["args"];
      EXPECT_EQ(ns(counters[i]["ts"]), recording.memory[i].time_ns);
      EXPECT_EQ(args["live bytes"], recording.memory[i].live);
      ASSERT_EQ(args["live bytes"].get<std::uint64_t>() + args["free, held"].get<std::uint64_t>(),
                recording.memory[i].reserved);
    }
    std::vector<std::string> annotations;
    for (const json& event : written.of("user_annotation")) annotations.push_back(event["name"]);
    EXPECT_EQ(std::ranges::count(annotations, "ProfilerStep#5"), 1);
    EXPECT_EQ(std::ranges::count(annotations, "forward"), 3 * accumulation);
  }
}

TEST(ChromeTrace, PutsEveryNodeInItsModules) {
  const RealRecording run(1, 1);
  const Written written(run.recording());
  std::map<std::string, std::string> classes;  // forward, by path
  std::vector<std::pair<std::string, std::int64_t>> open;
  for (const json& event : written.events()) {
    if (event["ph"] != "X") continue;
    while (!open.empty() && open.back().second < ns(event["ts"]) + ns(event["dur"]))
      open.pop_back();
    const std::string category = event["cat"];
    if (category == "python_function") {
      const std::string path = event["args"]["path"], name = event["name"];
      open.emplace_back(path, ns(event["ts"]) + ns(event["dur"]));
      if (name.starts_with("nn.Module: ")) {
        EXPECT_TRUE(classes.emplace(path, name).second) << path << " runs once going forward";
        EXPECT_TRUE(event["args"].contains("Python module id"));
      }
    } else if (category == "cpu_op" && event["args"].contains("scope")) {
      const std::string scope = event["args"]["scope"];
      EXPECT_EQ(open.empty() ? "" : open.back().first, scope);
    }
  }
  EXPECT_EQ(classes.at("layers.1.attention"), "nn.Module: Attention_1");
  EXPECT_EQ(classes.at("layers.1"), "nn.Module: Layer_1");
  EXPECT_EQ(classes.at("layers.0.feed_forward"), "nn.Module: FeedForward_0");
}

TEST(ChromeTrace, TiesEveryGradientToItsForwardNode) {
  const RealRecording run(2, 1);
  const Written written(run.recording());
  std::map<std::int64_t, json> by_begin;  // nodes
  std::map<std::int64_t, json> gradients;
  for (const json& event : written.of("cpu_op"))
    (event["args"].contains("node") ? by_begin : gradients)[ns(event["ts"])] = event;
  std::map<std::int64_t, std::int64_t> start;
  std::size_t ends = 0;
  for (const json& flow : written.of("fwdbwd")) {
    if (flow["ph"] == "s") {
      EXPECT_TRUE(start.emplace(flow["id"], ns(flow["ts"])).second) << "an id is used twice";
      continue;
    }
    ++ends;
    ASSERT_EQ(flow["bp"], "e");
    const json& forward = by_begin.at(start.at(flow["id"]));
    const json& backward = gradients.at(ns(flow["ts"]));
    const json& first_node = by_begin.at(ns(flow["ts"]));
    EXPECT_EQ(forward["args"]["scope"], first_node["args"]["scope"]);
    EXPECT_EQ(forward["args"]["Sequence number"], backward["args"]["Sequence number"]);
    const std::string name = camel_case(forward["args"]["operator"].get<std::string>());
    EXPECT_EQ(backward["name"], "autograd::engine::evaluate_function: " + name + "Backward0");
  }
  // Without a flow is what adds up gradients for a reshape, which has no kernel and never runs.
  const auto tied = std::ranges::count_if(
      gradients, [](const auto& g) { return g.second["args"].contains("Sequence number"); });
  EXPECT_EQ(ends, static_cast<std::size_t>(tied));
  // Each forward node with a kernel that autodiff went through, in each of the two batches.
  std::set<NodeId> with_gradient;
  for (const Recording::NodeRun& node : run.recording().nodes)
    if (run.graph.nodes()[node.node].forward != no_node)
      with_gradient.insert(run.graph.nodes()[node.node].forward);
  EXPECT_GE(2 * with_gradient.size(), ends);
  EXPECT_GT(ends, with_gradient.size());
}

TEST(ChromeTrace, NamesProductsAsPyTorchWould) {
  const RealRecording run(1, 1);
  const Written written(run.recording());
  std::set<std::string> names;
  for (const json& event : written.of("cpu_op")) {
    names.insert(event["name"]);
    const json& dims = event["args"].value("Input Dims", json());
    if (event["name"] == "aten::mm") {
      EXPECT_EQ(dims[0][1], dims[1][0]) << event;
      const std::int64_t flops = 2 * dims[0][0].get<std::int64_t>() *
                                 dims[0][1].get<std::int64_t>() * dims[1][1].get<std::int64_t>();
      EXPECT_EQ(event["args"]["flops"], flops);
    }
    if (event["name"] == "aten::bmm") {
      EXPECT_EQ(dims[0][2], dims[1][1]) << event;
    }
  }
  for (const char* name : {"aten::mm", "aten::bmm", "aten::silu", "ridge::rope", "ridge::adamw"})
    EXPECT_TRUE(names.contains(name)) << name;
}

// A recording of one node that runs again and again, in a graph with the names given.
struct Handmade {
  Graph graph;
  Recording recording;

  explicit Handmade(const std::string& scope, const std::string& input, std::int64_t runs = 1) {
    const Value x = graph.input(input, {DType::f32, {4}});
    const Scope inside(graph, scope);
    const Value y = scale(x, 2.0f);
    recording.graph = &graph;
    recording.memory.push_back({0, 1, Phase::forward, false, x.id, 1, 16, 16, 64});
    for (std::int64_t i = 0; i < runs; ++i)
      recording.nodes.push_back({graph.info(y.id).producer, 1, 10 + 10 * i, 15 + 10 * i});
    recording.phases = {{Phase::forward, 1, 5, 10 * runs + 20}};
    recording.steps = {{1, 5, 10 * runs + 30, std::nan("")}};
  }
};

TEST(ChromeTrace, IsValidJsonWhateverTheNamesAre) {
  const std::string control = "a\"b\\c\n\t\x01\x7f</script>";
  for (const std::string& name :
       {control, std::string("😀 ünïcode"), std::string("\xff\xfe broken \xc3"),
        std::string("nul\0inside", 10), std::string(10000, 'x')}) {
    Handmade made(name, name);
    made.recording.device_description = name;
    const Written written(made.recording);
    EXPECT_EQ(written.size.left_out, 0u);
    const bool utf8 = name.find('\xff') == std::string::npos;
    EXPECT_EQ(written.trace["device"] == name, utf8);
    EXPECT_TRUE(written.of("user_annotation").front()["args"].contains("External id"));
    EXPECT_TRUE(written.of("user_annotation").front()["args"].at("loss").is_null());
  }
}

TEST(ChromeTrace, TellsWhatIsAliveFromWhatIsHeldForNothing) {
  const Handmade made("scope", "x");  // 16 bytes of the 64 that are reserved
  const std::vector<json> counters = Written(made.recording).of("memory");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]["args"], json({{"live bytes", 16}, {"free, held", 48}}));
}

// Wherever the limit falls in an event, of which none has 600 bytes.
TEST(ChromeTrace, IsNoLongerThanItsLimit) {
  const Handmade made("scope", "x", 100);
  for (std::uint64_t limit = 20'000; limit < 20'600; limit += 20) {
    const Written cut(made.recording, {.max_bytes = limit});
    EXPECT_GT(cut.size.left_out, 0u);
    EXPECT_LE(cut.size.bytes, limit);
    EXPECT_GT(cut.size.bytes, limit - 5000);
  }
}

TEST(ChromeTrace, SaysWhatItLeftOut) {
  const Handmade made("scope", "x", 20000);
  const Written whole(made.recording), cut(made.recording, {.max_bytes = 1 << 20});
  EXPECT_EQ(whole.size.left_out, 0u);
  EXPECT_LE(cut.size.bytes, std::uint64_t{1} << 20);
  EXPECT_GT(cut.size.bytes, std::uint64_t{1} << 19);
  EXPECT_EQ(cut.size.events + cut.size.left_out, whole.size.events);
  EXPECT_EQ(cut.trace["ridge"]["events_left_out"], cut.size.left_out);
  EXPECT_EQ(whole.of("python_function").size(), 20000u) << "each run of the graph is its own";
  // What is there is the beginning of the whole.
  for (std::size_t i = 0; i < cut.events().size(); ++i)
    ASSERT_EQ(cut.events()[i], whole.events()[i]);
}

TEST(ChromeTrace, LeavesNothingBehindWhereItCannotWrite) {
  const Handmade made("scope", "x");
  EXPECT_THROW(write_chrome_trace("/nonexistent/trace.json", made.recording), IoError);
}

// What `ranks` ranks write together of recordings that have the same and clocks that do not agree:
// that of each is a second ahead of the one before it, and its recording began a millisecond later.
json trace_of_ranks(int ranks, const std::filesystem::path& path,
                    const TraceOptions& options = {}) {
  const RealRecording run(1);
  TraceSize size;
  const RankFaults faults = on_communicators(ranks, [&](Communicator& communicator) {
    Recording own = run.recording();
    std::vector<std::int64_t> ahead;
    for (int rank = 0; rank < ranks; ++rank) ahead.push_back(rank * 1'000'000'000LL);
    own.epoch_ns += communicator.rank() * 1'001'000'000LL;
    const TraceSize written = write_chrome_trace_of_ranks(path, own, ahead, communicator, options);
    if (communicator.rank() == 0) size = written;
  });
  EXPECT_THAT(faults, Each(IsNull()));
  EXPECT_EQ(std::filesystem::file_size(path), size.bytes);
  const json trace = json::parse(std::ifstream(path));
  EXPECT_EQ(trace["traceEvents"].size(), size.events);
  EXPECT_EQ(trace["ridge"]["events_left_out"], size.left_out);
  EXPECT_EQ(trace["baseTimeNanoseconds"], run.recording().epoch_ns);
  return trace;
}

// Events of a rank by its track, without what only names tracks.
std::map<std::int64_t, std::vector<json>> by_process(const json& trace) {
  std::map<std::int64_t, std::vector<json>> events;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] != "M") events[event["pid"]].push_back(event);
  return events;
}

TEST(TraceOfRanks, HasAllOfThemOnOneClock) {
  const TemporaryDirectory directory;
  const json trace = trace_of_ranks(3, directory.path / "all.json");
  const auto events = by_process(trace);
  ASSERT_EQ(events.size(), 3);
  const std::vector<json>& first = events.begin()->second;
  EXPECT_GT(first.size(), 500);
  std::int64_t rank = 0;
  std::set<std::int64_t> flows;
  std::size_t ends_of_flows = 0;
  for (const auto& [process, own] : events) {
    ASSERT_EQ(own.size(), first.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(own[i].value("name", ""), first[i].value("name", ""));
      ASSERT_EQ(ns(own[i]["ts"]) - ns(first[i]["ts"]), rank * 1'000'000) << own[i];
      if (own[i]["ph"] == "s" || own[i]["ph"] == "f")
        flows.insert(own[i]["id"].get<std::int64_t>()), ++ends_of_flows;
    }
    ++rank;
  }
  EXPECT_EQ(flows.size(), ends_of_flows / 2) << "no two ranks share one";
  std::set<std::string> names;
  for (const json& event : trace["traceEvents"])
    if (event["name"] == "process_name") names.insert(event["args"]["name"]);
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "rank 1", "rank 2"}));
}

TEST(TraceOfRanks, GivesEachItsPartOfTheLimit) {
  const TemporaryDirectory directory;
  const json trace = trace_of_ranks(3, directory.path / "all.json", {.max_bytes = 300'000});
  EXPECT_GT(trace["ridge"]["events_left_out"], 100);
  EXPECT_LE(std::filesystem::file_size(directory.path / "all.json"), 300'000);
  const auto events = by_process(trace);
  ASSERT_EQ(events.size(), 3);
  for (const auto& [process, own] : events)
    EXPECT_NEAR(static_cast<double>(own.size()), static_cast<double>(events.begin()->second.size()),
                60);
}

// Else the others would wait until they took the first for lost.
TEST(TraceOfRanks, EndsForAllWhereTheFirstCannotWrite) {
  const RealRecording run(1);
  const std::vector<std::int64_t> ahead(2, 0);
  const RankFaults faults = on_communicators(2, [&](Communicator& communicator) {
    write_chrome_trace_of_ranks("/nonexistent/all.json", run.recording(), ahead, communicator);
  });
  EXPECT_THAT(message_in(faults[0]), HasSubstr("/nonexistent/all.json"));
  EXPECT_THAT(faults[1], IsNull());
}

TEST(ChromeTrace, NamesFilesAsTensorBoardWants) {
  EXPECT_EQ(worker_trace_name("node-7.cluster", 123, 45), "node-7_cluster_123.45.pt.trace.json");
  EXPECT_EQ(worker_trace_name("", 1, 2), "localhost_1.2.pt.trace.json");
  EXPECT_EQ(worker_trace_name("a/b c", 1, 2), "a_b_c_1.2.pt.trace.json");
  EXPECT_EQ(step_trace_name(5, 10), "trace_step_5_10.json");
}

// A trace of a CPU is no food for TraceLens, and has no kernels for HolisticTraceAnalysis.
TEST(ChromeTrace, IsRefusedByNoToolThatNeedsNoGpu) {
  const TemporaryDirectory directory;
  const RealRecording run;
  const auto path = directory.path / "host_1.2.pt.trace.json";
  write_chrome_trace(path, run.recording());
  const trace::TraceCheck check = trace::check_trace(path);
  std::set<std::string> rules;
  for (const trace::TraceVerdict& verdict : check.verdicts) {
    EXPECT_EQ(verdict.accepts(), verdict.consumer != "TraceLens");
    for (const auto& problem : verdict.problems) rules.insert(problem.rule);
  }
  EXPECT_THAT(rules, ::testing::ElementsAre("hta-no-kernels", "tracelens-no-gpu"));
  EXPECT_GT(check.slices, 100u);
}

}  // namespace
}  // namespace ridge
