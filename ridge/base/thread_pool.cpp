#include "ridge/base/thread_pool.h"

#include <sched.h>

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <system_error>
#include <utility>

#include "ridge/base/error.h"

namespace ridge {

int available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}
namespace {

// Some 30 to 100 µs: longer than the serial gap between two kernels of a step, shorter than
// anything a user would notice as a busy idle program.
constexpr int spins_before_sleep = 4000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// While it lives, threads start with all signals blocked. Kernels that oneDNN generates keep
// addresses of data in the stack pointer (its sgemm does): a handler that ran on top of them would
// write its frame into tensors and the heap. The thread that calls run() is the caller's: see
// note_interrupts().
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

constexpr std::uint64_t tasks_left(std::uint64_t ticket) { return ticket & 0xFFFFFFFFu; }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw UsageError("a thread pool needs at least 1 thread, not {}", threads);
  const SignalsBlocked blocked;
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size();
    stop();
    throw DeviceError("cannot start {} threads, only {}: {}; ask for fewer", threads, started + 1,
                      error.code().message());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_release);
  ticket_.fetch_add(std::uint64_t{1} << 32, std::memory_order_acq_rel);
  ticket_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(std::int64_t tasks, const void* body, Call call) {
  if (tasks <= 0) return;
  if (workers_.empty() || tasks == 1) {
    for (std::int64_t i = 0; i < tasks; ++i) call(body, i);
    return;
  }
  if (tasks > std::numeric_limits<std::uint32_t>::max())
    throw Error("a parallel loop of {} tasks is too long", tasks);
  body_ = body;
  call_ = call;
  tasks_ = static_cast<std::uint32_t>(tasks);
  unfinished_.store(tasks_, std::memory_order_relaxed);
  const std::uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  // Not merely released: notify_all() asks whether anyone sleeps, and must not ask before the store
  // is seen by one who is about to.
  ticket_.store((generation << 32) | tasks_, std::memory_order_seq_cst);
  ticket_.notify_all();

  while (run_one()) {
  }
  for (int spin = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < spins_before_sleep)
      relax();
    else if (const std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0)
      unfinished_.wait(left, std::memory_order_acquire);
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

bool ThreadPool::run_one() {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (tasks_left(ticket) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  try {
    call_(body_, static_cast<std::int64_t>(tasks_ - tasks_left(ticket)));
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
  return true;
}

void ThreadPool::work() {
  while (true) {
    // In this order: a ticket that the destructor had moved on shows that we are stopping, and one
    // that it moves on later differs from `seen`.
    const std::uint64_t seen = ticket_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_acquire)) return;
    while (run_one()) {
    }
    wait_for_ticket(seen);
  }
}

// Returns when the ticket offers tasks, or has changed from `seen`.
void ThreadPool::wait_for_ticket(std::uint64_t seen) {
  for (int spin = 0;; ++spin) {
    const std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (ticket != seen || tasks_left(ticket) != 0) return;
    if (spin < spins_before_sleep)
      relax();
    else
      ticket_.wait(ticket, std::memory_order_acquire);
  }
}

}  // namespace ridge
