#include "ridge/profile/trace_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

using json = nlohmann::json;

enum Consumer : std::size_t { viewers, tb_profiler, hta, tracelens, consumer_count };
constexpr std::array<std::string_view, consumer_count> consumer_names{
    "chrome://tracing, Perfetto", "torch-tb-profiler", "HolisticTraceAnalysis", "TraceLens"};

constexpr std::string_view metadata_names[] = {
    "process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"};
constexpr std::string_view device_categories[] = {"kernel", "gpu_memcpy", "gpu_memset"};
// What TraceLens makes its call tree of.
constexpr std::string_view tree_categories[] = {"cpu_op", "cuda_runtime", "cuda_driver"};
constexpr std::string_view gradient_prefix = "autograd::engine::evaluate_function:";
constexpr std::string_view launch_names[] = {"cudaLaunchKernel", "cudaLaunchKernelExC",
                                             "cudaMemcpyAsync", "cudaMemsetAsync"};

template <std::size_t n>
bool is_one_of(std::string_view text, const std::string_view (&list)[n]) {
  return std::ranges::find(list, text) != std::end(list);
}

// A member that is a string or a number; else "" or 0.
std::string string_of(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}
bool has_number(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number();
}
bool has_integer(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer();
}
std::string text_of(const json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? std::string()
                            : it->dump(-1, ' ', false, json::error_handler_t::replace);
}

class Checker {
 public:
  TraceCheck run(std::string_view text, std::string_view file_name) {
    for (std::size_t c = 0; c < consumer_count; ++c)
      check_.verdicts.push_back(
          {.consumer = std::string(consumer_names[c]), .tried = c != hta && c != tracelens});
    const json trace = json::parse(text, nullptr, false);
    if (trace.is_discarded())
      throw FormatError("{} is no valid JSON, so nothing will read it", shown(file_name));
    const bool bare = trace.is_array();
    if (!bare &&
        !(trace.is_object() && trace.contains("traceEvents") && trace["traceEvents"].is_array()))
      throw FormatError("{} is JSON but no trace: it has no list \"traceEvents\"",
                        shown(file_name));
    check_file(text, file_name, bare);
    for (const json& event : bare ? trace : trace["traceEvents"]) add(event);
    check_nesting();
    check_flows();
    check_kernels();
    check_operators();
    check_steps();
    return std::move(check_);
  }

 private:
  struct Slice {
    double begin, end;
    const json* event;
  };

  void report(Consumer consumer, std::string_view what, bool fatal, const json* event = nullptr) {
    auto& problems = check_.verdicts[consumer].problems;
    auto it = std::ranges::find(problems, what, &TraceVerdict::Problem::what);
    if (it == problems.end()) {
      problems.push_back({.what = std::string(what), .fatal = fatal});
      it = std::prev(problems.end());
      if (event != nullptr) it->first = first_of(*event);
    }
    ++it->count;
  }

  // An event without its args, which would push its name out of sight.
  static std::string first_of(json event) {
    if (event.is_object() && event.contains("args") && event["args"].is_object())
      event.erase("args");
    return shown(event.dump(-1, ' ', true, json::error_handler_t::replace));
  }

  void check_file(std::string_view text, std::string_view name, bool bare) {
    if (bare) {
      for (const Consumer c : {tb_profiler, hta, tracelens})
        report(c, "a bare list of events: they need an object with traceEvents", true);
      return;
    }
    if (name.find(".pt.trace.json") == std::string_view::npos)
      report(tb_profiler, "it finds only files named <host>_<pid>.<n>.pt.trace.json", false);
    if (!name.ends_with(".json") && !name.ends_with(".json.gz"))
      for (const Consumer c : {hta, tracelens})
        report(c, "it opens only files named *.json or *.json.gz", false);
    if (text.find("\"rank\": ") == std::string_view::npos)
      report(hta, "no text '\"rank\": 0', with the space: it takes every such file for rank 0",
             false);
    if (text.size() > (std::size_t{512} << 20))
      report(viewers, "over 512 MiB: browsers fail to open it", true);
  }

