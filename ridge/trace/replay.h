#pragma once

// A run of host and cards again, with some of it faster: see critical_path.h.

#include <cstdint>
#include <functional>
#include <vector>

#include "ridge/trace/device_work.h"

namespace ridge::trace {

inline constexpr std::uint32_t no_item = 0xFFFFFFFF;

// The kind of thing that held up an item's begin last.
enum class HeldBy : std::uint8_t { nothing, host, launch, stream, other_stream, work };

struct ReplayItem {
  enum class Kind : std::uint8_t { call, work };
  Kind kind = Kind::call;
  Row row = no_row;
  WorkClass work = WorkClass::compute;
  bool blocks = false;  // a call that waits for the card
  std::int64_t begin_ns = 0, end_ns = 0;
  // The items that it waits for, each with the time from its end (of a launch: its begin) to this
  // one's begin.
  std::uint32_t call = no_item, stream = no_item, other = no_item, host = no_item, thread = no_item;
  std::int64_t after_call_ns = 0, after_stream_ns = 0, after_other_ns = 0, after_host_ns = 0;
  std::int64_t rest_ns = 0;  // that nothing of this explains
  // The work that a blocking call waits for, and the time from its end to the call's.
  std::uint32_t waited_for = no_item;
  std::int64_t after_waited_ns = 0;
};

struct ReplayTime {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint32_t held_by = no_item;  // whose end, or begin, its begin waited for last
  HeldBy how = HeldBy::nothing;
  bool end_waited = false;  // a call: its end waited for waited_for
};

class Replay {
 public:
  Replay(const Trace& trace, const Work& work);

  struct Change {
    // How long an item takes of the time it took; 1 unless given.
    std::function<double(const ReplayItem&)> factor;
    // How much of the host's time before a call is left; all unless given.
    std::function<std::int64_t(const ReplayItem&)> host_ns;
    bool nothing_blocks = false;
  };
  // The times of all items, in their order.
  std::vector<ReplayTime> times(const Change& change) const;
  std::int64_t span_ns(const std::vector<ReplayTime>& times) const;

  const std::vector<ReplayItem>& items() const { return items_; }
  std::uint32_t last_work() const { return last_work_; }

 private:
  ReplayTime begin_of(const ReplayItem& item, const std::vector<ReplayTime>& times,
                      const Change& change) const;
  void add_items();
  void order();
  void link_hosts();
  void link_work();
  void link_blocking();

  const Trace& trace_;
  const Work& work_;
  std::vector<ReplayItem> items_;  // in the order of their begins
  // Begins of items and ends of calls in the order of time: index, and whether it is an end.
  std::vector<std::pair<std::uint32_t, bool>> order_;
  std::uint32_t last_work_ = no_item;
};

}  // namespace ridge::trace
