// What recording costs a training step of the default model: steps without a recorder, with one
// that records times, and with one that records memory too (and with hardware counters, where the
// system has them) follow each other in changing order, so that whatever else the machine does
// strikes all alike. Printed is the median of the ratios to the unrecorded step of the same round,
// with its 95 % confidence interval, for wall-clock time and for processor time.
//
//   recorder_overhead [rounds] [threads]

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/profile/counters.h"
#include "ridge/profile/recorder.h"
#include "ridge/train/trainer.h"

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

Seconds timed_step(Trainer& trainer) {
  const auto begin = Clock::now();
  const double processor = processor_seconds();
  trainer.step();
  return {std::chrono::duration<double>(Clock::now() - begin).count(),
          processor_seconds() - processor};
}

enum class Mode : std::uint8_t { off, times, memory, counters };

Seconds step_in(Mode mode, Trainer& trainer, HardwareCounters* counters) {
  Executor& executor = trainer.executor();
  if (mode == Mode::off) return timed_step(trainer);
  if (mode == Mode::counters) {
    counters->attach(executor);
    const Seconds seconds = timed_step(trainer);
    counters->detach(executor);
    return seconds;
  }
  Recorder recorder({.memory = mode == Mode::memory});
  recorder.attach(executor);
  recorder.begin_step(trainer.steps_done() + 1);
  const Seconds seconds = timed_step(trainer);
  recorder.end_step(0);
  recorder.detach(executor);
  return seconds;
}

// The median and the order statistics that enclose it with 95 % confidence, whatever the
// distribution.
std::string interval(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const auto n = static_cast<double>(ratios.size());
  const auto at = [&](double rank) {
    return 100 * (ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))] - 1);
  };
  return fmt::format("{:+6.2f} % [{:+.2f}, {:+.2f}]", at((n - 1) / 2),
                     at(std::floor(n / 2 - 0.98 * std::sqrt(n))),
                     at(std::ceil(n / 2 + 0.98 * std::sqrt(n))));
}

void measure(int rounds, int threads) {
  TrainOptions options;
  options.resolve();
  CpuDevice device(threads);
  Trainer trainer(options, device);
  std::unique_ptr<HardwareCounters> counters;
  std::vector<Mode> modes{Mode::off, Mode::times, Mode::memory};
  try {
    counters = std::make_unique<HardwareCounters>();
    modes.push_back(Mode::counters);
  } catch (const DeviceError& error) {
    fmt::print("{}\n", error.what());
  }
  for (int i = 0; i < 5; ++i) trainer.step();

  constexpr std::size_t mode_count = 4;
  std::array<std::vector<double>, mode_count> wall, processor;
  double unrecorded = 0;
  for (int round = 0; round < rounds; ++round) {
    std::array<Seconds, mode_count> seconds;
    for (std::size_t i = 0; i < modes.size(); ++i) {
      const Mode mode = modes[(i + static_cast<std::size_t>(round)) % modes.size()];
      seconds[static_cast<std::size_t>(mode)] = step_in(mode, trainer, counters.get());
    }
    unrecorded += seconds[0].wall / rounds;
    for (std::size_t m = 1; m < modes.size(); ++m) {
      wall[m].push_back(seconds[m].wall / seconds[0].wall);
      processor[m].push_back(seconds[m].processor / seconds[0].processor);
    }
  }
  fmt::print("{} rounds, {} threads, {:.2f} ms per unrecorded step\n", rounds, threads,
             1e3 * unrecorded);
  constexpr std::array<std::string_view, mode_count> names{"", "times", "times and memory",
                                                           "hardware counters"};
  for (std::size_t m = 1; m < modes.size(); ++m)
    fmt::print("{:<20} wall {}, processor {}\n", names[m], interval(wall[m]),
               interval(processor[m]));
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
  const int threads =
      argc > 2 ? std::max(1, std::atoi(argv[2])) : ridge::CpuDevice::default_threads();
  ridge::measure(rounds, threads);
}
