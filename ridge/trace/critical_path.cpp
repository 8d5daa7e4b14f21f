#include "ridge/trace/critical_path.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>

#include "ridge/base/utf8.h"
#include "ridge/trace/times.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {
namespace {

PathKind kind_of(WorkClass work) {
  return work == WorkClass::compute         ? PathKind::compute
         : work == WorkClass::communication ? PathKind::communication
                                            : PathKind::copy;
}

// What a piece of the path waited for.
struct Wait {
  HeldBy how = HeldBy::nothing;
  std::uint32_t item = no_item;
};

class PathWalker {
 public:
  PathWalker(const Trace& trace, const HostNesting& nesting, const Replay& replay)
      : trace_(trace), nesting_(nesting), replay_(replay), times_(replay.times({})) {}

  CriticalPath walk();

 private:
  void add(PathKind kind, const std::string& name, Row row, const Interval& time,
           const Wait& wait = {});
  void add_host(std::uint32_t track, const Interval& time, const Wait& wait);
  std::uint32_t before_work(std::uint32_t i);
  std::uint32_t before_call(std::uint32_t i, std::int64_t until);
  void sort_shares();

  const Trace& trace_;
  const HostNesting& nesting_;
  const Replay& replay_;
  std::vector<ReplayTime> times_;
  std::map<std::pair<PathKind, std::string>, std::uint32_t> shares_;  // in path_.shares
  CriticalPath path_;
  // For a call whose begin, not whose end, the path comes from.
  bool from_begin_ = false;
};

// Adds what lies before all that has been added.
void PathWalker::add(PathKind kind, const std::string& name, Row row, const Interval& time,
                     const Wait& wait) {
  if (time.end_ns <= time.begin_ns) return;
  const auto [at, is_new] =
      shares_.try_emplace({kind, name}, static_cast<std::uint32_t>(path_.shares.size()));
  if (is_new) path_.shares.push_back({.kind = kind, .name = name});
  PathShare& share = path_.shares[at->second];
  share.us += us(time.end_ns - time.begin_ns);
  ++share.count;
  path_.pieces.push_back(
      {.share = at->second,
       .row = row,
       .begin_ns = time.begin_ns,
       .end_ns = time.end_ns,
       .held_by = wait.how,
       .waited_for = wait.item == no_item ? no_row : replay_.items()[wait.item].row});
}

// Adds a stretch of a thread's time, by the operators and annotations that it was in.
void PathWalker::add_host(std::uint32_t track, const Interval& time, const Wait& wait) {
  const auto outside = [&](std::int64_t begin, std::int64_t end) {
    add(PathKind::host, "(Python, outside of operators and annotations)", no_row, {begin, end},
        wait);
  };
  const auto& stretches = nesting_.stretches(track);
  const auto first = std::ranges::upper_bound(stretches, time.begin_ns, {}, &HostStretch::end_ns);
  auto at =
      std::ranges::lower_bound(first, stretches.end(), time.end_ns, {}, &HostStretch::begin_ns);
  std::int64_t until = time.end_ns;
  while (at != first) {
    --at;
    const std::int64_t begin = std::max(at->begin_ns, time.begin_ns);
    const std::int64_t end = std::min(at->end_ns, time.end_ns);
    const Row row = at->annotation != no_row ? at->annotation : at->operation;
    outside(end, until);
    add(PathKind::host, trace_.name(row), row, {begin, end}, wait);
    until = begin;
  }
  outside(time.begin_ns, until);
}

// Adds a piece of work and what lies before it; what it waited for.
std::uint32_t PathWalker::before_work(std::uint32_t i) {
  const ReplayItem& item = replay_.items()[i];
  const ReplayTime& time = times_[i];
  ++path_.work;
  add(kind_of(item.work), short_kernel_name(trace_.name(item.row)), item.row,
      {time.begin_ns, time.end_ns}, {time.how, time.held_by});
  if (time.how == HeldBy::nothing) return no_item;
  from_begin_ = time.how == HeldBy::launch;
  const std::int64_t from =
      from_begin_ ? times_[time.held_by].begin_ns : times_[time.held_by].end_ns;
  const std::int64_t explained = time.begin_ns - item.rest_ns;
  add(PathKind::unknown, "nothing that the trace shows", no_row, {explained, time.begin_ns});
  add(PathKind::latency,
      time.how == HeldBy::launch   ? "from a launch to its work"
      : time.how == HeldBy::stream ? "between two pieces of work on a stream"
                                   : "from one stream to another",
      no_row, {from, explained});
  return time.held_by;
}

// Adds a call up to a time, and the host's time before it.
std::uint32_t PathWalker::before_call(std::uint32_t i, std::int64_t until) {
  const ReplayItem& item = replay_.items()[i];
  const ReplayTime& time = times_[i];
  const bool to_end = until == time.end_ns;
  from_begin_ = false;
  if (to_end && time.end_waited) {
    add(PathKind::call, trace_.name(item.row), item.row,
        {times_[item.waited_for].end_ns, time.end_ns}, {HeldBy::work, item.waited_for});
    return item.waited_for;
  }
  const Wait wait{time.how, time.held_by};
  add(PathKind::call, trace_.name(item.row), item.row, {time.begin_ns, until}, wait);
  if (time.how == HeldBy::nothing) return no_item;
  add_host(trace_.events.track[item.row], {times_[time.held_by].end_ns, time.begin_ns}, wait);
  return time.held_by;
}

CriticalPath PathWalker::walk() {
  path_.span_us = us(replay_.span_ns(times_));
  for (std::uint32_t i = replay_.last_work(); i != no_item;) {
    const bool is_work = replay_.items()[i].kind == ReplayItem::Kind::work;
    if (is_work)
      i = before_work(i);
    else
      i = before_call(i, from_begin_ ? times_[i].begin_ns : times_[i].end_ns);
  }
  std::ranges::reverse(path_.pieces);
  sort_shares();
  return std::move(path_);
}

// Puts those of most time first.
void PathWalker::sort_shares() {
  std::vector<std::uint32_t> order(path_.shares.size()), place(order.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const PathShare &one = path_.shares[a], &other = path_.shares[b];
    return std::tuple(-one.us, one.kind, std::string_view(one.name)) <
           std::tuple(-other.us, other.kind, std::string_view(other.name));
  });
  std::vector<PathShare> sorted;
  for (const std::uint32_t i : order) {
    place[i] = static_cast<std::uint32_t>(sorted.size());
    sorted.push_back(std::move(path_.shares[i]));
  }
  path_.shares = std::move(sorted);
  for (PathPiece& piece : path_.pieces) piece.share = place[piece.share];
}

