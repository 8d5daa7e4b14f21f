#include "ridge/trace/check/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "ridge/base/units.h"

namespace ridge::trace {
namespace {

using Is = TraceValue::Is;
using Category = TraceEvent::Category;
using Event = TraceEvent;
using Facts = TraceFacts;
using Finding = TraceRule::Finding;

constexpr std::array<std::string_view, 1> chrome_tried{"of torch-tb-profiler 0.4.3"};
constexpr std::array<std::string_view, 1> tb_tried{"0.4.3"};
constexpr std::array<std::string_view, 3> hta_tried{
    "0.5.0 with pandas 2.3.3", "0.5.0 with pandas 3.1.1", "0.6.1 with pandas 3.1.1"};
constexpr std::array<std::string_view, 1> tracelens_tried{"0.1.0+g171dd747"};

constexpr std::array<TraceTool, 5> tools{{
    {"chrome://tracing", "chrome://tracing", chrome_tried},
    {"Perfetto", "Perfetto", {}},
    {"torch-tb-profiler", "torch-tb-profiler 0.4.3", tb_tried},
    {"HolisticTraceAnalysis", "HolisticTraceAnalysis 0.5.0 and 0.6.1", hta_tried},
    {"TraceLens", "TraceLens 0.1.0+g171dd747", tracelens_tried},
}};

// The finding of a rule about the file, which applies once or not at all.
Finding once(bool is) { return {.count = is ? 1u : 0u, .first = {}, .detail = {}}; }
Finding tallied(const TraceTally& tally) {
  return {.count = tally.count, .first = tally.first, .detail = {}};
}
bool is_drawn(char phase) { return std::string_view("XBiI").find(phase) != std::string_view::npos; }

// The member that a metadata event of each name has in its args.
struct Metadata {
  std::string_view name;
  bool Event::*member;
};
constexpr std::array<Metadata, 5> known_metadata{{{"process_name", &Event::has_name},
                                                  {"process_labels", &Event::has_labels},
                                                  {"process_sort_index", &Event::has_sort_index},
                                                  {"thread_name", &Event::has_name},
                                                  {"thread_sort_index", &Event::has_sort_index}}};
const Metadata* metadata_of(const Event& event) {
  const auto found = std::ranges::find(known_metadata, event.name.text, &Metadata::name);
  return event.phase == 'M' && found != known_metadata.end() ? &*found : nullptr;
}

// What torch-tb-profiler makes of a slice, by its category in any case of letters.
enum class Use : std::uint8_t { none, duration, operation, kernel };
Use use_of_other(const Event& event) {
  std::string category(event.category_name.text);
  std::ranges::transform(category, category.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  const auto is_one_of = [&category](auto... names) { return ((category == names) || ...); };
  const bool step = event.name.text.starts_with("ProfilerStep#");
  if (is_one_of("cpu_op", "operator", "python")) return Use::operation;
  if (is_one_of("user_annotation", "gpu_user_annotation")) return step ? Use::operation : Use::none;
  if (is_one_of("kernel")) return Use::kernel;
  if (is_one_of("trace", "runtime", "memcpy", "gpu_memcpy", "memset", "gpu_memset", "memory",
                "python_function"))
    return Use::duration;
  return Use::none;
}
Use tb_use(const Event& event) {
  if (!event.slice()) return Use::none;
  switch (event.category) {
    case Category::cpu_op:
      return Use::operation;
    case Category::kernel:
      return Use::kernel;
    case Category::runtime:
      return Use::none;
    case Category::copy:
    case Category::fill:
    case Category::python_function:
      return Use::duration;
    default:
      return use_of_other(event);
  }
}
bool is_memory_instant(const Event& event) {
  return event.phase == 'i' && event.name.text == "[memory]";
}

// Whether Python's int() takes it.
bool is_integer(const TraceValue& value) {
  if (value.is == Is::number) return true;
  if (value.is != Is::text) return false;
  std::int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto parsed = std::from_chars(value.text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}
bool has_step_number(std::string_view name) {
  const std::size_t at = std::string_view("ProfilerStep#").size();
  return name.size() > at && name[at] >= '0' && name[at] <= '9';
}

// Rows of the tables of HolisticTraceAnalysis have a duration and a category.
bool is_hta_row(const Event& event) {
  return event.duration.given() && event.category_name.given() && event.category != Category::trace;
}
bool is_step_without_number(const Event& event) {
  if (!is_hta_row(event) || !event.name.text.starts_with("ProfilerStep")) return false;
  const std::string_view rest = event.name.text.substr(std::string_view("ProfilerStep").size());
  const std::size_t sign = rest.find_first_not_of(' ');
  if (sign == rest.npos || rest[sign] != '#') return true;
  const std::size_t digit = rest.find_first_not_of(' ', sign + 1);
  return digit == rest.npos || rest[digit] < '0' || rest[digit] > '9';
}

bool in_call_tree(const Event& event) {
  return event.category == Category::cpu_op || event.category == Category::runtime;
}

using enum TraceRule::Severity;
using enum TraceTool::Name;

// clang-format off
constexpr TraceRule rules[] = {
  // The viewer of chrome://tracing, whose JSON is JavaScript's.
  {"chrome-json", chrome, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.numbers_beyond_json || f.file.control_characters); },
   "the text has NaN, Infinity or an unescaped control character",
   "JSON.parse ends with a SyntaxError; write null and \\u escapes instead"},
  {"chrome-size", chrome, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.bytes > (std::size_t{512} << 20)); },
   "the text is over 512 MiB",
   "that is the longest text of a browser; record fewer steps"},
  {"chrome-nothing", chrome, refuses, "", nullptr,
   [](const Facts& f) { return once(f.drawn == 0); },
   "there is no slice, instant or counter", "the viewer shows nothing"},
  {"chrome-null", chrome, refuses, "",
   [](const Event& e) { return e.null; }, nullptr,
   "{one event is|# events are} null", "the viewer ends with a TypeError; leave them out"},
  {"chrome-name", chrome, refuses, "",
   [](const Event& e) {
     return e.object && e.name.is != Is::text && (e.name.is != Is::missing || is_drawn(e.phase));
   }, nullptr,
   "{one event has|# events have} no name that is text",
   "the viewer ends with a TypeError; name each slice and instant"},
  {"chrome-process", chrome, refuses, "",
   [](const Event& e) {
     return (is_drawn(e.phase) || e.phase == 'C' || e.phase == 'E' || metadata_of(e) != nullptr) &&
            e.process.is == Is::missing;
   }, nullptr,
   "{one event has|# events have} no pid", "the viewer ends with an Error; give each a pid"},
  {"chrome-metadata", chrome, refuses, "",
   [](const Event& e) { return metadata_of(e) != nullptr && (e.args_is == Is::missing || e.args_is == Is::null); }, nullptr,
   "{one metadata event has|# metadata events have} no args",
   "the viewer ends with a TypeError; leave them out"},
  {"chrome-phase", chrome, warns, "",
   [](const Event& e) { return e.object && (e.phase == 0 || e.phase == '?'); }, nullptr,
   "{one event has|# events have} no phase that the format knows", "the viewer leaves them out"},
  {"chrome-times", chrome, warns, "",
   [](const Event& e) {
     return e.slice() && (!e.timed() || e.duration.number < 0);
   }, nullptr,
   "{one slice has|# slices have} no number ts, or no dur of at least 0",
   "the viewer draws them at a wrong place or to the end of the trace"},
  {"chrome-flows", chrome, warns, "", nullptr,
   [](const Facts& f) { return tallied(f.flows_with_one_end); },
   "{one flow has|# flows have} one end", "the viewer draws no arrow; PyTorch's traces have such too"},

