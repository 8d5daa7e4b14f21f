// What recording costs a training step of the default model. Rounds of one step each in turns: off,
// without a recorder; off again, after one was attached and taken off, which shows how far two
// equal steps seem to differ; with one that records times; with everything that
// --enable-all-profiling records, hardware counters too where the system has them. The order
// changes from round to round, so that whatever else the machine does strikes all alike. Printed is
// the median of the ratios to the unrecorded step of the same round, with its 95 % confidence
// interval, for wall-clock time and for processor time; and whether the wall-clock time is under
// its limit: perhaps, if the interval has the limit in it.
//
//   recorder_overhead [rounds] [threads]...
//
// The exit code is 1 if it is over a limit.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/statistics.h"
#include "ridge/cpu/device.h"
#include "ridge/profile/counters.h"
#include "ridge/profile/recorder.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

struct Seconds {
  double wall = 0, processor = 0;
};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <class Step>
Seconds time(const Step& step) {
  const auto begin = Clock::now();
  const double processor = processor_seconds();
  step();
  return {std::chrono::duration<double>(Clock::now() - begin).count(),
          processor_seconds() - processor};
}

enum Mode : std::size_t { off, off_again, times, everything, mode_count };

struct Row {
  std::string_view name;
  std::optional<double> limit;  // of the wall-clock time, in percent
};
constexpr std::array<Row, mode_count> rows{
    {{"off", {}}, {"off again", {}}, {"times", 2}, {"everything", 5}}};

Seconds step_in(Mode mode, Session& session, HardwareCounters* counters) {
  Executor& executor = session.executor();
  if (mode == off) return time([&] { session.step(); });
  Recorder recorder({.memory = mode == everything});
  recorder.attach(executor);
  if (mode == off_again) {
    recorder.detach(executor);
    return time([&] { session.step(); });
  }
  const bool count = mode == everything && counters != nullptr;
  if (count) counters->attach(executor);
  const Seconds seconds = time([&] {
    recorder.begin_step(session.steps_done() + 1);
    recorder.end_step(session.step().loss);
  });
  if (count) counters->detach(executor);
  recorder.detach(executor);
  return seconds;
}

struct Interval {
  double median, low, high;  // in percent above 1
};

// The median and the order statistics that enclose it with 95 % confidence, whatever the
// distribution.
Interval interval(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const auto n = static_cast<double>(ratios.size());
  const auto at = [&](double rank) {
    return 100 * (ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))] - 1);
  };
  return {at((n - 1) / 2), at(std::floor(n / 2 - 0.98 * std::sqrt(n))),
          at(std::ceil(n / 2 + 0.98 * std::sqrt(n)))};
}

std::string text(const Interval& i) {
  return fmt::format("{:.2f} % ({:.2f} to {:.2f})", i.median, i.low, i.high);
}

std::string against(const Interval& i, double limit) {
  return fmt::format("{} {} %",
                     i.high < limit  ? "under"
                     : i.low > limit ? "OVER"
                                     : "perhaps under",
                     limit);
}

double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : std::nan("");
}

// Prints the rows of one number of threads; false if one broke its limit.
bool measure(int rounds, int threads, bool count) {
  RunOptions options;
  options.resolve();
  CpuDevice device(threads);
  Session session(options, device);
  for (int i = 0; i < 5; ++i) session.step();
  std::unique_ptr<HardwareCounters> counters;  // of the threads that there are by now
  if (count) counters = std::make_unique<HardwareCounters>();

  std::array<std::vector<double>, mode_count> wall, processor;
  std::vector<double> unrecorded;
  for (int round = 0; round < rounds; ++round) {
    std::array<Seconds, mode_count> seconds;
    for (std::size_t i = 0; i < mode_count; ++i) {
      const auto mode = static_cast<Mode>((i + static_cast<std::size_t>(round)) % mode_count);
      seconds[mode] = step_in(mode, session, counters.get());
    }
    unrecorded.push_back(1e3 * seconds[off].wall);
    for (std::size_t m = off_again; m < mode_count; ++m) {
      wall[m].push_back(seconds[m].wall / seconds[off].wall);
      processor[m].push_back(seconds[m].processor / seconds[off].processor);
    }
  }
  bool kept = true;
  for (std::size_t m = off_again; m < mode_count; ++m) {
    const Interval w = interval(wall[m]), p = interval(processor[m]);
    const std::optional<double> limit = rows[m].limit;
    kept &= !limit || w.low <= *limit;
    fmt::print("| {} | {:.1f} ms | {} | {} | {} | {} |\n", threads, percentile(unrecorded, 0.5),
               rows[m].name, text(w), text(p), limit ? against(w, *limit) : "");
    std::fflush(stdout);
  }
  return kept;
}

bool measure_all(int rounds, const std::vector<int>& threads) {
  std::string note = "hardware counters among everything";
  bool count = true;
  try {
    HardwareCounters{};
  } catch (const DeviceError& error) {
    note = error.what();
    count = false;
  }
  const double load = load_average();
  fmt::print(
      "| Threads | Step | Recorded | Wall time | Processor time | Wall time's limit |\n"
      "|---:|---:|---|---:|---:|---|\n");
  bool kept = true;
  for (const int t : threads) kept &= measure(rounds, t, count);
  fmt::print("\n{}; {} rounds; load average {:.1f} before, {:.1f} after; {}\n",
             CpuDevice(threads.back()).description(), rounds, load, load_average(), note);
  return kept;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
  std::vector<int> threads;
  for (int i = 2; i < argc; ++i) threads.push_back(std::max(1, std::atoi(argv[i])));
  if (threads.empty()) threads = {1, ridge::available_processors()};
  return ridge::measure_all(rounds, threads) ? 0 : 1;
}
