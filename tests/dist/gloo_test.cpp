#include "ridge/dist/gloo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/philox.h"
#include "tests/dist/ranks.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNull;

// The first that is done would close its connections to those that still connect.
TEST(Gloo, ConnectsAllBeforeOneMayLeave) {
  for (int round = 0; round < 25; ++round)
    ASSERT_THAT(on_communicators(4, [](Communicator&) {}), Each(IsNull())) << "round " << round;
}

// Gloo's own threads and this one, while it calls, must not be ended by a write to a rank that is
// gone; what the program wants of such signals otherwise stays. Its own give way to all others.
TEST(Gloo, BlocksBrokenPipesWhileItWritesAndListensWithTheLeastPriority) {
  const auto blocks = [](const std::string& thread) {
    const std::string status = read_text_file("/proc/self/task/" + thread + "/status", 1 << 16);
    const std::size_t at = status.find("SigBlk:\t") + 8;
    return (std::stoull(status.substr(at, 16), nullptr, 16) >> (SIGPIPE - 1) & 1) != 0;
  };
  const auto threads = [] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      names.insert(entry.path().filename().string());
    return names;
  };
  const std::string own = std::to_string(::gettid());
  const bool before = blocks(own);
  RendezvousServer server({"127.0.0.1", 0});
  const Rendezvous meeting({"127.0.0.1", server.port()}, 20s);
  const std::set<std::string> others = threads();
  const auto alone = connect_by_gloo({.index = 0, .count = 1, .on_host = 1}, meeting);
  int started = 0;
  for (const std::string& thread : threads())
    if (!others.contains(thread)) {
      EXPECT_TRUE(blocks(thread));
      EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(thread))), 19);
      ++started;
    }
  EXPECT_GT(started, 0);
  EXPECT_EQ(blocks(own), before);
}

