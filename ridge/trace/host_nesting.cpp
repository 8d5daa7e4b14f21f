#include "ridge/trace/host_nesting.h"

#include <algorithm>
#include <charconv>

namespace ridge::trace {
namespace {

bool stands_on_host(EventKind kind) {
  return kind == EventKind::operation || kind == EventKind::call || kind == EventKind::annotation;
}

// Takes the time up to `until` for what goes on.
void extend(std::vector<HostStretch>& stretches, const HostStretch& now) {
  if (now.end_ns <= now.begin_ns || (now.annotation == no_row && now.operation == no_row)) return;
  if (!stretches.empty()) {
    HostStretch& last = stretches.back();
    if (last.end_ns == now.begin_ns && last.annotation == now.annotation &&
        last.operation == now.operation) {
      last.end_ns = now.end_ns;
      return;
    }
  }
  stretches.push_back(now);
}

}  // namespace

void sort_outer_first(const EventColumns& events, std::vector<Row>& rows) {
  std::ranges::sort(rows, [&](Row a, Row b) {
    if (events.begin_ns[a] != events.begin_ns[b]) return events.begin_ns[a] < events.begin_ns[b];
    if (events.duration_ns[a] != events.duration_ns[b])
      return events.duration_ns[a] > events.duration_ns[b];
    return a < b;
  });
}

std::int64_t step_number(std::string_view name) {
  constexpr std::string_view prefix = "ProfilerStep#";
  std::int64_t number = -1;
  if (!name.starts_with(prefix)) return number;
  name.remove_prefix(prefix.size());
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number;
}

HostNesting::HostNesting(const Trace& trace)
    : operation_(trace.events.size(), no_row),
      parent_(trace.events.size(), no_row),
      self_ns_(trace.events.duration_ns),
      stretches_(trace.tracks.size()) {
  std::vector<std::vector<Row>> rows(trace.tracks.size());
  for (Row row = 0; row < trace.events.size(); ++row) {
    if (stands_on_host(trace.events.kind[row])) rows[trace.events.track[row]].push_back(row);
  }
  for (std::vector<Row>& of_track : rows) nest(trace, of_track);
}

void HostNesting::nest(const Trace& trace, std::vector<Row>& rows) {
  if (rows.empty()) return;
  const EventColumns& events = trace.events;
  sort_outer_first(events, rows);
  const std::uint32_t track = events.track[rows.front()];
  struct Open {
    Row row = no_row, operation = no_row;
    Row outer_annotation = no_row, outer_operation = no_row;
    std::int64_t end = 0;
  };
  std::vector<Open> open;
  std::int64_t at = events.begin_ns[rows.front()];
  const auto advance = [&](std::int64_t until) {
    if (!open.empty())
      extend(stretches_[track],
             {at, until, open.back().outer_annotation, open.back().outer_operation});
    at = std::max(at, until);
  };
  const auto close_before = [&](std::int64_t time) {
    while (!open.empty() && open.back().end <= time) {
      advance(open.back().end);
      open.pop_back();
    }
  };
  for (const Row row : rows) {
    const std::int64_t begin = events.begin_ns[row];
    close_before(begin);
    advance(begin);
    Open next = open.empty() ? Open() : open.back();
    parent_[row] = next.row;
    next.row = row;
    if (events.kind[row] == EventKind::annotation) {
      if (next.outer_annotation == no_row && step_number(trace.name(row)) < 0)
        next.outer_annotation = row;
    } else {
      if (next.outer_operation == no_row) next.outer_operation = row;
      if (parent_[row] != no_row) self_ns_[parent_[row]] -= events.duration_ns[row];
      if (events.kind[row] == EventKind::operation) next.operation = row;
    }
    operation_[row] = next.operation;
    // A slice that ends after the one around it is cut there.
    next.end = open.empty() ? events.end_ns(row) : std::min(events.end_ns(row), open.back().end);
    if (next.end > begin) open.push_back(next);
  }
  close_before(std::numeric_limits<std::int64_t>::max());
}

}  // namespace ridge::trace
