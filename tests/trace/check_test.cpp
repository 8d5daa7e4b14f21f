// Each rule by which other tools read a trace or refuse it, on a trace that has one fault. What
// each tool does with these traces was found by running it
// (tests/profile/consumers/trace_tools.py).

#include "ridge/trace/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/gzip.h"
#include "ridge/trace/check/rules.h"

namespace ridge::trace {
namespace {

using json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* worker = "host_1.2.pt.trace.json";
constexpr const char *chrome = "chrome://tracing", *tensorboard = "torch-tb-profiler",
                     *hta = "HolisticTraceAnalysis", *tracelens = "TraceLens";

// Where the events of good_trace() are.
enum Place : std::size_t { process, step, next_step, op, gradient, launch, begin, end, kernel };

// A trace that every tool reads and shows whole.
json good_trace() {
  return json::parse(R"({"distributedInfo": {"rank": 0}, "traceEvents": [
    {"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"python"}},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":100,"dur":90.5},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":1,"tid":1,"ts":200,"dur":90.5},
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":110,"dur":40,
     "args":{"Input Dims":[[2]],"Sequence number":7}},
    {"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: A","pid":1,"tid":2,
     "ts":160,"dur":9,"args":{"Sequence number":7}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":115,"dur":5,
     "args":{"correlation":1000000}},
    {"ph":"s","cat":"ac2g","name":"ac2g","id":1000000,"pid":1,"tid":1,"ts":115},
    {"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","id":1000000,"pid":0,"tid":7,"ts":130},
    {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":130,"dur":20,
     "args":{"device":0,"stream":7,"correlation":1000000}}]})");
}

// With a space before the rank, for which one tool looks.
std::string text_of(const json& trace) {
  std::string text = trace.dump();
  const std::size_t rank = text.find("\"rank\":");
  return rank == text.npos ? text : text.insert(rank + std::string_view("\"rank\":").size(), " ");
}

TraceCheck check(const json& trace) { return check_trace(text_of(trace), worker); }

json with(const char* event) {
  json trace = good_trace();
  trace["traceEvents"].push_back(json::parse(event));
  return trace;
}

template <class Value>
json changed(Place place, const char* member, const Value& value) {
  json trace = good_trace();
  trace["traceEvents"][place][member] = value;
  return trace;
}
json without(Place place, const char* member) {
  json trace = good_trace();
  trace["traceEvents"][place].erase(member);
  return trace;
}
template <class Value>
json argument(Place place, const char* key, const Value& value) {
  json trace = good_trace();
  trace["traceEvents"][place]["args"][key] = value;
  return trace;
}
// Without the events from one to another, which is kept.
json cut(Place from, std::size_t to) {
  json trace = good_trace();
  json& events = trace["traceEvents"];
  events.erase(events.begin() + from, events.begin() + static_cast<std::ptrdiff_t>(to));
  return trace;
}

// "tool" if all of its versions refuse the trace; else "tool version" for each that does.
std::vector<std::string> refusing(const TraceCheck& result) {
  std::vector<std::string> tools;
  for (const TraceVerdict& verdict : result.verdicts) {
    const std::vector<std::string> versions = verdict.refusing();
    if (!versions.empty() && versions.size() == verdict.tried.size())
      tools.push_back(verdict.consumer);
    else
      for (const std::string& version : versions) tools.push_back(verdict.consumer + " " + version);
  }
  return tools;
}

std::set<std::string> rules_in(const TraceCheck& result) {
  std::set<std::string> rules;
  for (const TraceVerdict& verdict : result.verdicts)
    for (const TraceVerdict::Problem& problem : verdict.problems) rules.insert(problem.rule);
  return rules;
}

struct Case {
  std::string text;
  std::set<std::string> rules;        // those that speak of it, and no others
  std::vector<std::string> refusing;  // what the tools did
  std::string file = worker;
  bool compressed = false;
};

