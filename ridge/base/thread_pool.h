#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ridge {

// The processors that this process may run on; at least 1.
int available_processors();

// A fixed set of threads that share the tasks of one loop at a time. Which thread runs a task is
// left open, so a kernel whose tasks write disjoint memory, and whose task boundaries do not depend
// on the number of threads, gives the same bits on any number of them. All our kernels are such.
//
// The calling thread works too. Idle threads spin for some microseconds, because the loops of one
// training step follow each other closely, and then sleep. One run() at a time, from one thread.
class ThreadPool {
 public:
  // At least 1. DeviceError if the system does not give as many. Those it starts take no signals.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, tasks) and returns when all have returned. The first
  // exception of any of them is rethrown here.
  template <class F>
  void run(std::int64_t tasks, const F& body) {
    run_erased(tasks, &body, [](const void* f, std::int64_t i) { (*static_cast<const F*>(f))(i); });
  }

 private:
  using Call = void (*)(const void* body, std::int64_t index);

  void run_erased(std::int64_t tasks, const void* body, Call call);
  bool run_one();  // takes and runs one task; false if there is none
  void work();
  void stop();
  void wait_for_ticket(std::uint64_t seen);

  // The generation of the loop in the upper half, its tasks not yet taken in the lower. Taking a
  // task is one compare-and-swap, which fails for a thread that still holds an older generation.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::uint32_t> unfinished_{0};
  std::atomic<bool> stopping_{false};
  // Written before ticket_ is published and read only by holders of a task of that loop.
  std::uint32_t tasks_ = 0;
  const void* body_ = nullptr;
  Call call_ = nullptr;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

// Splits [0, n) into chunks of `grain` (the last may be shorter) and calls body(begin, end) for
// each. The chunks depend on n and grain only.
template <class F>
void parallel_for(ThreadPool& pool, std::int64_t n, std::int64_t grain, const F& body) {
  const std::int64_t chunks = (n + grain - 1) / grain;
  if (chunks <= 1) {
    if (n > 0) body(std::int64_t{0}, n);
    return;
  }
  pool.run(chunks, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * grain;
    body(begin, begin + grain < n ? begin + grain : n);
  });
}

}  // namespace ridge
