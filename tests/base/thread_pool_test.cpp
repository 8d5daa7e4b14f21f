#include "ridge/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "tests/base/sanitized.h"

namespace ridge {
namespace {

class ThreadPoolOf : public ::testing::TestWithParam<int> {};
// More threads than most machines have cores, too: a thread is then often stopped between two
// steps.
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, ::testing::Values(1, 2, 4, 13));

TEST_P(ThreadPoolOf, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const std::int64_t tasks : {0, 1, 2, 3, 64, 1000, 20011}) {
    std::vector<int> runs(static_cast<std::size_t>(tasks),
                          0);  // plain: tasks write disjoint memory
    pool.run(tasks, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
    for (std::size_t i = 0; i < runs.size(); ++i) ASSERT_EQ(runs[i], 1) << "task " << i;
  }
}

TEST_P(ThreadPoolOf, RethrowsAnExceptionAndGoesOn) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 50; ++round) {
    auto fail_at_37 = [](std::int64_t i) {
      if (i == 37) throw std::runtime_error("task 37");
    };
    EXPECT_THROW(pool.run(100, fail_at_37), std::runtime_error);
    std::atomic<int> runs{0};
    pool.run(100, [&](std::int64_t) { ++runs; });
    ASSERT_EQ(runs, 100);
  }
}

TEST_P(ThreadPoolOf, RethrowsOneOfManyExceptions) {
  ThreadPool pool(GetParam());
  auto fail = [](std::int64_t i) { throw std::runtime_error(std::to_string(i)); };
  for (int round = 0; round < 50; ++round) EXPECT_THROW(pool.run(30, fail), std::runtime_error);
}

// Loops so short that some threads still look for tasks of one loop when the next is published. A
// thread that mixed two loops up would run a task of a dead body, twice, or never.
TEST_P(ThreadPoolOf, ManyTinyLoopsDoNotMix) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 5000; ++loop) {
    const std::int64_t tasks = 1 + loop % 7;
    std::vector<int> written(static_cast<std::size_t>(tasks), -1);
    pool.run(tasks, [&written, loop](std::int64_t i) {
      int& cell = written[static_cast<std::size_t>(i)];
      cell = cell == -1 ? loop : -2;
    });
    for (const int value : written) ASSERT_EQ(value, loop);
  }
}

// What one loop writes, another thread reads in the next.
TEST_P(ThreadPoolOf, ALoopSeesWhatTheOneBeforeWrote) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> a(100), b(100);
  std::iota(a.begin(), a.end(), 0);
  for (int loop = 0; loop < 1000; ++loop) {
    pool.run(100, [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      b[at] = a[99 - at] + 1;
    });
    std::swap(a, b);
  }
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], static_cast<std::int64_t>(i) + 1000);
}

TEST_P(ThreadPoolOf, WakesFromSleep) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 5; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // far beyond the spinning
    std::atomic<int> runs{0};
    pool.run(8, [&](std::int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++runs;
    });
    ASSERT_EQ(runs, 8);
  }
}

TEST_P(ThreadPoolOf, ComesAndGoesWithoutWork) {
  for (int i = 0; i < 50; ++i) {
    const ThreadPool idle(GetParam());
  }
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    std::atomic<int> runs{0};
    pool.run(3, [&](std::int64_t) { ++runs; });
    ASSERT_EQ(runs, 3);
  }
}

TEST(ThreadPool, OfOneRunsInOrderOnTheCallingThread) {
  ThreadPool pool(1);
  const auto caller = std::this_thread::get_id();
  std::vector<std::int64_t> order;
  pool.run(5, [&](std::int64_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, SharesTheWork) {
  ThreadPool pool(2);
  // Each task waits for the other: one thread alone would never end.
  std::atomic<int> arrived{0};
  pool.run(2, [&](std::int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, NeedsAThread) {
  EXPECT_THROW(ThreadPool(0), UsageError);
  EXPECT_THROW(ThreadPool(-1), UsageError);
}

TEST(ParallelFor, ChunksDependOnTheExtentAndGrainAlone) {
  using Chunks = std::vector<std::pair<std::int64_t, std::int64_t>>;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    auto chunks = [&](std::int64_t n, std::int64_t grain) {
      Chunks found(static_cast<std::size_t>((n + grain - 1) / grain));
      parallel_for(pool, n, grain, [&](std::int64_t begin, std::int64_t end) {
        found[static_cast<std::size_t>(begin / grain)] = {begin, end};
      });
      return found;
    };
    EXPECT_EQ(chunks(0, 4), (Chunks{}));
    EXPECT_EQ(chunks(3, 4), (Chunks{{0, 3}}));
    EXPECT_EQ(chunks(4, 4), (Chunks{{0, 4}}));
    EXPECT_EQ(chunks(9, 4), (Chunks{{0, 4}, {4, 8}, {8, 9}}));
  }
}

// A handler on one of them would run on the stack pointer of a generated kernel.
TEST(ThreadPool, ItsThreadsTakeNoSignals) {
  const auto takes_interrupts = [] {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, SIGINT) == 0;
  };
  ThreadPool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  for (std::atomic<int> elsewhere = 0; elsewhere == 0;)
    pool.run(16, [&](std::int64_t) {
      const bool here = std::this_thread::get_id() == caller;
      EXPECT_EQ(takes_interrupts(), here);
      if (!here) ++elsewhere;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  EXPECT_TRUE(takes_interrupts());
}

TEST(ThreadPool, SaysWhenThereAreNotAsManyThreads) {
  if (is_sanitized) GTEST_SKIP() << "sanitizers end a program whose memory is limited";
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const auto page = static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const struct rlimit small { pages *page + (rlim_t{256} << 20), before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  std::string message;
  try {
    const ThreadPool pool(4000);
  } catch (const DeviceError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_TRUE(message.starts_with("cannot start 4000 threads, only ")) << message;
}

}  // namespace
}  // namespace ridge
