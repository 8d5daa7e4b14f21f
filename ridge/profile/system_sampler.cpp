#include "ridge/profile/system_sampler.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <set>
#include <span>

namespace ridge {
namespace {

constexpr std::chrono::milliseconds slow_interval(100);  // of what is slow to read
// What is read at every sample takes at most a 40th of a processor, and so does what is slow.
constexpr int most_of_a_processor = 40;

std::chrono::nanoseconds processor_time_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// The ticks that the processes of a family took until now.
double ticks_of(const std::vector<ProcessText>& processes, std::int64_t ancestor) {
  const std::set<std::int64_t> family = family_of(processes, ancestor);
  double ticks = 0;
  for (const ProcessText& process : processes)
    if (family.contains(process.id)) ticks += process.ticks + process.ticks_of_children;
  return ticks;
}

// The memory that is used and that is not, in the first sample.
std::uint64_t memory_of(const SystemSamples& samples) {
  const std::size_t used = samples.find(system_names::memory_used),
                    available = samples.find(system_names::available);
  if (std::max(used, available) >= samples.series.size()) return 0;
  const double bytes = samples.at(0, used) + samples.at(0, available);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

double others_cores(const SystemSamples& samples, double ticks_at_begin, double ticks_at_end) {
  const std::size_t busy = samples.find(system_names::all_busy);
  if (busy == samples.series.size() || samples.seconds() <= 0) return SystemSamples::unread;
  const double all = samples.at(samples.time_ns.size() - 1, busy) - samples.at(0, busy);
  const double ticks = std::max(0.0, all - (ticks_at_end - ticks_at_begin));
  return ticks / ticks_per_second() / samples.seconds();
}

}  // namespace

SystemSampler::SystemSampler(const Config& config)
    : config_(config),
      reader_({.root = config.root,
               .family = config.follows_family ? std::optional(config.family) : std::nullopt}),
      processes_at_begin_(list_processes(config.root)) {
  samples_.series = reader_.series();
  samples_.missing = reader_.missing();
  samples_.cores = static_cast<int>(std::ranges::count_if(samples_.series, [](const auto& one) {
    return one.core >= 0 && one.group == SystemGroup::cores;
  }));
  samples_.interval_seconds = seconds(config.interval);
  sample(true);
  samples_.memory_bytes = memory_of(samples_);
  thread_ = std::thread([this] { run(); });
}

SystemSampler::~SystemSampler() { stop(); }

void SystemSampler::sample(bool with_slow) {
  samples_.time_ns.push_back(now_ns());
  const std::size_t before = samples_.values.size();
  samples_.values.resize(before + samples_.series.size());
  reader_.read(std::span(samples_.values).subspan(before), with_slow);
}

void SystemSampler::run() {
  using Steady = std::chrono::steady_clock;
  std::chrono::nanoseconds interval = std::max(config_.interval, std::chrono::milliseconds(1));
  const std::size_t row_bytes = sizeof(double) * (samples_.series.size() + 1);
  const std::size_t most = std::max<std::size_t>(16, config_.max_bytes / row_bytes);
  Steady::time_point next = Steady::now() + interval, next_slow = Steady::now() + slow_interval;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_until(lock, next, [this] { return stop_; })) {
    const auto began = processor_time_of_thread();
    const Steady::time_point now = Steady::now();
    const bool with_slow = now >= next_slow;
    sample(with_slow);
    if (samples_.time_ns.size() >= most) {
      halve();
      interval *= 2;
    }
    const auto rest = most_of_a_processor * (processor_time_of_thread() - began);
    next += interval;
    if (with_slow)
      next_slow = now + std::max<std::chrono::nanoseconds>(slow_interval, rest);
    else
      next = std::max(next, now + rest);
    if (next < Steady::now()) next = Steady::now() + interval;  // the machine had no time for it
  }
  samples_.sampling_seconds = seconds(processor_time_of_thread());
}

// Drops every second sample, but none that has what is slow to read beside one that has not.
void SystemSampler::halve() {
  const std::size_t width = samples_.series.size();
  std::size_t kept = 1;
  for (std::size_t i = 1; i + 1 < samples_.time_ns.size(); i += 2, ++kept) {
    const auto unread = [&](std::size_t sample) {
      std::size_t count = 0;
      for (std::size_t s = 0; s < width; ++s) count += std::isnan(samples_.at(sample, s));
      return count;
    };
    const std::size_t from = unread(i) < unread(i + 1) ? i : i + 1;
    samples_.time_ns[kept] = samples_.time_ns[from];
    std::copy_n(samples_.values.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                samples_.values.begin() + static_cast<std::ptrdiff_t>(kept * width));
  }
  samples_.time_ns.resize(kept);
  samples_.values.resize(kept * width);
}

SystemSamples SystemSampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (!thread_.joinable()) return {};
  thread_.join();
  sample(true);
  const std::vector<ProcessText> now = list_processes(config_.root);
  const std::set<std::int64_t> family = family_of(now, config_.family);
  samples_.others_cores = others_cores(samples_, ticks_of(processes_at_begin_, config_.family),
                                       ticks_of(now, config_.family));
  samples_.others = busy_strangers(processes_at_begin_, now, family, samples_.seconds());
  samples_.processes = reader_.processes();
  return std::move(samples_);
}

}  // namespace ridge