TEST(Gloo, SumsIntegersExactly) {
  for (const int count : {2, 3, 4, 8})
    for (const std::size_t size : {1, 2, 7, 1000, 100'003}) {
      const RankFaults faults = on_communicators(count, [&](Communicator& ranks) {
        std::vector<float> data(size);
        for (std::size_t i = 0; i < size; ++i)
          data[i] = static_cast<float>(i % 1000) + static_cast<float>(ranks.rank());
        ranks.all_reduce(data);
        for (std::size_t i = 0; i < size; ++i)
          ASSERT_EQ(data[i], static_cast<float>(i % 1000) * static_cast<float>(count) +
                                 static_cast<float>(count * (count - 1) / 2))
              << i << " of " << size << " on " << count;
      });
      EXPECT_THAT(faults, Each(IsNull()));
    }
}

TEST(Gloo, GivesAllRanksTheSameBits) {
  constexpr std::size_t size = 12'347;
  std::vector<std::vector<float>> sums(5, std::vector<float>(size));
  const RankFaults faults = on_communicators(5, [&](Communicator& ranks) {
    std::vector<float>& own = sums[static_cast<std::size_t>(ranks.rank())];
    for (std::size_t i = 0; i < size; ++i)
      own[i] =
          static_cast<float>(philox(1, i, static_cast<std::uint64_t>(ranks.rank()))[0]) * 1e-9f;
    ranks.all_reduce(own);
  });
  EXPECT_THAT(faults, Each(IsNull()));
  for (const auto& other : sums)
    EXPECT_EQ(std::memcmp(other.data(), sums[0].data(), size * sizeof(float)), 0);
}

// ((0 + 1) + (2 + 3)) + ..: numbers of very different size show any other order.
TEST(Gloo, AddsInTheOrderOfATree) {
  const auto number = [](int rank, std::size_t i) {
    const std::uint32_t word = philox(7, i, static_cast<std::uint64_t>(rank))[0];
    return std::ldexp(1.0f + static_cast<float>(word % 1024) / 1024, static_cast<int>(word >> 27));
  };
  for (const int count : {2, 3, 4, 6, 8})
    for (const std::size_t size : {1, 100, 20'011}) {
      const RankFaults faults = on_communicators(count, [&](Communicator& ranks) {
        std::vector<float> data(size);
        for (std::size_t i = 0; i < size; ++i) data[i] = number(ranks.rank(), i);
        ranks.all_reduce(data);
        for (std::size_t i = 0; i < size; ++i) {
          std::vector<float> terms;
          for (int rank = 0; rank < count; ++rank) terms.push_back(number(rank, i));
          while (terms.size() > 1) {
            std::vector<float> pairs;
            for (std::size_t t = 0; t < terms.size(); t += 2)
              pairs.push_back(t + 1 < terms.size() ? terms[t] + terms[t + 1] : terms[t]);
            terms = pairs;
          }
          ASSERT_EQ(data[i], terms[0]) << i << " of " << size << " on " << count;
        }
      });
      EXPECT_THAT(faults, Each(IsNull()));
    }
}

TEST(Gloo, GathersByRank) {
  const RankFaults faults = on_communicators(4, [&](Communicator& ranks) {
    EXPECT_EQ(ranks.count(), 4);
    const std::int64_t own = 100 + ranks.rank();
    std::vector<std::int64_t> all(4);
    ranks.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    EXPECT_THAT(all, ::testing::ElementsAre(100, 101, 102, 103));
    ranks.wait_for_all();
    EXPECT_TRUE(on_any_rank(&ranks, ranks.rank() == 2));
    EXPECT_FALSE(on_any_rank(&ranks, false));
  });
  EXPECT_THAT(faults, Each(IsNull()));
}

// Many at once, one after another, without waiting in between.
TEST(Gloo, KeepsTheOrderOfCalls) {
  const RankFaults faults = on_communicators(3, [&](Communicator& ranks) {
    for (int i = 0; i < 300; ++i) {
      std::vector<float> data(static_cast<std::size_t>(1 + i % 50), static_cast<float>(i));
      ranks.all_reduce(data);
      ASSERT_THAT(data, Each(static_cast<float>(3 * i)));
    }
  });
  EXPECT_THAT(faults, Each(IsNull()));
}

TEST(Gloo, TellsTheOthersOfARankThatEnds) {
  const auto begin = std::chrono::steady_clock::now();
  const RankFaults faults = on_communicators(3, [&](Communicator& ranks) {
    std::vector<float> data(1000, 1.0f);
    ranks.all_reduce(data);
    if (ranks.rank() == 1) throw Error("a fault of its own");
    for (;;) ranks.all_reduce(data);
  });
  EXPECT_EQ(message_in(faults[1]), "a fault of its own");
  for (const std::size_t other : {0, 2}) {
    EXPECT_THROW(std::rethrow_exception(faults[other]), RankError);
    EXPECT_THAT(message_in(faults[other]), HasSubstr("another rank has ended or does not answer"));
    EXPECT_THAT(message_in(faults[other]), ::testing::Not(HasSubstr(".cc:")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

// A rank that goes on, and yet never comes, as one that hangs.
TEST(Gloo, WaitsNotForever) {
  std::mutex mutex;
  int lost = 0;
  const RankFaults faults = on_communicators(3,
                                             [&](Communicator& ranks) {
                                               std::vector<float> data(10, 1.0f);
                                               if (ranks.rank() == 0) {
                                                 for (;;) {
                                                   std::this_thread::sleep_for(20ms);
                                                   const std::lock_guard lock(mutex);
                                                   if (lost == 2) return;
                                                 }
                                               }
                                               try {
                                                 ranks.all_reduce(data);
                                               } catch (const RankError&) {
                                                 const std::lock_guard lock(mutex);
                                                 ++lost;
                                                 throw;
                                               }
                                             },
                                             {.beyond_work = 300ms});
  EXPECT_EQ(lost, 2);
  EXPECT_THAT(faults[0], IsNull());
}

// What a rank's own work took, the others may take too.
TEST(Gloo, GivesOthersTheTimeOfItsOwnWork) {
  const RankFaults faults =
      on_communicators(2,
                       [&](Communicator& ranks) {
                         std::vector<float> data(10, 1.0f);
                         std::this_thread::sleep_for(ranks.rank() == 0 ? 1200ms : 600ms);
                         ranks.all_reduce(data);
                       },
                       {.beyond_work = 200ms});
  EXPECT_THAT(faults, Each(IsNull()));
}

TEST(Gloo, TellsOfARankThatNeverCame) {
  const RendezvousServer server({"127.0.0.1", 0});
  const Rendezvous meeting({"127.0.0.1", server.port()}, 500ms);
  EXPECT_THROW(connect_by_gloo({.index = 0, .count = 2, .on_host = 2}, meeting), RankError);
}

}  // namespace
}  // namespace ridge