  // Nobody ran Perfetto, so nothing refuses in its name.
  {"perfetto-nesting", perfetto, warns, "", nullptr,
   [](const Facts& f) { return tallied(f.crossing); },
   "{one slice crosses|# slices cross} the end of another on the same track",
   "Perfetto's documentation says that it drops them; give each its own track"},

  // torch-tb-profiler.
  {"tb-compression", tb_profiler, refuses, "", nullptr,
   [](const Facts& f) { return once(!f.file.is_what_its_name_says()); },
   "the name and the content disagree about gzip",
   "it unpacks what ends in .gz and nothing else; rename the file"},
  {"tb-utf8", tb_profiler, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.invalid_utf8); },
   "the text is no UTF-8", "it ends with a UnicodeDecodeError; encode names as UTF-8"},
  {"tb-list", tb_profiler, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.bare_list); },
   "the file is a bare list of events", "it ends with a TypeError; put the list into {\"traceEvents\": ...}"},
  {"tb-object", tb_profiler, refuses, "",
   [](const Event& e) { return !e.object; }, nullptr,
   "{one event is|# events are} no object", "it ends with an error; leave them out"},
  {"tb-late-name", tb_profiler, refuses, "", nullptr,
   [](const Facts& f) { return tallied(f.late_without_name); },
   "{one event has|# events have} no name",
   "it ends with a KeyError, reading from the end to PyTorch's event Record Window End; name each event"},
  {"tb-name", tb_profiler, refuses, "",
   [](const Event& e) {
     return (tb_use(e) == Use::operation || tb_use(e) == Use::kernel) && e.name.is != Is::text;
   }, nullptr,
   "{one operator or kernel has|# operators and kernels have} no name",
   "it ends with an AttributeError or a TypeError; name each"},
  {"tb-category", tb_profiler, refuses, "",
   [](const Event& e) { return e.slice() && e.category_name.is != Is::text; }, nullptr,
   "{one slice has|# slices have} no cat", "it ends with an AttributeError; give each a category"},
  {"tb-args", tb_profiler, refuses, "",
   [](const Event& e) {
     return (tb_use(e) != Use::none || is_memory_instant(e)) && e.args_is != Is::missing &&
            e.args_is != Is::object;
   }, nullptr,
   "{one event has|# events have} args that are no object",
   "it ends with an AttributeError; leave args out instead"},
  {"tb-times", tb_profiler, refuses, "",
   [](const Event& e) {
     return is_memory_instant(e) ? e.begin.is != Is::number : tb_use(e) != Use::none && !e.timed();
   }, nullptr,
   "{one event has|# events have} no number ts, or no number dur",
   "it ends with a TypeError; give each both"},
  {"tb-thread", tb_profiler, refuses, "",
   [](const Event& e) { return tb_use(e) == Use::operation && !is_integer(e.thread); }, nullptr,
   "{one operator has|# operators have} a tid that is no integer",
   "it ends with a ValueError or a TypeError; number the threads"},
  {"tb-step", tb_profiler, refuses, "",
   [](const Event& e) {
     return tb_use(e) == Use::operation && e.name.text.starts_with("ProfilerStep#") && !has_step_number(e.name.text);
   }, nullptr,
   "{one slice is|# slices are} named ProfilerStep# without a number",
   "it ends with a ValueError; number the steps"},
  {"tb-device", tb_profiler, refuses, "",
   [](const Event& e) {
     return tb_use(e) == Use::kernel && e.device.given() &&
            (!e.device.integer || e.device.signed_bits() > 63);
   }, nullptr,
   "{one kernel has|# kernels have} an args.device that is no integer below 64",
   "it ends with a TypeError or an IndexError; number the devices"},
  {"tb-huge", tb_profiler, refuses, "",
   [](const Event& e) { return tb_use(e) != Use::none && e.timed() && e.end() > 1e18; }, nullptr,
   "{one slice ends|# slices end} over 1e18 us after the begin of time",
   "it ends with an IndexError; count from the begin of the trace"},
  {"tb-modules", tb_profiler, warns, "", nullptr,
   [](const Facts& f) { return tallied(f.crossing_modules); },
   "{one slice crosses|# slices cross} the end of another, and one of the two is a module",
   "its page of modules may end with a KeyError; end each module within the one around it"},
  {"tb-numbers", tb_profiler, warns, "", nullptr,
   [](const Facts& f) { return once(f.file.numbers_beyond_json); },
   "the text has NaN or Infinity",
   "it reads them, but a time that is none may end it with an AssertionError; write null"},
  {"tb-file-name", tb_profiler, warns, "", nullptr,
   [](const Facts& f) { return once(f.file.name.find(".pt.trace.json") == std::string_view::npos); },
   "the file's name is not <host>_<pid>.<n>.pt.trace.json",
   "TensorBoard finds only such files; rename a copy"},
  {"tb-no-steps", tb_profiler, warns, "", nullptr,
   [](const Facts& f) { return once(f.steps == 0); },
   "there is no slice ProfilerStep#<n>", "the whole trace counts as one step"},
  {"tb-device-process", tb_profiler, warns, "",
   [](const Event& e) {
     return e.slice() && e.on_device() && e.device.is != Is::missing &&
            e.process.is != Is::missing && e.device != e.process;
   }, nullptr,
   "{one kernel has|# kernels have} another pid than args.device",
   "its pages name two GPUs for one; use the device's number as the pid"},

  // HolisticTraceAnalysis.
  {"hta-file-name", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(!f.file.name.ends_with(".json") && !f.file.name.ends_with(".gz")); },
   "the file's name ends in neither .json nor .gz", "it does not open such files; rename it"},
  {"hta-compression", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(!f.file.is_what_its_name_says()); },
   "the name and the content disagree about gzip",
   "it unpacks what ends in .gz and nothing else; rename the file"},
  {"hta-utf8", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.invalid_utf8); },
   "the text is no UTF-8", "it ends with a UnicodeDecodeError; encode names as UTF-8"},
  {"hta-control", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.control_characters); },
   "a text has an unescaped control character", "it ends with a JSONDecodeError; write \\u escapes"},
  {"hta-byte-order-mark", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.byte_order_mark && !f.file.compressed); },
   "the text begins with a byte order mark", "it ends with a JSONDecodeError; leave the mark out"},
  {"hta-list", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.bare_list); },
   "the file is a bare list of events", "it ends with an AttributeError; put the list into {\"traceEvents\": ...}"},
  {"hta-object", hta, refuses, "",
   [](const Event& e) { return !e.object; }, nullptr,
   "{one event is|# events are} no object", "it ends with an error; leave them out"},
  {"hta-columns", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(!f.hta().has_rows() || !f.hta().has_begins()); },
   "no event has a dur and a cat, or none has a ts", "0.5.0 ends with an error, and 0.6.1 finds no trace"},
  {"hta-arguments", hta, refuses, "", nullptr,
   [](const Facts& f) { return once(f.durations > 0 && f.categories > 0 && !f.hta().has_arguments()); },
   "no event has args", "it ends with a KeyError for the stream; write args.stream of kernels"},
  {"hta-no-name", hta, refuses, "0.5.0",
   [](const Event& e) { return is_hta_row(e) && !e.name.given(); }, nullptr,
   "{one slice has|# slices have} no name", "0.5.0 ends with an error, 0.6.1 reads them; name each slice"},
  {"hta-name", hta, refuses, "",
   [](const Event& e) { return is_hta_row(e) && e.name.given() && e.name.is != Is::text; }, nullptr,
   "{one slice has|# slices have} a name that is no text", "it ends with a ValueError; write names as text"},
  {"hta-times", hta, refuses, "",
   [](const Event& e) {
     return e.duration.is == Is::text || (is_hta_row(e) && e.begin.is == Is::text);
   }, nullptr,
   "{one event has|# events have} a ts or a dur that is text", "it ends with a TypeError; write numbers"},
  {"hta-correlation", hta, refuses, "",
   [](const Event& e) { return is_hta_row(e) && e.correlation.is == Is::text; }, nullptr,
   "{one slice has|# slices have} an args.correlation that is text", "it ends with a TypeError; write numbers"},
  {"hta-null-stream", hta, refuses, "0.5.0", nullptr,
   [](const Facts& f) { return Finding{.count = f.hta().null_streams(), .first = {}, .detail = {}}; },
   "{one slice has|# slices have} an args.stream that is null, and another's is text",
   "0.5.0 ends with a TypeError, 0.6.1 reads them; leave it out instead"},
  {"hta-step", hta, refuses, "", is_step_without_number, nullptr,
   "{one slice is|# slices are} named ProfilerStep without a number",
   "0.5.0 ends with an AttributeError and 0.6.1 with an AssertionError; number the steps"},
  {"hta-small-correlations", hta, refuses, "pandas 3", nullptr,
   [](const Facts& f) {
     const std::int64_t index = f.hta().index_over_correlations();
     return Finding{.count = index < 0 ? 0u : 1u, .first = {},
                    .detail = format_count(std::max<std::int64_t>(index, 0))};
   },
   "a launch or a kernel is event {} of the file, and all correlations are so small that fewer bits hold them",
   "with pandas 3 it ends with a TypeError; install pandas<3 beside it, or number correlations from a million"},
  {"hta-kernel-name", hta, warns, "0.6.1",
   [](const Event& e) { return is_hta_row(e) && e.on_device() && !e.name.given(); }, nullptr,
   "{one kernel has|# kernels have} no name", "the breakdowns of 0.6.1 end with a TypeError; name each kernel"},
  {"hta-no-kernels", hta, warns, "", nullptr,
   [](const Facts& f) { return once(f.hta().breakdown(true) == HtaTable::Breakdown::finds_no_kernels); },
   "no event that it analyses has an args.stream",
   "its temporal breakdown ends with an IndexError, and its kernel breakdown is empty"},
  {"hta-breakdown", hta, warns, "0.5.0", nullptr,
   [](const Facts& f) { return once(f.hta().breakdown(false) == HtaTable::Breakdown::asserts); },
   "computing takes longer than the GPU is busy, once times are whole microseconds",
   "its temporal breakdown ends with an AssertionError; set HTA_DISABLE_NS_ROUNDING=1"},
  {"hta-breakdown", hta, warns, "0.6.1", nullptr,
   [](const Facts& f) { return once(f.hta().breakdown(true) == HtaTable::Breakdown::asserts); },
   "computing takes longer than the GPU is busy, once times are whole microseconds",
   "its temporal breakdown ends with an AssertionError; set HTA_DISABLE_NS_ROUNDING=1"},
  {"hta-rounding", hta, warns, "", nullptr,
   [](const Facts& f) {
     const HtaTable::Rounding& r = f.hta().rounding();
     return Finding{.count = r.lost_whole, .first = {},
                    .detail = fmt::format("{:.1f} %", r.time > 0 ? 100 * (1 - r.rounded_time / r.time) : 0)};
   },
   "{one kernel is|# kernels are} so short that it counts {as no time|them as no time}, and {} of all kernels' time is lost",
   "it takes begins up and ends down to whole microseconds; set HTA_DISABLE_NS_ROUNDING=1"},
  {"hta-launch-statistics", hta, warns, "", nullptr,
   [](const Facts& f) {
     return Finding{.count = f.other_launches, .first = {},
                    .detail = format_count(static_cast<std::int64_t>(f.launched_kernels))};
   },
   "{one|#} of {} kernels {is|are} of launches that its launch statistics leave out, such as cuLaunchKernel and cudaGraphLaunch",
   "they know cudaLaunchKernel, cudaLaunchKernelExC, cudaMemcpyAsync and cudaMemsetAsync; count them elsewhere"},
  {"hta-triton-operators", hta, warns, "", nullptr,
   [](const Facts& f) {
     const HtaTable::Mistaken& m = f.hta().mistaken();
     return Finding{.count = m.slices.count, .first = m.slices.first, .detail = fmt::format("{:.3f} ms", m.time / 1000)};
   },
   "{one operator has|# operators have} an args.stream and {} of the CPU's time",
   "it counts them as kernels of the GPU, as it does inductor's triton operators; subtract them"},
  {"hta-stream-0", hta, warns, "",
   [](const Event& e) {
     return e.slice() && e.on_device() && e.stream.is == Is::number && e.stream.number == 0;
   }, nullptr,
   "{one kernel is|# kernels are} on stream 0", "they get no iteration; number streams from 1"},
  {"hta-steps", hta, warns, "", nullptr,
   [](const Facts& f) { return once(f.hta().step_names() < 2); },
   "there are fewer than two slices ProfilerStep#<n>",
   "it leaves out no step, so what belongs to none counts too; record two or more"},
  {"hta-rank", hta, warns, "", nullptr,
   [](const Facts& f) { return once(!f.file.rank_text); },
   "there is no text \"rank\": 0, with the space",
   "it takes every such file for rank 0, so one of several is read; write distributedInfo"},

  // TraceLens, as TraceLens_generate_perf_report_pytorch.
  {"tracelens-file-name", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return once(!f.file.name.ends_with("json") && !f.file.name.ends_with("json.gz")); },
   "the file's name ends in neither json nor json.gz", "it ends with a ValueError; rename it"},
  {"tracelens-compression", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return once(!f.file.is_what_its_name_says()); },
   "the name and the content disagree about gzip",
   "it unpacks what ends in json.gz and nothing else; rename the file"},
  {"tracelens-json", tracelens, refuses, "", nullptr,
   [](const Facts& f) {
     const TraceFile& file = f.file;
     return once(file.numbers_beyond_json || file.control_characters || file.invalid_utf8 ||
                 file.byte_order_mark);
   },
   "the text has NaN, Infinity, an unescaped control character, a byte order mark or bytes that are no UTF-8",
   "orjson, with which it reads, ends with a JSONDecodeError; write strict JSON"},
  {"tracelens-list", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return once(f.file.bare_list); },
   "the file is a bare list of events", "it ends with an AttributeError; put the list into {\"traceEvents\": ...}"},
  {"tracelens-object", tracelens, refuses, "",
   [](const Event& e) { return !e.object; }, nullptr,
   "{one event is|# events are} no object", "it ends with a TypeError; leave them out"},
  {"tracelens-phase", tracelens, refuses, "",
   [](const Event& e) { return e.object && e.phase == 0; }, nullptr,
   "{one event has|# events have} no ph", "it ends with a KeyError; give each a phase"},
  {"tracelens-metadata", tracelens, refuses, "",
   [](const Event& e) {
     if (e.phase != 'M') return false;
     const Metadata* known = metadata_of(e);
     return known == nullptr || e.process.is == Is::missing || !(e.*known->member);
   }, nullptr,
   "{one metadata event is|# metadata events are} not one of the five that it knows, with pid and args",
   "it ends with a KeyError; leave others than the names, labels and sort indices of processes and threads out"},
  {"tracelens-args", tracelens, refuses, "",
   [](const Event& e) { return e.args_is != Is::missing && e.args_is != Is::object; }, nullptr,
   "{one event has|# events have} args that are no object",
   "it ends with an AttributeError; leave args out instead"},
  {"tracelens-times", tracelens, refuses, "",
   [](const Event& e) {
     return e.begin.is != Is::missing && e.duration.is != Is::missing && !e.timed();
   }, nullptr,
   "{one event has|# events have} a ts or a dur that is no number", "it ends with a TypeError; write numbers"},
  {"tracelens-call-tree", tracelens, refuses, "",
   [](const Event& e) { return in_call_tree(e) && (!e.timed() || e.name.is != Is::text); }, nullptr,
   "{one operator or launch has|# operators and launches have} no name, ts or dur",
   "it ends with a KeyError; give each all three"},
  {"tracelens-kernel-times", tracelens, refuses, "",
   [](const Event& e) { return e.on_device() && !e.timed(); }, nullptr,
   "{one kernel has|# kernels have} no ts or dur", "it ends with a KeyError; give each both"},
  {"tracelens-name", tracelens, refuses, "",
   [](const Event& e) { return e.object && e.name.is != Is::text && e.name.is != Is::missing; }, nullptr,
   "{one event has|# events have} a name that is no text", "it ends with an AttributeError; write names as text"},
{"tracelens-no-name", tracelens, refuses, "", nullptr,
   [](const Facts& f) {
     const TraceLensTree& tree = f.tracelens();
     return tallied(tree.has_operators() ? f.without_name : tree.nameless());
   },
   "{one event has|# events have} no name", "it ends with a KeyError; name each event"},
  {"tracelens-flow-id", tracelens, refuses, "",
   [](const Event& e) {
     return e.category == Category::flow_to_gpu && (e.phase == 's' || e.phase == 'f') &&
            e.id.is == Is::missing;
   }, nullptr,
   "{one ac2g flow has|# ac2g flows have} no id", "it ends with a KeyError; use the correlation"},
  {"tracelens-launch-args", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return tallied(f.tracelens().launch_without_args()); },
   "the first launch has no args", "it ends with a KeyError; write args.correlation"},
  {"tracelens-no-gpu", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return once(f.tracelens().kernels() == 0); },
   "there is no kernel, copy or fill of a GPU",
   "it ends with \"No GPU events found in the trace\", since it analyses no traces of CPUs"},
  {"tracelens-no-links", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return once(f.tracelens().kernels() > 0 && f.tracelens().linked() == 0); },
   "no ac2g flow leads from a launch to a kernel of its correlation, pid and tid",
   "it ends with \"No GPU events found in the trace\"; write both ends of the flows"},
  {"tracelens-launcher", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return tallied(f.tracelens().bad_launchers()); },
   "{one kernel is|# kernels are} launched by an operator without args, pid or tid",
   "it ends with a KeyError; give operators all three"},
  {"tracelens-worksheet", tracelens, refuses, "", nullptr,
   [](const Facts& f) { return tallied(f.tracelens().unwritable_names()); },
   "{one name|# names} of kernels or of operators that launch them {has|have} a control character",
   "writing the worksheet ends with an IllegalCharacterError; pass --output_csvs_dir"},
  {"tracelens-operator", tracelens, warns, "",
   [](const Event& e) {
     return e.category == Category::cpu_op &&
            (e.args_is == Is::missing || e.process.is == Is::missing || e.thread.is == Is::missing);
   }, nullptr,
   "{one operator has|# operators have} no args, pid or tid",
   "it ends with a KeyError at one of those whose cost it knows, such as aten::mm; give operators all three"},
  {"tracelens-waits", tracelens, warns, "", nullptr,
   [](const Facts& f) { return tallied(f.tracelens().waits()); },
   "{one launch leads|# launches lead} to a wait of category cuda_sync and to no kernel",
   "it may end with \"No GPU events found in the trace\" for an operator that only waits"},
  {"tracelens-unlinked", tracelens, warns, "", nullptr,
   [](const Facts& f) {
     return f.tracelens().linked() == 0 ? Finding{} : tallied(f.tracelens().unlinked());
   },
   "{one kernel has|# kernels have} no launch that an ac2g flow leads from",
   "it leaves them out; a kernel of a captured graph needs only the correlation of its cudaGraphLaunch"},
  {"tracelens-bleeding", tracelens, warns, "", nullptr,
   [](const Facts& f) { return tallied(f.tracelens().left_out()); },
   "{one operator or launch ends|# operators and launches end} after the operator around it",
   "it leaves them out of its tree"},
  {"tracelens-shapes", tracelens, warns, "", nullptr,
   [](const Facts& f) { return once(f.operators > 0 && !f.has_shapes); },
   "no operator has Input Dims", "it computes no FLOPs; record shapes"},
  {"tracelens-backward", tracelens, warns, "", nullptr,
   [](const Facts& f) { return once(f.has_gradients && !f.has_shared_sequence); },
   "no forward and backward operator share a Sequence number", "it has no backward metrics"},
};
// clang-format on