// The host's time before a call, less that in annotations of a data loader.
std::int64_t without_data_loader(const Trace& trace, const HostNesting& nesting,
                                 const Replay& replay, const ReplayItem& item) {
  if (item.host == no_item) return item.after_host_ns;
  const std::int64_t begin = replay.items()[item.host].end_ns, end = item.begin_ns;
  std::int64_t left = item.after_host_ns;
  const auto& stretches = nesting.stretches(trace.events.track[item.row]);
  auto at = std::ranges::upper_bound(stretches, begin, {}, &HostStretch::end_ns);
  for (; at != stretches.end() && at->begin_ns < end; ++at)
    if (at->annotation != no_row &&
        trace.name(at->annotation).find("DataLoader") != std::string::npos)
      left -= std::min(at->end_ns, end) - std::max(at->begin_ns, begin);
  return std::max<std::int64_t>(left, 0);
}

std::vector<WhatIf> what_ifs_of(const Trace& trace, const HostNesting& nesting,
                                const Replay& replay, const CriticalPath& path) {
  std::vector<WhatIf> all;
  const auto add = [&](std::string change, const Replay::Change& how) {
    all.push_back({std::move(change), us(replay.span_ns(replay.times(how)))});
  };
  const auto only = [](auto select, double factor) {
    return Replay::Change{
        .factor = [=](const ReplayItem& item) { return select(item) ? factor : 1.0; }};
  };
  const auto is_work = [](const ReplayItem& item) { return item.kind == ReplayItem::Kind::work; };
  add("launches free", only([=](const ReplayItem& i) { return !is_work(i); }, 0));
  add("launches free, and no host time between calls",
      {.factor = [=](const ReplayItem& item) { return is_work(item) ? 1.0 : 0.0; },
       .host_ns = [](const ReplayItem&) { return std::int64_t{0}; }});
  add("no call waiting for the card", {.nothing_blocks = true});
  add("no time in the data loader", {.host_ns = [&](const ReplayItem& item) {
        return without_data_loader(trace, nesting, replay, item);
      }});
  add("no time in communication",
      only([=](const ReplayItem& i) { return is_work(i) && i.work == WorkClass::communication; },
           0));
  add("no time in copies and fills",
      only([=](const ReplayItem& i) { return is_work(i) && i.work == WorkClass::copy; }, 0));
  constexpr std::size_t most_kernels = 5;
  std::size_t kernels = 0;
  for (const PathShare& share : path.shares) {
    if (share.kind != PathKind::compute || ++kernels > most_kernels) continue;
    std::vector<bool> named(trace.texts.size());  // texts that the table shows by this name
    for (TextPool::Id id = 0; id < named.size(); ++id)
      named[id] = short_kernel_name(trace.texts[id]) == share.name;
    add("twice as fast: " + share.name,
        only([&](const ReplayItem& i) { return is_work(i) && named[trace.events.name[i.row]]; },
             0.5));
  }
  std::ranges::stable_sort(all, {}, &WhatIf::span_us);
  return all;
}

}  // namespace

std::string path_kind_name(PathKind kind) {
  static constexpr const char* names[] = {"compute", "communication", "copy",   "host",
                                          "call",    "latency",       "unknown"};
  return names[static_cast<std::size_t>(kind)];
}

FormatError no_critical_path(const std::string& file) {
  return FormatError("nothing ran on a card in {}: its critical path is the host's time",
                     shown(file));
}

CriticalPath critical_path(const Trace& trace, const Work& work, const HostNesting& nesting) {
  if (work.of_host || work.device.empty()) throw no_critical_path(trace.file);
  const Replay replay(trace, work);
  CriticalPath path = PathWalker(trace, nesting, replay).walk();
  path.what_ifs = what_ifs_of(trace, nesting, replay, path);
  return path;
}

}  // namespace ridge::trace