const std::string old_hta_2 = "HolisticTraceAnalysis 0.5.0 with pandas 2.3.3",
                  old_hta_3 = "HolisticTraceAnalysis 0.5.0 with pandas 3.1.1",
                  new_hta = "HolisticTraceAnalysis 0.6.1 with pandas 3.1.1";

Case of(const json& trace, std::set<std::string> rules, std::vector<std::string> refusing) {
  return {.text = text_of(trace), .rules = std::move(rules), .refusing = std::move(refusing)};
}

// Faults of the file: its name, its compression, its JSON.
std::vector<Case> file_cases() {
  const std::string good = text_of(good_trace());
  const auto replaced = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  return {
      {good, {"tb-file-name", "hta-file-name", "tracelens-file-name"}, {hta, tracelens}, "a.trace"},
      {good, {"tb-file-name"}, {}, "trace_step_5_10.json"},
      {good, {"tracelens-file-name"}, {tracelens}, "a.pt.trace.json.x.gz", true},
      {good,
       {"tb-compression", "hta-compression", "tracelens-compression"},
       {tensorboard, hta, tracelens},
       worker,
       true},
      {good,
       {"tb-compression", "hta-compression", "tracelens-compression"},
       {tensorboard, hta, tracelens},
       "a.pt.trace.json.gz"},
      {good, {}, {}, "a.pt.trace.json.gz", true},
      {replaced("[[2]]", "[[NaN]]"),
       {"chrome-json", "tb-numbers", "tracelens-json"},
       {chrome, tracelens}},
      {replaced("aten::mm", "aten\n::mm"),
       {"chrome-json", "hta-control", "tracelens-json"},
       {chrome, hta, tracelens}},
      {replaced("aten::mm", "aten\xff::mm"),
       {"tb-utf8", "hta-utf8", "tracelens-json"},
       {tensorboard, hta, tracelens}},
      {"\xef\xbb\xbf" + good, {"hta-byte-order-mark", "tracelens-json"}, {hta, tracelens}},
      {text_of(good_trace()["traceEvents"]),
       {"tb-list", "hta-list", "hta-rank", "tracelens-list"},
       {tensorboard, hta, tracelens}},
      {replaced("\"rank\": 0", "\"rank\":0"), {"hta-rank"}, {}},
  };
}

// Faults in the members of one event.
std::vector<Case> event_cases() {
  return {
      of(with("null"), {"chrome-null", "tb-object", "hta-object", "tracelens-object"},
         {chrome, tensorboard, hta, tracelens}),
      of(without(op, "name"),
         {"chrome-name", "tb-late-name", "tb-name", "hta-no-name", "tracelens-call-tree",
          "tracelens-no-name"},
         {chrome, tensorboard, old_hta_2, old_hta_3, tracelens}),
      of(changed(op, "name", 3),
         {"chrome-name", "tb-late-name", "tb-name", "hta-name", "tracelens-call-tree",
          "tracelens-name"},
         {chrome, tensorboard, hta, tracelens}),
      of(changed(op, "name", ""), {}, {}),
      of(without(kernel, "name"),
         {"chrome-name", "tb-late-name", "tb-name", "hta-no-name", "hta-kernel-name",
          "tracelens-no-name"},
         {chrome, tensorboard, old_hta_2, old_hta_3, tracelens}),
      of(changed(op, "name", "a\x01"), {"tracelens-worksheet"}, {tracelens}),
      of(without(gradient, "pid"), {"chrome-process", "tracelens-operator"}, {chrome}),
      of(without(op, "args"),
         {"tracelens-operator", "tracelens-launcher", "tracelens-shapes", "tracelens-backward"},
         {tracelens}),
      of(without(op, "ph"),
         {"chrome-phase", "tracelens-phase", "tracelens-shapes", "tracelens-backward"},
         {tracelens}),
      of(without(op, "cat"), {"tb-category", "tracelens-shapes", "tracelens-backward"},
         {tensorboard}),
      of(without(op, "dur"), {"chrome-times", "tb-times", "tracelens-call-tree"},
         {tensorboard, tracelens}),
      of(changed(op, "ts", "110"),
         {"chrome-times", "tb-times", "hta-times", "tracelens-times", "tracelens-call-tree"},
         {tensorboard, hta, tracelens}),
      of(without(kernel, "dur"),
         {"chrome-times", "tb-times", "hta-no-kernels", "tracelens-kernel-times"},
         {tensorboard, tracelens}),
      of(changed(op, "ts", 1e25), {"tb-huge"}, {tensorboard}),
      of(changed(gradient, "tid", "main"), {"tb-thread"}, {tensorboard}),
      of(changed(gradient, "tid", "2"), {}, {}),
      of(changed(gradient, "args", nullptr), {"tb-args", "tracelens-args", "tracelens-backward"},
         {tensorboard, tracelens}),
      of(with(R"({"ph":"M","name":"my_own","pid":1,"tid":1,"args":{}})"), {"tracelens-metadata"},
         {tracelens}),
      of(with(R"({"ph":"M","name":"process_name","pid":1,"tid":1})"),
         {"chrome-metadata", "tracelens-metadata"}, {chrome, tracelens}),
  };
}