  void add(const json& event) {
    ++check_.events;
    if (!event.is_object()) {
      for (std::size_t c = 0; c < consumer_count; ++c)
        report(static_cast<Consumer>(c), "an event that is no object", true, &event);
      return;
    }
    const std::string phase = string_of(event, "ph"), name = string_of(event, "name");
    if (event.contains("args") && !event["args"].is_object())
      report(tracelens, "args that are no object", true, &event);
    if (is_one_of(string_of(event, "cat"), tree_categories) &&
        (name.empty() || !has_number(event, "ts") || !has_number(event, "dur")))
      report(tracelens, "an operator or a launch without name, ts or dur", true, &event);
    if (phase.empty()) report(viewers, "an event without ph", true, &event);
    if (!event.contains("name")) report(tb_profiler, "an event without name", true, &event);
    if (phase == "M") {
      if (!is_one_of(name, metadata_names))
        report(tracelens, "a metadata event that it does not know", true, &event);
    } else if (!has_number(event, "ts")) {
      report(viewers, "an event without a number ts", true, &event);
    } else if (phase == "X") {
      add_slice(event, name);
    } else if (phase == "s" || phase == "t" || phase == "f") {
      add_flow(event, phase);
    }
  }

  void add_slice(const json& event, std::string_view name) {
    ++check_.slices;
    const std::string category = string_of(event, "cat");
    if (category.empty()) report(tb_profiler, "an X event without cat", true, &event);
    if (!has_number(event, "dur") || event["dur"].get<double>() < 0) {
      report(viewers, "an X event without a dur of at least 0", true, &event);
      return;
    }
    const double begin = event["ts"].get<double>();
    const Slice slice{begin, begin + event["dur"].get<double>(), &event};
    const std::string track = text_of(event, "pid") + '/' + text_of(event, "tid");
    tracks_[track].push_back(slice);
    if (is_one_of(category, tree_categories)) tree_tracks_[track].push_back(slice);
    if (category == "cpu_op") add_operator(event, name);
    if (name.starts_with("ProfilerStep#")) ++steps_;
    const bool on_device = is_one_of(category, device_categories);
    if (!on_device && !category.empty() && category != "Trace" && !has_integer(event, "tid"))
      report(tb_profiler, "a tid of the CPU that is no integer", true, &event);
    if (on_device) add_device_slice(event);
    if (category.starts_with("cuda_")) launches_.insert(text_of(args_of(event), "correlation"));
    if (category == "cuda_runtime" && !is_one_of(name, launch_names) &&
        name.find("Launch") != name.npos)
      report(hta, "a launch that its statistics leave out", false, &event);
  }

  void add_device_slice(const json& event) {
    const json& args = args_of(event);
    kernels_.push_back(&event);
    if (!has_integer(args, "device"))
      report(tb_profiler, "a kernel without an integer args.device", true, &event);
    else if (args["device"] != event.value("pid", json()))
      report(tb_profiler, "a kernel whose pid is not its device", true, &event);
    if (has_number(args, "stream") && args["stream"].get<double>() == 0)
      report(hta, "a kernel on stream 0, which gets no iteration", false, &event);
    if (event["dur"].get<double>() < 1)
      report(hta, "a kernel shorter than 1 us, on which the temporal breakdown fails", true,
             &event);
  }

  static const json& args_of(const json& event) {
    static const json none = json::object();
    const auto it = event.find("args");
    return it != event.end() && it->is_object() ? *it : none;
  }

  void add_operator(const json& event, std::string_view name) {
    const json& args = args_of(event);
    ++operators_;
    has_dims_ |= args.contains("Input Dims");
    const std::string sequence = text_of(args, "Sequence number");
    if (name.starts_with(gradient_prefix))
      gradients_.push_back(sequence);
    else if (!sequence.empty())
      forward_sequences_.insert(sequence);
  }

  void add_flow(const json& event, const std::string& phase) {
    Flow& flow = flows_[string_of(event, "cat") + ' ' + text_of(event, "id")];
    (phase == "s" ? flow.begins : phase == "f" ? flow.ends : flow.steps) += 1;
    flow.event = &event;
    flow.launch = string_of(event, "cat") == "ac2g";
    if (flow.launch && phase == "f")
      arrivals_.insert({text_of(event, "pid"), text_of(event, "tid"), text_of(event, "id")});
  }

