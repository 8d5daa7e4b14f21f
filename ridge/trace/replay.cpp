#include "ridge/trace/replay.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "ridge/trace/idle_time.h"

namespace ridge::trace {
namespace {

constexpr std::int64_t boundary_ns =
    5'000;  // between two pieces of work that wait for nothing else
constexpr std::int64_t most_latency_ns =
    20'000;  // from a launch to its work, if nothing else holds it

}  // namespace

Replay::Replay(const Trace& trace, const Work& work) : trace_(trace), work_(work) {
  add_items();
  order();
  link_hosts();
  link_work();
  link_blocking();
}

void Replay::add_items() {
  const EventColumns& events = trace_.events;
  std::unordered_map<Row, bool> calls;
  for (const DeviceWork& one : work_.device) {
    items_.push_back({.kind = ReplayItem::Kind::work,
                      .row = one.row,
                      .work = one.work,
                      .begin_ns = events.begin_ns[one.row],
                      .end_ns = events.end_ns(one.row)});
    if (one.call != no_row) calls.try_emplace(one.call, false);
  }
  for (Row row = 0; row < events.size(); ++row)
    if (events.kind[row] == EventKind::call && is_blocking_call(trace_.name(row)))
      calls[row] = true;
  for (const auto& [row, blocks] : calls)
    items_.push_back({.row = row,
                      .blocks = blocks,
                      .begin_ns = events.begin_ns[row],
                      .end_ns = events.end_ns(row)});
  std::ranges::sort(items_, [](const ReplayItem& a, const ReplayItem& b) {
    return std::tuple(a.begin_ns, a.kind, a.row) < std::tuple(b.begin_ns, b.kind, b.row);
  });
}

// An end comes before a begin of the same time, which may wait for it; but not before its own
// begin.
void Replay::order() {
  struct Moment {
    std::int64_t time;
    bool is_end;
    std::uint32_t item;
  };
  std::vector<Moment> moments;
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    moments.push_back({items_[i].begin_ns, false, i});
    const std::int64_t end = std::max(items_[i].end_ns, items_[i].begin_ns + 1);
    if (items_[i].kind == ReplayItem::Kind::call) moments.push_back({end, true, i});
    if (items_[i].kind == ReplayItem::Kind::work &&
        (last_work_ == no_item || items_[i].end_ns >= items_[last_work_].end_ns))
      last_work_ = i;
  }
  std::ranges::sort(moments, [](const Moment& a, const Moment& b) {
    return std::tuple(a.time, !a.is_end, a.item) < std::tuple(b.time, !b.is_end, b.item);
  });
  for (const Moment& moment : moments) order_.emplace_back(moment.item, moment.is_end);
}

// A call follows the last call that had returned, of any thread, and the one before it on its own.
void Replay::link_hosts() {
  std::uint32_t last_ended = no_item;
  std::unordered_map<std::uint32_t, std::uint32_t> of_thread;
  for (const auto& [i, is_end] : order_) {
    ReplayItem& item = items_[i];
    if (item.kind != ReplayItem::Kind::call) continue;
    const std::uint32_t track = trace_.events.track[item.row];
    if (is_end) {
      last_ended = i;
      of_thread[track] = i;
      continue;
    }
    item.host = last_ended;
    if (last_ended != no_item) item.after_host_ns = item.begin_ns - items_[last_ended].end_ns;
    if (const auto at = of_thread.find(track); at != of_thread.end()) item.thread = at->second;
  }
}

void Replay::link_work() {
  std::unordered_map<Row, std::uint32_t> calls, work_of_row;
  for (std::uint32_t i = 0; i < items_.size(); ++i)
    (items_[i].kind == ReplayItem::Kind::call ? calls : work_of_row)[items_[i].row] = i;
  std::unordered_map<std::uint32_t, std::uint32_t> of_stream;
  std::vector<std::uint32_t> by_end;
  for (std::uint32_t i = 0; i < items_.size(); ++i)
    if (items_[i].kind == ReplayItem::Kind::work) by_end.push_back(i);
  std::ranges::sort(by_end, {}, [&](std::uint32_t i) { return items_[i].end_ns; });
  std::size_t ended = 0;
  for (const DeviceWork& one : work_.device) {
    const std::uint32_t i = work_of_row[one.row];
    ReplayItem& item = items_[i];
    std::int64_t explained = std::numeric_limits<std::int64_t>::min();
    if (one.call != no_row) {
      item.call = calls[one.call];
      const std::int64_t delay = item.begin_ns - items_[item.call].begin_ns;
      item.after_call_ns = std::clamp<std::int64_t>(delay, 0, most_latency_ns);
      explained = items_[item.call].begin_ns + item.after_call_ns;
    }
    std::uint32_t& stream =
        of_stream.try_emplace(trace_.events.track[one.row], no_item).first->second;
    if (stream != no_item && items_[stream].end_ns <= item.begin_ns) {
      item.stream = stream;
      item.after_stream_ns = std::min(item.begin_ns - items_[stream].end_ns, boundary_ns);
      explained = std::max(explained, items_[stream].end_ns + item.after_stream_ns);
    }
    stream = i;
    while (ended < by_end.size() && items_[by_end[ended]].end_ns <= item.begin_ns) ++ended;
    // The last to end of those that stand before it; work without length may stand at its begin.
    std::size_t at = ended;
    while (at > 0 && by_end[at - 1] >= i) --at;
    const std::uint32_t other = at > 0 ? by_end[at - 1] : no_item;
    if (other != no_item && other != item.stream && explained + boundary_ns < item.begin_ns) {
      item.other = other;
      item.after_other_ns = std::min(item.begin_ns - items_[other].end_ns, boundary_ns);
      explained = std::max(explained, items_[other].end_ns + item.after_other_ns);
    }
    const bool held = item.call != no_item || item.stream != no_item || item.other != no_item;
    item.rest_ns = held ? item.begin_ns - explained : 0;
  }
}