// Faults of steps, streams, correlations and devices.
std::vector<Case> profiler_cases() {
  json slices_alone = good_trace(), no_columns = good_trace(), nothing = good_trace();
  for (json& event : slices_alone["traceEvents"]) event.erase("args");
  for (json& event : no_columns["traceEvents"]) event.erase("cat");
  nothing["traceEvents"].clear();
  json null_beside_text = argument(gradient, "stream", nullptr);
  null_beside_text["traceEvents"][kernel]["args"]["stream"] = "7";
  json mistaken = argument(gradient, "stream", 7);
  json other = changed(launch, "name", "cuLaunchKernel");
  other["traceEvents"][launch]["cat"] = "cuda_driver";
  return {
      of(changed(step, "name", "ProfilerStep"), {"hta-step"}, {hta}),
      of(changed(step, "name", "ProfilerStep#last"), {"tb-step", "hta-step"}, {tensorboard, hta}),
      of(cut(step, op), {"tb-no-steps", "hta-steps"}, {}),
      of(cut(next_step, op), {"hta-steps"}, {}),
      of(argument(launch, "correlation", "first"),
         {"hta-correlation", "hta-no-kernels", "tracelens-no-links"}, {hta, tracelens}),
      of(argument(gradient, "correlation", nullptr), {}, {}),
      of(argument(gradient, "stream", nullptr), {}, {}),
      of(null_beside_text, {"hta-null-stream"}, {old_hta_2, old_hta_3}),
      of(argument(kernel, "stream", 0), {"hta-stream-0"}, {}),
      of(argument(kernel, "device", "cuda:0"), {"tb-device", "tb-device-process"}, {tensorboard}),
      of(argument(kernel, "device", 3), {"tb-device-process"}, {}),
      of(mistaken, {"hta-triton-operators"}, {}),
      of(other, {"hta-launch-statistics"}, {}),
      of(slices_alone,
         {"chrome-metadata", "hta-arguments", "hta-no-kernels", "tracelens-metadata",
          "tracelens-launch-args", "tracelens-no-links", "tracelens-operator", "tracelens-shapes",
          "tracelens-backward"},
         {chrome, hta, tracelens}),
      of(no_columns,
         {"tb-category", "hta-columns", "hta-no-kernels", "hta-steps", "tracelens-no-gpu"},
         {tensorboard, hta, tracelens}),
      of(nothing,
         {"chrome-nothing", "tb-no-steps", "hta-columns", "hta-no-kernels", "hta-steps",
          "tracelens-no-gpu"},
         {chrome, hta, tracelens}),
  };
}

