#include "ridge/cpu/peaks.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "ridge/cpu/kernels.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Long against the time that threads take to start together, short against the time slices of a
// scheduler, so that some samples pass undisturbed on a busy machine too.
constexpr double sample_seconds = 200e-6;
// A thread that waits for the others keeps its processor for this long, or it would lose it to
// another program just as the sample begins.
constexpr std::chrono::milliseconds longest_spin{3};

// One thread's task of each sample: all threads start together, and the sample lasts until the last
// has finished. As each waits for the others, no thread can take two tasks.
class Start {
 public:
  explicit Start(int threads) : threads_(threads) {}

  // Returns when all threads have come; one of them is told the time.
  void wait() {
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      begin_ = Clock::now();
      open_.store(true, std::memory_order_release);
    }
    const Clock::time_point patience = Clock::now() + longest_spin;
    while (!open_.load(std::memory_order_acquire))
      if (Clock::now() > patience) std::this_thread::yield();
  }
  Clock::time_point begin() const { return begin_; }

 private:
  int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<bool> open_{false};
  Clock::time_point begin_;
};

// Seconds that `work(thread)` takes on all threads of the pool at once.
template <class F>
double seconds_of(ThreadPool& pool, const F& work) {
  Start start(pool.size());
  std::vector<Clock::time_point> ends(static_cast<std::size_t>(pool.size()));
  pool.run(pool.size(), [&](std::int64_t thread) {
    start.wait();
    work(thread);
    ends[static_cast<std::size_t>(thread)] = Clock::now();
  });
  return Seconds(*std::ranges::max_element(ends) - start.begin()).count();
}

// The best rate of `work(count, thread)`, which does `count` times `units` on each thread.
template <class F>
double best_rate(ThreadPool& pool, double units, std::chrono::nanoseconds duration, const F& work) {
  // As many as make a sample long enough on this thread alone, which nothing keeps waiting; judged
  // by the best of some tries, since any may be disturbed.
  std::int64_t count = 1;
  const auto seconds_alone = [&] {
    const Clock::time_point begin = Clock::now();
    work(count, 0);
    return Seconds(Clock::now() - begin).count();
  };
  for (double seconds = 0; seconds < sample_seconds / 2;) {
    seconds = std::min({seconds_alone(), seconds_alone(), seconds_alone()});
    const double growth = std::clamp(sample_seconds / std::max(seconds, 1e-9), 1.0, 100.0);
    count = static_cast<std::int64_t>(std::ceil(static_cast<double>(count) * growth));
  }
  const auto seconds_together = [&] {
    return seconds_of(pool, [&](std::int64_t thread) { work(count, thread); });
  };
  const Clock::time_point end = Clock::now() + duration;
  double best = seconds_together();
  while (Clock::now() < end) best = std::min(best, seconds_together());
  return static_cast<double>(count) * units * pool.size() / best;
}

// A thread's arrays lie in one block, and the loop goes over them in segments, one after the other
// and round again, so that a sample of an array that no cache holds need not sweep all of it.
class Arrays {
 public:
  Arrays(std::size_t bytes, std::size_t count)
      : floats_(std::max(bytes / count / sizeof(float) / step * step, step)),
        // Apart from each other by more than their size, so that a store to one is not taken for a
        // store to the next 4 KiB further on.
        distance_(floats_ + 272),
        segment_(std::min(floats_, std::size_t{64} << 10)),
        block_(new (std::align_val_t{64}) float[distance_ * count]) {
    std::fill_n(block_.get(), distance_ * count, 1.0f);
  }

  float* first() const { return block_.get() + position_; }
  std::size_t distance() const { return distance_; }
  std::size_t segment() const { return segment_; }
  void advance() {
    position_ += segment_;
    if (position_ + segment_ > floats_) position_ = 0;
  }

  static constexpr std::size_t step = 128;  // floats that a loop takes at a time

 private:
  struct Free {
    void operator()(float* block) const { ::operator delete[](block, std::align_val_t{64}); }
  };
  std::size_t floats_, distance_, segment_, position_ = 0;
  std::unique_ptr<float[], Free> block_;
};

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int number_of(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string_view name_of(AccessPattern access) {
  switch (access) {
    case AccessPattern::read:
      return "read";
    case AccessPattern::copy:
      return "copy";
    case AccessPattern::triad:
      return "triad";
  }
  return "unknown";
}

int count_of_cpu_list(std::string_view list) {
  int count = 0;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    const std::size_t dash = range.find('-');
    count += dash == std::string_view::npos
                 ? 1
                 : std::max(1, number_of(range.substr(dash + 1)) - number_of(range) + 1);
    list.remove_prefix(std::min(list.size(), range.size() + 1));
  }
  return std::max(count, 1);
}

std::size_t bytes_of_cache_size(std::string_view size) {
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), bytes);
  if (error != std::errc() || end == size.data() + size.size()) return bytes;
  const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  return bytes << shift;
}

std::vector<CpuCache> cpu_caches() {
  std::vector<CpuCache> caches;
  for (int index = 0;; ++index) {
    const std::filesystem::path directory =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    const std::string type = first_line(directory / "type");
    if (type.empty()) break;
    const std::size_t bytes = bytes_of_cache_size(first_line(directory / "size"));
    if (type == "Instruction" || bytes == 0) continue;
    caches.push_back({.level = number_of(first_line(directory / "level")),
                      .bytes = bytes,
                      .sharing = count_of_cpu_list(first_line(directory / "shared_cpu_list"))});
  }
  std::ranges::sort(caches, {}, &CpuCache::level);
  return caches;
}

double measure_flops(const FlopsKernel& kernel, ThreadPool& pool,
                     std::chrono::nanoseconds duration) {
  return best_rate(pool, static_cast<double>(kernel.flops_per_round), duration,
                   [&](std::int64_t rounds, std::int64_t) { kernel.run(rounds); });
}

double measure_bandwidth(AccessPattern access, std::size_t bytes_per_thread, ThreadPool& pool,
                         std::chrono::nanoseconds duration) {
  const std::size_t count = access == AccessPattern::read   ? 1
                            : access == AccessPattern::copy ? 2
                                                            : 3;
  const auto sweep = cpu_kernels().sweep;
  std::vector<std::optional<Arrays>> arrays(static_cast<std::size_t>(pool.size()));
  seconds_of(pool, [&](std::int64_t thread) {
    arrays[static_cast<std::size_t>(thread)].emplace(bytes_per_thread, count);
  });
  const double bytes = static_cast<double>(arrays[0]->segment() * sizeof(float) * count);
  return best_rate(pool, bytes, duration, [&](std::int64_t segments, std::int64_t thread) {
    Arrays& own = *arrays[static_cast<std::size_t>(thread)];
    for (std::int64_t i = 0; i < segments; ++i, own.advance()) {
      sweep(access, own.first(), own.distance(), own.segment());
      asm volatile("" ::: "memory");  // the next sweep is no repetition of this one
    }
  });
}

}  // namespace ridge
