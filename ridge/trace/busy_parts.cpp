#include "ridge/trace/busy_parts.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace ridge::trace {
namespace {

constexpr std::size_t classes = 3;

// The time that a piece of work of each class would have been given by now, had it run from the
// begin.
using Given = std::array<double, classes>;

// Time goes on from one begin or end to the next.
class Clock {
 public:
  void advance(std::int64_t to) {
    const auto first = std::ranges::find_if(running_, [](int count) { return count > 0; });
    if (first != running_.end())
      given_[static_cast<std::size_t>(first - running_.begin())] +=
          static_cast<double>(to - at_) / *first;
    at_ = to;
  }
  void begin(WorkClass work) { ++running_[static_cast<std::size_t>(work)]; }
  void end(WorkClass work) { --running_[static_cast<std::size_t>(work)]; }
  const Given& given() const { return given_; }
  double given(WorkClass work) const { return given_[static_cast<std::size_t>(work)]; }

 private:
  std::array<int, classes> running_{};
  Given given_{};
  std::int64_t at_ = 0;
};

class Division {
 public:
  Division(const Trace& trace, const Work& work, std::span<const std::int64_t> bounds)
      : trace_(trace), work_(work), bounds_(bounds), begun_(work.device.size()) {}

  std::vector<BusyPart> divide();

 private:
  struct Begun {
    double given = 0;
    std::size_t bounds = 0;  // that had been passed
  };

  std::int64_t end_of(std::uint32_t i) const {
    const Row row = work_.device[i].row;
    return trace_.events.begin_ns[row] + std::max<std::int64_t>(trace_.events.duration_ns[row], 0);
  }
  void advance(std::int64_t to);
  void begin(std::uint32_t i);
  void end(std::uint32_t i);
  void add(std::uint32_t i, std::size_t bound, double ns);

  const Trace& trace_;
  const Work& work_;
  std::span<const std::int64_t> bounds_;
  std::vector<Begun> begun_;
  std::vector<Given> at_bounds_;  // for those that have been passed
  Clock clock_;
  std::vector<BusyPart> parts_;
};

void Division::advance(std::int64_t to) {
  while (at_bounds_.size() < bounds_.size() && bounds_[at_bounds_.size()] <= to) {
    clock_.advance(bounds_[at_bounds_.size()]);
    at_bounds_.push_back(clock_.given());
  }
  clock_.advance(to);
}

void Division::begin(std::uint32_t i) {
  const DeviceWork& one = work_.device[i];
  advance(trace_.events.begin_ns[one.row]);
  begun_[i] = {clock_.given(one.work), at_bounds_.size()};
  clock_.begin(one.work);
}

void Division::end(std::uint32_t i) {
  const WorkClass work = work_.device[i].work;
  advance(end_of(i));
  clock_.end(work);
  double from = begun_[i].given;
  for (std::size_t bound = begun_[i].bounds; bound < at_bounds_.size(); ++bound) {
    const double to = at_bounds_[bound][static_cast<std::size_t>(work)];
    add(i, bound, to - from);
    from = to;
  }
  add(i, at_bounds_.size(), clock_.given(work) - from);
}

// Adds what was given before the bound of this number, and after the one before it.
void Division::add(std::uint32_t i, std::size_t bound, double ns) {
  if (bound == 0 || bound >= bounds_.size() || ns <= 0) return;
  parts_.push_back({i, static_cast<std::uint32_t>(bound - 1), ns * 1e-3});
}

std::vector<BusyPart> Division::divide() {
  std::vector<std::uint32_t> by_end(work_.device.size());
  std::iota(by_end.begin(), by_end.end(), 0U);
  std::ranges::sort(by_end, {}, [&](std::uint32_t i) { return end_of(i); });
  std::uint32_t next = 0;
  for (const std::uint32_t ending : by_end) {
    while (next < work_.device.size() &&
           trace_.events.begin_ns[work_.device[next].row] <= end_of(ending))
      begin(next++);
    end(ending);
  }
  return std::move(parts_);
}

}  // namespace

std::vector<BusyPart> busy_parts(const Trace& trace, const Work& work,
                                 std::span<const std::int64_t> bounds) {
  return Division(trace, work, bounds).divide();
}

}  // namespace ridge::trace