// Faults of kernels, and of what leads to them.
std::vector<Case> kernel_cases() {
  json small = good_trace();
  for (const Place place : {launch, kernel}) small["traceEvents"][place]["args"]["correlation"] = 3;
  for (const Place place : {begin, end}) small["traceEvents"][place]["id"] = 3;
  json far = small;  // more events before the kernel than eight bits count
  for (int i = 0; i < 150; ++i)
    far["traceEvents"].insert(far["traceEvents"].begin() + op, good_trace()["traceEvents"][0]);
  json graph = cut(begin, kernel);
  graph["traceEvents"][launch]["name"] = "cudaGraphLaunch";
  json unlinked = good_trace();
  unlinked["traceEvents"].push_back(json::parse(
      R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":160,"dur":2,
          "args":{"device":0,"stream":7,"correlation":5}})"));
  // From 130.5 us to 130.75 us, begins up and ends down: from 131 to 130.
  json negative = changed(kernel, "dur", 0.25);
  negative["traceEvents"][kernel]["ts"] = 130.5;
  json one_of_two = good_trace();
  one_of_two["traceEvents"].push_back(negative["traceEvents"][kernel]);
  one_of_two["traceEvents"].back()["ts"] = 160.5;
  return {
      of(cut(kernel, kernel + 1), {"hta-no-kernels", "tracelens-no-gpu"}, {tracelens}),
      of(cut(begin, kernel), {"tracelens-no-links"}, {tracelens}),
      of(cut(begin, end), {"chrome-flows", "tracelens-no-links"}, {tracelens}),
      of(with(R"({"ph":"s","cat":"ac2g","name":"ac2g","id":5,"pid":1,"tid":1,"ts":112})"),
         {"chrome-flows"}, {}),
      of(with(R"({"ph":"X","cat":"cuda_sync","name":"Stream Sync","pid":0,"tid":7,"ts":155,"dur":2,
                  "args":{"device":0,"stream":7,"correlation":1000000}})"),
         {"tracelens-waits", "tracelens-no-links"}, {tracelens}),
      of(without(begin, "id"), {"chrome-flows", "tracelens-flow-id", "tracelens-no-links"},
         {tracelens}),
      of(graph, {"hta-launch-statistics"}, {}),
      of(unlinked, {"tracelens-unlinked"}, {}),
      of(small, {}, {}),
      of(far, {"hta-small-correlations"}, {old_hta_3, new_hta}),
      of(negative, {"hta-rounding", "hta-breakdown"}, {}),
      of(one_of_two, {"hta-rounding", "tracelens-unlinked"}, {}),
  };
}

// Slices that are not within each other, and members whose lack leaves tables empty.
std::vector<Case> nesting_cases() {
  json no_shapes = good_trace(), alone = good_trace();
  no_shapes["traceEvents"][op]["args"].erase("Input Dims");
  alone["traceEvents"][gradient]["args"].erase("Sequence number");
  return {
      of(with(R"({"ph":"X","cat":"user_annotation","name":"a","pid":1,"tid":1,"ts":140,"dur":20})"),
         {"perfetto-nesting"}, {}),
      of(with(R"({"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":140,"dur":20,
                   "args":{}})"),
         {"perfetto-nesting", "tracelens-bleeding"}, {}),
      of(with(R"({"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":3,"ts":140,"dur":20,
                   "args":{}})"),
         {}, {}),
      of(with(R"({"ph":"X","cat":"python_function","name":"nn.Module: A_0","pid":1,"tid":1,"ts":140,
                  "dur":20,"args":{"Python id":1,"Python module id":0}})"),
         {"perfetto-nesting", "tb-modules"}, {}),
      of(no_shapes, {"tracelens-shapes"}, {}),
      of(alone, {"tracelens-backward"}, {}),
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& some :
       {file_cases(), event_cases(), profiler_cases(), kernel_cases(), nesting_cases()})
    cases.insert(cases.end(), some.begin(), some.end());
  return cases;
}

TEST(TraceCheck, FindsNothingWrongWithAGoodTrace) {
  EXPECT_THAT(rules_in(check(good_trace())), IsEmpty());
}