// Replaces "{one|many}" by the part for this count, "#" in it by the count and "{}" by the detail.
std::string filled(std::string_view text, std::uint64_t count, std::string_view detail) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{') {
      out += text[i];
      continue;
    }
    const std::size_t end = text.find('}', i), bar = text.find('|', i);
    if (end == i + 1) {
      out += detail;
    } else {
      const std::string_view part =
          count == 1 ? text.substr(i + 1, bar - i - 1) : text.substr(bar + 1, end - bar - 1);
      for (const char c : part)
        out += c == '#' ? format_count(static_cast<std::int64_t>(count)) : std::string(1, c);
    }
    i = end;
  }
  return out;
}

}  // namespace

std::span<const TraceTool> trace_tools() { return tools; }
std::span<const TraceRule> trace_rules() { return rules; }

void note_rules_of(const TraceEvent& event, std::vector<TraceTally>& of_rules) {
  of_rules.resize(std::size(rules));
  for (std::size_t i = 0; i < std::size(rules); ++i)
    if (rules[i].of_event != nullptr && rules[i].of_event(event)) of_rules[i].note(event.index);
}

std::string sentence_of(const TraceRule& rule, const TraceRule::Finding& finding) {
  return fmt::format("{}: {}", filled(rule.says, finding.count, finding.detail), rule.why);
}

}  // namespace ridge::trace
