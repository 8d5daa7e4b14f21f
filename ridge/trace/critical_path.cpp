#include "ridge/trace/critical_path.h"

#include <algorithm>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/trace/replay.h"
#include "ridge/trace/times.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {
namespace {

PathKind kind_of(WorkClass work) {
  return work == WorkClass::compute         ? PathKind::compute
         : work == WorkClass::communication ? PathKind::communication
                                            : PathKind::copy;
}

class PathWalker {
 public:
  PathWalker(const Trace& trace, const HostNesting& nesting, const Replay& replay)
      : trace_(trace), nesting_(nesting), replay_(replay), times_(replay.times({})) {}

  CriticalPath walk();

 private:
  void add(PathKind kind, const std::string& name, std::int64_t ns);
  void add_host(std::uint32_t track, std::int64_t begin, std::int64_t end);
  std::uint32_t before_work(std::uint32_t i);
  std::uint32_t before_call(std::uint32_t i, std::int64_t until);

  const Trace& trace_;
  const HostNesting& nesting_;
  const Replay& replay_;
  std::vector<ReplayTime> times_;
  std::map<std::pair<PathKind, std::string>, PathShare> shares_;
  CriticalPath path_;
  // For a call whose begin, not whose end, the path comes from.
  bool from_begin_ = false;
};

void PathWalker::add(PathKind kind, const std::string& name, std::int64_t ns) {
  if (ns <= 0) return;
  PathShare& share = shares_[{kind, name}];
  share.kind = kind;
  share.name = name;
  share.us += us(ns);
  ++share.count;
}

// Adds a stretch of a thread's time, by the operators and annotations that it was in.
void PathWalker::add_host(std::uint32_t track, std::int64_t begin, std::int64_t end) {
  const auto& stretches = nesting_.stretches(track);
  std::int64_t outside = std::max<std::int64_t>(end - begin, 0);
  auto at = std::ranges::upper_bound(stretches, begin, {}, &HostStretch::end_ns);
  for (; at != stretches.end() && at->begin_ns < end; ++at) {
    const std::int64_t inside = std::min(at->end_ns, end) - std::max(at->begin_ns, begin);
    const Row row = at->annotation != no_row ? at->annotation : at->operation;
    add(PathKind::host, trace_.name(row), inside);
    outside -= inside;
  }
  add(PathKind::host, "(Python, outside of operators and annotations)", outside);
}

// Adds a piece of work and what lies before it; what it waited for.
std::uint32_t PathWalker::before_work(std::uint32_t i) {
  const ReplayItem& item = replay_.items()[i];
  path_.rows.push_back(item.row);
  add(kind_of(item.work), short_kernel_name(trace_.name(item.row)), item.end_ns - item.begin_ns);
  const ReplayTime& time = times_[i];
  if (time.how == HeldBy::nothing) return no_item;
  from_begin_ = time.how == HeldBy::launch;
  const std::int64_t from =
      from_begin_ ? times_[time.held_by].begin_ns : times_[time.held_by].end_ns;
  const std::int64_t latency = time.begin_ns - item.rest_ns - from;
  add(PathKind::latency,
      time.how == HeldBy::launch   ? "from a launch to its work"
      : time.how == HeldBy::stream ? "between two pieces of work on a stream"
                                   : "from one stream to another",
      latency);
  add(PathKind::unknown, "nothing that the trace shows", item.rest_ns);
  return time.held_by;
}

// Adds a call up to a time, and the host's time before it.
std::uint32_t PathWalker::before_call(std::uint32_t i, std::int64_t until) {
  const ReplayItem& item = replay_.items()[i];
  const ReplayTime& time = times_[i];
  const bool to_end = until == time.end_ns;
  from_begin_ = false;
  if (to_end && time.end_waited) {
    add(PathKind::call, trace_.name(item.row), time.end_ns - times_[item.waited_for].end_ns);
    return item.waited_for;
  }
  add(PathKind::call, trace_.name(item.row), until - time.begin_ns);
  if (time.how == HeldBy::nothing) return no_item;
  add_host(trace_.events.track[item.row], times_[time.held_by].end_ns, time.begin_ns);
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
  std::ranges::reverse(path_.rows);
  for (auto& [_, share] : shares_) path_.shares.push_back(std::move(share));
  std::ranges::stable_sort(path_.shares, std::greater(), &PathShare::us);
  return std::move(path_);
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

CriticalPath critical_path(const Trace& trace, const Work& work, const HostNesting& nesting) {
  if (work.of_host || work.device.empty())
    throw FormatError("nothing ran on a card in {}: its critical path is the host's time",
                      shown(trace.file));
  const Replay replay(trace, work);
  CriticalPath path = PathWalker(trace, nesting, replay).walk();
  path.what_ifs = what_ifs_of(trace, nesting, replay, path);
  return path;
}

}  // namespace ridge::trace