// A call that blocks waited for the last work that had ended when it returned, if that ended within
// it.
void Replay::link_blocking() {
  std::uint32_t last = no_item;
  std::vector<std::uint32_t> by_end;
  for (std::uint32_t i = 0; i < items_.size(); ++i) by_end.push_back(i);
  std::ranges::stable_sort(by_end, {}, [&](std::uint32_t i) { return items_[i].end_ns; });
  for (const std::uint32_t i : by_end) {
    ReplayItem& item = items_[i];
    if (item.kind == ReplayItem::Kind::work) {
      last = i;
    } else if (item.blocks && last != no_item && items_[last].end_ns > item.begin_ns) {
      item.waited_for = last;
      item.after_waited_ns = item.end_ns - items_[last].end_ns;
    }
  }
}

// When an item begins, by what it waits for; its times come in the trace's order, so that those are
// known.
ReplayTime Replay::begin_of(const ReplayItem& item, const std::vector<ReplayTime>& times,
                            const Change& change) const {
  ReplayTime time;
  const auto hold = [&](std::uint32_t by, std::int64_t at, HeldBy how) {
    if (by == no_item || (time.how != HeldBy::nothing && at <= time.begin_ns)) return;
    time = {.begin_ns = at, .held_by = by, .how = how};
  };
  const auto end_of = [&](std::uint32_t i) { return i == no_item ? 0 : times[i].end_ns; };
  if (item.kind == ReplayItem::Kind::work) {
    const std::int64_t launch = item.call == no_item ? 0 : times[item.call].begin_ns;
    hold(item.call, launch + item.after_call_ns, HeldBy::launch);
    hold(item.stream, end_of(item.stream) + item.after_stream_ns, HeldBy::stream);
    hold(item.other, end_of(item.other) + item.after_other_ns, HeldBy::other_stream);
  } else {
    const std::int64_t before = change.host_ns ? change.host_ns(item) : item.after_host_ns;
    hold(item.host, end_of(item.host) + before, HeldBy::host);
    hold(item.thread, end_of(item.thread), HeldBy::host);
  }
  if (time.how == HeldBy::nothing) time.begin_ns = item.begin_ns;
  time.begin_ns += item.rest_ns;
  return time;
}

std::vector<ReplayTime> Replay::times(const Change& change) const {
  std::vector<ReplayTime> times(items_.size());
  for (const auto& [i, is_end] : order_) {
    const ReplayItem& item = items_[i];
    ReplayTime& time = times[i];
    if (!is_end) time = begin_of(item, times, change);
    const bool waits = item.waited_for != no_item;
    if (!waits && !is_end) {
      const double factor = change.factor ? change.factor(item) : 1;
      time.end_ns = time.begin_ns + static_cast<std::int64_t>(
                                        static_cast<double>(item.end_ns - item.begin_ns) * factor);
    } else if (waits && is_end) {
      const std::int64_t done = times[item.waited_for].end_ns + item.after_waited_ns;
      time.end_waited = !change.nothing_blocks && done > time.begin_ns;
      time.end_ns = time.end_waited ? done : time.begin_ns;
    }
  }
  return times;
}

std::int64_t Replay::span_ns(const std::vector<ReplayTime>& times) const {
  if (times.empty()) return 0;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (std::size_t i = 0; i < times.size(); ++i) {
    begin = std::min(begin, times[i].begin_ns);
    if (items_[i].kind == ReplayItem::Kind::work) end = std::max(end, times[i].end_ns);
  }
  return end - begin;
}

}  // namespace ridge::trace