std::string file_of(const Case& given) {
  return given.compressed ? gzipped(given.text) : given.text;
}

TEST(TraceCheck, SaysWhatTheToolsDid) {
  for (const Case& given : all_cases()) {
    const TraceCheck result = check_trace(file_of(given), given.file);
    EXPECT_EQ(rules_in(result), given.rules) << given.file << ": " << given.text;
    EXPECT_EQ(refusing(result), given.refusing) << given.file << ": " << given.text;
  }
}

// A piece of the text holds an event or two, and is often cut within one.
TEST(TraceCheck, SaysTheSameHoweverTheTextIsCut) {
  for (const Case& given : all_cases()) {
    const std::string file = file_of(given);
    const std::string whole = trace_check_json(check_trace(file, given.file));
    for (const std::size_t bytes : {64, 150, 333, 700})
      EXPECT_EQ(
          trace_check_json(check_trace(file, given.file, {.piece_bytes = bytes, .progress = {}})),
          whole)
          << bytes << ": " << given.text;
  }
}

// What stands between braces in texts and lists looks like the end of an event and is none.
TEST(TraceCheck, JoinsWhatWasCutWithinAnEvent) {
  std::string args = R"({"text":"},{\"name\":","list":[{"name":0})";
  for (int i = 1; i < 40; ++i) args += R"(,{"name":1})";
  const json trace = with(
      (R"({"ph":"X","name":"long","pid":1,"tid":1,"ts":1,"dur":1,"args":)" + args + "]}}").c_str());
  for (const std::size_t bytes : {64, 100, 256}) {
    const TraceCheck result =
        check_trace(text_of(trace), worker, {.piece_bytes = bytes, .progress = {}});
    EXPECT_EQ(result.events, 10u);
    EXPECT_EQ(rules_in(result), rules_in(check(trace)));
  }
}

// Members behind the list of events have lists of objects, too, and have to be JSON.
TEST(TraceCheck, ReadsWhatFollowsTheEvents) {
  const std::string events = R"({"distributedInfo":{"rank": 0},"traceEvents":)" +
                             good_trace()["traceEvents"].dump() + R"(,"z":[{"name":1})";
  std::string more;
  for (int i = 0; i < 40; ++i) more += R"(,{"name":1})";
  for (const std::size_t bytes : {64, 100, 4096}) {
    const ReadOptions options{.piece_bytes = bytes, .progress = {}};
    const TraceCheck result = check_trace(events + more + "]}", worker, options);
    EXPECT_EQ(result.events, 9u);
    EXPECT_THAT(rules_in(result), IsEmpty());
    for (const char* end : {"", "]", "]}x", ",]}", "nul]}"})
      EXPECT_THROW(check_trace(events + more + end, worker, options), FormatError) << end;
  }
}

TEST(TraceCheck, ReadsIntegersBeyond64Bits) {
  std::string text = text_of(good_trace());
  text.replace(text.find("\"ts\":110"), 8, "\"ts\":10000000000000000000000000");
  EXPECT_THAT(rules_in(check_trace(text, worker)), ::testing::ElementsAre("tb-huge"));
  text.replace(text.find("gemm"), 4, "ge\nmm");
  EXPECT_THAT(rules_in(check_trace(text, worker)), ::testing::Contains("hta-control"));
}

TEST(TraceCheck, HasACaseForEveryRule) {
  std::set<std::string> tested{"chrome-size"};  // over 512 MiB: a test would take seconds
  for (const Case& given : all_cases()) tested.insert(given.rules.begin(), given.rules.end());
  for (const TraceRule& rule : trace_rules())
    EXPECT_TRUE(tested.contains(std::string(rule.name))) << rule.name;
}

