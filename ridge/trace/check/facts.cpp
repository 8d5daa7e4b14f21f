#include "ridge/trace/check/facts.h"

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_map>
#include <utility>

namespace ridge::trace {
namespace {

using Is = TraceValue::Is;
using Category = TraceEvent::Category;

constexpr std::string_view gradient_prefix = "autograd::engine::evaluate_function:";
// The launches that HolisticTraceAnalysis 0.5.0 and 0.6.1 have statistics of.
constexpr std::array<std::string_view, 4> known_launches{"cudaLaunchKernel", "cudaLaunchKernelExC",
                                                         "cudaMemcpyAsync", "cudaMemsetAsync"};

template <class T>
void push_all(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

void TraceFacts::add(const TraceEvent& event) {
  ++events;
  if (!event.object) return;
  note_name(event);
  categories += event.category_name.is != Is::missing;
  durations += event.duration.is != Is::missing;
  drawn += std::string_view("XBiIC").find(event.phase) != std::string_view::npos;
  if (event.phase == 's' || event.phase == 't' || event.phase == 'f') add_flow(event);
  add_row(event);
  if (!event.slice()) return;
  ++slices;
  steps += event.name.text.starts_with("ProfilerStep#");
  if (event.category == Category::cpu_op) add_operator(event);
}

void TraceFacts::add_operator(const TraceEvent& event) {
  ++operators;
  has_shapes |= event.has_shapes;
  const bool gradient = event.name.text.starts_with(gradient_prefix);
  has_gradients |= gradient;
  if (const auto number = identity_of(event.sequence))
    (gradient ? gradient_sequences_ : forward_sequences_).push_back(*number);
}

void TraceFacts::add_flow(const TraceEvent& event) {
  const std::uint64_t id = identity_of(event.id).value_or(0);
  flows_.push_back({.flow = id ^ std::hash<std::string_view>()(event.category_name.text),
                    .event = event.index,
                    .begins = event.phase == 's',
                    .ends = event.phase == 'f'});
}

void TraceFacts::add_row(const TraceEvent& event) {
  TraceRow row{.track = track_of(event),
               .begin = event.begin.number,
               .end = event.end(),
               .event = event.index,
               .category = event.category,
               .begins = event.begin.is == Is::number,
               .timed = event.timed(),
               .slice = event.slice(),
               .box = event.slice() && event.timed() && event.duration.number >= 0,
               .placed = event.process.is != Is::missing && event.thread.is != Is::missing,
               .has_args = event.args_is != Is::missing,
               .module = event.has_module,
               .named = event.name.is != Is::missing};
  if (const auto number = identity_of(event.correlation)) {
    row.correlation = *number;
    row.has_correlation = true;
  }
  row.known_launch = std::ranges::find(known_launches, event.name.text) != known_launches.end();
  hta_.add(event, row);
  const bool in_tree = tracelens_.add(event, row);
  if (row.box || row.in_hta || in_tree) rows_.push_back(row);
}

// torch-tb-profiler reads names from the last event backwards, until it has found two that PyTorch
// writes at the end of a trace (torch_tb_profiler/profiler/data.py, _preprocess_file).
void TraceFacts::note_name(const TraceEvent& event) {
  if (event.name.is == Is::missing) without_name.note(event.index);
  if (event.name.is != Is::text) nameless_.push_back(event.index);
  if (event.name.text == "Record Window End") last_window_end_ = event.index + 1;
  if (event.name.text.starts_with("Iteration Start:")) last_iteration_ = event.index + 1;
}

void TraceFacts::append(TraceFacts&& following) {
  const std::uint32_t before = events;
  file.byte_order_mark |= following.file.byte_order_mark;
  file.numbers_beyond_json |= following.file.numbers_beyond_json;
  file.control_characters |= following.file.control_characters;
  file.invalid_utf8 |= following.file.invalid_utf8;
  file.rank_text |= following.file.rank_text;
  events += following.events;
  slices += following.slices;
  drawn += following.drawn;
  steps += following.steps;
  operators += following.operators;
  categories += following.categories;
  durations += following.durations;
  has_shapes |= following.has_shapes;
  has_gradients |= following.has_gradients;
  without_name.add(following.without_name.after(before));
  of_rules.resize(std::max(of_rules.size(), following.of_rules.size()));
  for (std::size_t i = 0; i < following.of_rules.size(); ++i)
    of_rules[i].add(following.of_rules[i].after(before));
  hta_.append(std::move(following.hta_), before);
  tracelens_.append(std::move(following.tracelens_), before);

  for (TraceRow& row : following.rows_) {
    row.event += before;
    rows_.push_back(row);
  }
  for (FlowEvent& flow : following.flows_) flow.event += before;
  push_all(flows_, following.flows_);
  push_all(forward_sequences_, following.forward_sequences_);
  push_all(gradient_sequences_, following.gradient_sequences_);
  for (std::uint32_t& event : following.nameless_) event += before;
  push_all(nameless_, following.nameless_);
  if (following.last_window_end_) last_window_end_ = before + following.last_window_end_;
  if (following.last_iteration_) last_iteration_ = before + following.last_iteration_;
}

void TraceFacts::finish(ThreadPool& pool) {
  const std::function<void()> questions[] = {[this] { find_crossing(); },
                                             [this] { tracelens_.finish(rows_); },
                                             [this] { hta_.finish(rows_); },
                                             [this] {
                                               count_launches();
                                               pair_flows();
                                               compare_sequences();
                                               find_late_names();
                                             }};
  pool.run(std::ssize(questions), [&](std::int64_t i) { questions[i](); });
}

// Slices of a track are boxes within boxes: one that begins within another ends within it.
void TraceFacts::find_crossing() {
  constexpr double rounding = 1e-3;  // us: times are given to the nanosecond
  struct Box {
    std::uint64_t track;
    double begin, end;
    const TraceRow* row;
  };
  std::vector<Box> boxes;
  for (const TraceRow& row : rows_)
    if (row.box) boxes.push_back({row.track, row.begin, row.end, &row});
  std::ranges::sort(boxes, [](const Box& a, const Box& b) {
    if (a.track != b.track) return a.track < b.track;
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end > b.end : a.row->event < b.row->event;
  });
  std::vector<const Box*> open;
  for (const Box& box : boxes) {
    if (!open.empty() && open.back()->track != box.track) open.clear();
    while (!open.empty() && open.back()->end <= box.begin + rounding && box.end > open.back()->end)
      open.pop_back();
    if (!open.empty() && box.end > open.back()->end + rounding) {
      crossing.note(box.row->event);
      if (box.row->module || open.back()->row->module) crossing_modules.note(box.row->event);
    }
    open.push_back(&box);
  }
}

void TraceFacts::count_launches() {
  std::unordered_map<std::uint64_t, bool> known;  // whether HTA knows the launch, by correlation
  for (const TraceRow& row : rows_)
    if (row.slice && row.category == Category::runtime && row.has_correlation)
      known[row.correlation] = row.known_launch;
  for (const TraceRow& row : rows_) {
    if (!row.slice || !row.on_device() || !row.has_correlation) continue;
    const auto launch = known.find(row.correlation);
    if (launch == known.end()) continue;
    ++launched_kernels;
    other_launches += !launch->second;
  }
}

void TraceFacts::pair_flows() {
  std::ranges::stable_sort(flows_, {}, &FlowEvent::flow);
  for (std::size_t i = 0; i < flows_.size();) {
    bool begins = false, ends = false;
    const std::size_t first = i;
    for (; i < flows_.size() && flows_[i].flow == flows_[first].flow; ++i) {
      begins |= flows_[i].begins;
      ends |= flows_[i].ends;
    }
    if (!begins || !ends) flows_with_one_end.note(flows_[i - 1].event);
  }
}

void TraceFacts::compare_sequences() {
  for (std::vector<std::uint64_t>* numbers : {&forward_sequences_, &gradient_sequences_})
    std::ranges::sort(*numbers);
  auto forward = forward_sequences_.begin();
  for (const std::uint64_t number : gradient_sequences_) {
    forward = std::lower_bound(forward, forward_sequences_.end(), number);
    has_shared_sequence |= forward != forward_sequences_.end() && *forward == number;
  }
}

void TraceFacts::find_late_names() {
  const std::uint64_t asked = std::min(last_window_end_, last_iteration_);
  for (const std::uint32_t event : nameless_)
    if (event >= asked) late_without_name.note(event);
}

}  // namespace ridge::trace
