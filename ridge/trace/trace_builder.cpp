#include "ridge/trace/trace_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ridge::trace {
namespace {

constexpr std::int64_t most_ns = std::int64_t{1} << 62;

bool is_believed(std::int64_t time_ns) { return -most_ns < time_ns && time_ns < most_ns; }

// The text of a list of lists of numbers without its spaces; empty if it is none.
std::string compact_list(std::string_view text) {
  std::string list;
  for (const char c : text)
    if (c != ' ') list += c;
  const bool plain = list.find_first_not_of("0123456789-,[]") == std::string::npos;
  return plain && list.starts_with('[') && list.ends_with(']') ? list : "";
}

// In which PyTorch and its libraries register operators.
bool is_operator(std::string_view name) {
  static constexpr std::string_view spaces[] = {
      "aten::",    "autograd::", "prim::",     "prims::",       "c10d::",     "torch::",
      "torchao::", "inductor::", "xformers::", "torchvision::", "quantized::"};
  return std::ranges::any_of(spaces,
                             [&](std::string_view space) { return name.starts_with(space); });
}

}  // namespace

TraceBuilder::TraceBuilder(Trace& trace) : trace_(trace) {
  std::uint32_t number = 0;
  for (const Track& track : trace.tracks)
    tracks_.try_emplace({track.process, track.thread}, number++);
}

TextPool::Id TraceBuilder::list(std::int64_t x, std::int64_t y, std::int64_t z) {
  return text(fmt::format("[{},{},{}]", x, y, z));
}

std::uint32_t TraceBuilder::track(std::string_view process, std::string_view thread) {
  const auto next = static_cast<std::uint32_t>(trace_.tracks.size());
  const auto [at, added] = tracks_.try_emplace({std::string(process), std::string(thread)}, next);
  if (added) trace_.tracks.push_back({.process = at->first.first, .thread = at->first.second});
  return at->second;
}

void TraceBuilder::add(const Slice& slice) {
  ++trace_.event_count;
  if (!is_believed(slice.begin_ns) || !is_believed(slice.end_ns)) return;
  EventColumns& rows = trace_.events;
  rows.kind.push_back(slice.kind);
  rows.name.push_back(slice.name);
  rows.track.push_back(slice.track);
  rows.begin_ns.push_back(slice.begin_ns);
  rows.duration_ns.push_back(std::max<std::int64_t>(slice.end_ns - slice.begin_ns, 0));
  rows.correlation.push_back(slice.correlation);
  rows.external.push_back(EventColumns::none);
  rows.bytes.push_back(slice.bytes);
  rows.shape.push_back(slice.shape);
  rows.types.push_back(slice.types);
  rows.values.push_back(0);
  if (is_on_device(slice.kind)) trace_.tracks[slice.track].device = true;
}

void TraceBuilder::add_card(const std::string& id, std::string_view name) {
  cards_.try_emplace(id, name);
}

void TraceBuilder::finish() {
  if (cards_.empty()) return;
  nlohmann::json cards = nlohmann::json::array();
  for (const auto& [id, name] : cards_) {
    const nlohmann::json number = nlohmann::json::parse(id, nullptr, false);
    cards.push_back({{"id", number.is_number() ? number : nlohmann::json(id)}, {"name", name}});
  }
  trace_.properties["deviceProperties"] =
      cards.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RangeName range_name(std::string_view text) {
  RangeName range{.name = text, .shape = {}};
  static constexpr std::string_view appended[] = {
      ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "};
  for (const std::string_view part : appended) range.name = range.name.substr(0, text.find(part));
  const std::string_view rest = text.substr(range.name.size());
  constexpr std::string_view sizes = ", sizes = ";
  if (const auto at = rest.find(sizes); at != std::string_view::npos) {
    const std::string_view list = rest.substr(at + sizes.size());
    range.shape = compact_list(list.substr(0, list.find(", input_op_ids")));
  }
  // A user's record_function() has no number in autograd's sequence; ProfilerStep#3 is one.
  const bool numbered = rest.find(", seq = ") != std::string_view::npos;
  if (is_operator(range.name) || (numbered && range.name.find('#') == std::string_view::npos))
    range.kind = EventKind::operation;
  return range;
}

std::string copy_name(char from, char to, std::string_view from_memory,
                      std::string_view to_memory) {
  const std::string direction = fmt::format("Memcpy {}to{}", from, to);
  if (from_memory.empty() || to_memory.empty()) return direction;
  return fmt::format("{} ({} -> {})", direction, from_memory, to_memory);
}

}  // namespace ridge::trace