TEST(TraceCheck, ShowsWhatIsWrongAndHowOften) {
  json trace = with(R"({"ph":"X","name":"wrong one","pid":1,"tid":1,"ts":1,"dur":1})");
  trace["traceEvents"].push_back(trace["traceEvents"].back());
  const std::string text = trace_check_text(check(trace));
  EXPECT_THAT(text, HasSubstr("torch-tb-profiler 0.4.3                  REFUSES IT\n"));
  EXPECT_THAT(text, HasSubstr("  error: 2 slices have no cat: it ends with an AttributeError; "
                              "give each a category (first: "));
  EXPECT_THAT(text, HasSubstr("wrong one"));
  EXPECT_THAT(text, HasSubstr("TraceLens 0.1.0+g171dd747                accepts it\n"));
  EXPECT_THAT(text, HasSubstr("Perfetto                                 not tried\n"));
}

TEST(TraceCheck, SaysOneOfOne) {
  EXPECT_THAT(trace_check_text(check(without(op, "cat"))), HasSubstr("one slice has no cat: "));
}

TEST(TraceCheck, NamesTheVersionsThatRefuse) {
  EXPECT_THAT(trace_check_text(check(without(op, "name"))),
              HasSubstr("REFUSES IT if it is 0.5.0 with pandas 2.3.3 or 0.5.0 with pandas 3.1.1"));
}

TEST(TraceCheck, CountsWhatRoundingLoses) {
  EXPECT_THAT(trace_check_text(check(changed(kernel, "dur", 20.5))),
              ::testing::Not(HasSubstr("lost")));
  json trace = changed(kernel, "dur", 1.5);
  trace["traceEvents"].push_back(trace["traceEvents"][kernel]);
  trace["traceEvents"].back()["dur"] = 0.5;
  EXPECT_THAT(trace_check_text(check(trace)),
              HasSubstr("one kernel is so short that it counts as no time, and 50.0 % of all "
                        "kernels' time is lost"));
}

TEST(TraceCheck, WritesTheSameAsJson) {
  const json result = json::parse(trace_check_json(check(without(op, "cat"))));
  EXPECT_EQ(result["events"], 9);
  const json& verdict = result["tools"][2];
  EXPECT_EQ(verdict["tool"], tensorboard);
  EXPECT_EQ(verdict["tried"], json({"0.4.3"}));
  EXPECT_EQ(verdict["refusing"], json({"0.4.3"}));
  EXPECT_EQ(verdict["problems"][0]["rule"], "tb-category");
  EXPECT_EQ(verdict["problems"][0]["severity"], "refuses");
  EXPECT_EQ(verdict["problems"][0]["count"], 1);
}

TEST(TraceCheck, RefusesWhatIsNoTrace) {
  for (const char* text :
       {"", "{", "{\"a\": 1}", "3", "\x0a\x05binary", "{\"traceEvents\": 3}",
        "{\"traceEvents\": [}", "{\"traceEvents\": [nul]}", "{\"a\": {\"traceEvents\": [{}]}}"})
    EXPECT_THROW(check_trace(text, "file"), FormatError) << text;
  EXPECT_NO_THROW(check_trace("[3, null, {}, [], {\"ph\": 1, \"ts\": \"x\"}]", "file"));
}

std::string refusal_of(std::string_view file, std::size_t piece_bytes = 1 << 20) {
  try {
    check_trace(file, "file", {.piece_bytes = piece_bytes, .progress = {}});
  } catch (const FormatError& error) {
    return error.what();
  }
  return "none";
}

TEST(TraceCheck, SaysWhatIsDamaged) {
  const std::string text = text_of(good_trace()), packed = gzipped(text);
  EXPECT_EQ(refusal_of(text.substr(0, text.size() / 2)),
            "\"file\" is no valid JSON, so none of the tools reads it");
  EXPECT_THAT(refusal_of(text.substr(0, text.size() / 2), 128),
              HasSubstr(" is no valid JSON behind byte "));
  EXPECT_EQ(refusal_of(std::string_view(packed).substr(0, packed.size() / 2)),
            "\"file\" is a gzip file that is cut short");
}

}  // namespace
}  // namespace ridge::trace