  // A kernel belongs to the launch with its correlation, by the flow that has this number too.
  void check_kernels() {
    if (kernels_.empty()) {
      report(hta, "no kernels of a GPU: no temporal breakdown, an empty kernel breakdown", false);
      report(tracelens, "no kernels of a GPU: no timeline, empty tables of kernels", false);
    }
    for (const json* kernel : kernels_) {
      const std::string correlation = text_of(args_of(*kernel), "correlation");
      if (!launches_.contains(correlation) ||
          !arrivals_.contains({text_of(*kernel, "pid"), text_of(*kernel, "tid"), correlation}))
        report(tracelens, "a kernel that no launch and ac2g flow lead to, which it leaves out",
               false, kernel);
    }
  }

  void check_operators() {
    if (operators_ > 0 && !has_dims_)
      report(tracelens, "no operator has Input Dims: no FLOPs and no shapes", false);
    if (!gradients_.empty() && std::ranges::none_of(gradients_, [this](const std::string& number) {
          return forward_sequences_.contains(number);
        }))
      report(tracelens, "no Sequence number that forward and backward share: no backward metrics",
             false);
  }

  void check_flows() {
    for (const auto& [key, flow] : flows_) {
      if (flow.begins > 0 && flow.ends > 0) continue;
      report(viewers, "a flow with one end", false, flow.event);
      if (flow.launch) report(tracelens, "an ac2g flow with one end", true, flow.event);
    }
  }

  // Slices of a track are boxes within boxes: one that begins within another ends within it.
  void check_nesting() {
    for (auto& [track, slices] : tracks_)
      for (const Slice* slice : crossing(slices, 1e-3))  // us: times are given to the nanosecond
        report(viewers, "a slice that crosses the end of another on its track: Perfetto drops it",
               false, slice->event);
    for (auto& [track, slices] : tree_tracks_)
      for (const Slice* slice : crossing(slices, 0))
        report(tracelens, "an operator that ends after the one around it, which it leaves out",
               false, slice->event);
  }

  static std::vector<const Slice*> crossing(std::vector<Slice>& slices, double rounding) {
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<const Slice*> result;
    std::vector<double> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back() <= slice.begin + rounding && slice.end > open.back())
        open.pop_back();
      if (!open.empty() && slice.end > open.back() + rounding) result.push_back(&slice);
      open.push_back(slice.end);
    }
    return result;
  }

  void check_steps() {
    if (steps_ == 0)
      report(tb_profiler, "no ProfilerStep#N: the whole trace counts as one step", false);
    if (steps_ < 2)
      report(hta, "fewer than two ProfilerStep#N, of which it leaves out the last", true);
  }

  struct Flow {
    int begins = 0, steps = 0, ends = 0;
    bool launch = false;
    const json* event = nullptr;
  };

  TraceCheck check_;
  std::map<std::string, std::vector<Slice>> tracks_, tree_tracks_;  // by pid and tid
  std::map<std::string, Flow> flows_;                               // by category and id
  std::vector<const json*> kernels_;
  std::set<std::string> launches_;                 // their correlations
  std::set<std::array<std::string, 3>> arrivals_;  // pid, tid, id of the ends of ac2g flows
  std::vector<std::string> gradients_;             // sequence numbers of backward operators
  std::set<std::string> forward_sequences_;
  std::uint64_t steps_ = 0, operators_ = 0;
  bool has_dims_ = false;
};

}  // namespace

bool TraceVerdict::accepts() const { return std::ranges::none_of(problems, &Problem::fatal); }

TraceCheck check_trace(std::string_view text, std::string_view file_name) {
  return Checker().run(text, file_name);
}

std::string trace_check_text(const TraceCheck& check) {
  std::string out =
      fmt::format("{} events, {} slices\n\n", format_count(static_cast<std::int64_t>(check.events)),
                  format_count(static_cast<std::int64_t>(check.slices)));
  for (const TraceVerdict& verdict : check.verdicts) {
    out += fmt::format("{:<28} {}\n", verdict.consumer,
                       verdict.accepts()   ? "accepts it"
                       : verdict.refuses() ? "REFUSES IT"
                                           : "not known: it may refuse it");
    for (const TraceVerdict::Problem& problem : verdict.problems) {
      out += fmt::format("  {}: {}", problem.fatal ? "error" : "note", problem.what);
      if (!problem.first.empty())
        out += fmt::format(" ({}; first: {})", problem.count, problem.first);
      out += '\n';
    }
  }
  return out;
}

}  // namespace ridge
