#include "ridge/profile/trace_facts.h"

#include <algorithm>
#include <array>
#include <functional>

namespace ridge {
namespace {

using Is = TraceEvent::Is;
using Category = TraceEvent::Category;

constexpr std::string_view gradient_prefix = "autograd::engine::evaluate_function:";
// The launches that HolisticTraceAnalysis 0.5.0 and 0.6.1 have statistics of.
constexpr std::array<std::string_view, 4> known_launches{"cudaLaunchKernel", "cudaLaunchKernelExC",
                                                         "cudaMemcpyAsync", "cudaMemsetAsync"};

bool is_module(const nlohmann::json& event) {
  const auto args = event.find("args");
  return args != event.end() && args->contains("Python module id");
}

}  // namespace

void TraceFacts::add(const TraceEvent& event) {
  ++events;
  if (!event.object) return;
  hta_.add(event);
  tracelens_.add(event);
  note_name(event);
  categories += event.category_is != Is::missing;
  durations += event.duration_is != Is::missing;
  drawn += std::string_view("XBiIC").find(event.phase) != std::string_view::npos;
  if (event.phase == 's' || event.phase == 't' || event.phase == 'f') add_flow(event);
  if (!event.slice()) return;
  ++slices;
  steps += event.name.starts_with("ProfilerStep#");
  if (event.timed() && event.duration >= 0)
    tracks_[track_of(event)].push_back({event.begin, event.begin + event.duration, event.source});
  if (event.category == Category::cpu_op) add_operator(event);
  if (!event.on_device() && event.category != Category::runtime) return;
  const auto correlation = identity_of(event.correlation);
  if (!correlation) return;
  if (event.on_device())
    kernels_.push_back(*correlation);
  else
    launches_[*correlation] = std::ranges::find(known_launches, event.name) != known_launches.end();
}

void TraceFacts::add_operator(const TraceEvent& event) {
  ++operators;
  has_shapes |= event.argument("Input Dims") != nullptr;
  const bool gradient = event.name.starts_with(gradient_prefix);
  has_gradients |= gradient;
  if (const auto number = identity_of(event.argument("Sequence number")))
    (gradient ? gradient_sequences_ : forward_sequences_).insert(*number);
}

void TraceFacts::add_flow(const TraceEvent& event) {
  const std::uint64_t id = identity_of(event.member("id")).value_or(0);
  Flow& flow = flows_[id ^ std::hash<std::string_view>()(event.category_name)];
  flow.begins |= event.phase == 's';
  flow.ends |= event.phase == 'f';
  flow.event = event.source;
}

// torch-tb-profiler reads names from the last event backwards, until it has found two that PyTorch
// writes at the end of a trace (torch_tb_profiler/profiler/data.py, _preprocess_file).
void TraceFacts::note_name(const TraceEvent& event) {
  if (event.name_is == Is::missing) without_name.note(event.source);
  if (event.name_is != Is::text) nameless_.emplace_back(event.index + 1, event.source);
  if (event.name == "Record Window End") last_window_end_ = event.index + 1;
  if (event.name.starts_with("Iteration Start:")) last_iteration_ = event.index + 1;
}

void TraceFacts::finish() {
  hta_.finish();
  tracelens_.finish();
  find_crossing();
  count_launches();
  for (const auto& [id, flow] : flows_)
    if (!flow.begins || !flow.ends) flows_with_one_end.note(flow.event);
  const std::size_t asked = std::min(last_window_end_, last_iteration_);
  for (const auto& [index, event] : nameless_)
    if (index > asked) late_without_name.note(event);
  has_shared_sequence = std::ranges::any_of(
      gradient_sequences_, [this](std::uint64_t n) { return forward_sequences_.contains(n); });
}

// Slices of a track are boxes within boxes: one that begins within another ends within it.
void TraceFacts::find_crossing() {
  constexpr double rounding = 1e-3;  // us: times are given to the nanosecond
  for (auto& [track, of_track] : tracks_) {
    std::ranges::stable_sort(of_track, [](const Slice& a, const Slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<const Slice*> open;
    for (const Slice& slice : of_track) {
      while (!open.empty() && open.back()->end <= slice.begin + rounding &&
             slice.end > open.back()->end)
        open.pop_back();
      if (!open.empty() && slice.end > open.back()->end + rounding) {
        crossing.note(slice.event);
        if (is_module(*slice.event) || is_module(*open.back()->event))
          crossing_modules.note(slice.event);
      }
      open.push_back(&slice);
    }
  }
}

void TraceFacts::count_launches() {
  for (const std::uint64_t correlation : kernels_) {
    const auto launch = launches_.find(correlation);
    if (launch == launches_.end()) continue;
    ++launched_kernels;
    other_launches += !launch->second;
  }
}

}  // namespace ridge
