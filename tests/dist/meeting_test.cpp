#include "ridge/dist/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

Meeting meeting_in(const Variables& variables, std::string_view launcher = "torchrun",
                   int on_host = 2) {
  return meeting_of({.index = 1, .count = 2, .on_host = on_host, .launcher = launcher},
                    [&](std::string_view name) -> std::optional<std::string> {
                      const auto found = variables.find(name);
                      if (found == variables.end()) return std::nullopt;
                      return found->second;
                    });
}

TEST(Meeting, IsWhereTheEnvironmentSays) {
  const Variables master{{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(meeting_in(master, "Open MPI").at, (HostAndPort{"node1", 29500}));
  // torchrun listens on that port itself.
  EXPECT_EQ(meeting_in(master, "torchrun").at, (HostAndPort{"node1", 29501}));
  EXPECT_FALSE(meeting_in(master).is_served);
  const Variables own{
      {"RIDGE_RENDEZVOUS", "127.0.0.1:4000"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(meeting_in(own).at, (HostAndPort{"127.0.0.1", 4000}));
  EXPECT_TRUE(meeting_in(own).is_served);
  EXPECT_EQ(meeting_in({{"RIDGE_RENDEZVOUS", "::1:4000"}}).at, (HostAndPort{"::1", 4000}));
}

TEST(Meeting, OfOpenMpiIsInItsDirectoryOnOneMachine) {
  const Variables job{{"PMIX_SERVER_TMPDIR", "/run/job"}, {"PMIX_NAMESPACE", "77"}};
  EXPECT_EQ(meeting_in(job, "Open MPI").notice, "/run/job/ridge-rendezvous-77");
  EXPECT_THAT(message_of<UsageError>([&] { meeting_in(job, "Open MPI", 1); }),
              HasSubstr("Open MPI does not tell rank 1 where the others are: set MASTER_ADDR"));
}

TEST(Meeting, MustMakeSense) {
  EXPECT_THAT(message_of<UsageError>([] { meeting_in({}); }), HasSubstr("set MASTER_ADDR"));
  for (const char* port : {"0", "65535", "x", "", "-1", "1 "})
    EXPECT_THAT(message_of<UsageError>([&] {
                  meeting_in({{"MASTER_ADDR", "a"}, {"MASTER_PORT", port}});
                }),
                HasSubstr("MASTER_PORT"))
        << port;
  for (const char* at : {"", ":1", "host", "host:", "host:0"})
    EXPECT_THROW(meeting_in({{"RIDGE_RENDEZVOUS", at}}), UsageError) << at;
}

// The first rank serves, and tells the port that it got.
TEST(Meeting, BringsRanksTogether) {
  const TemporaryDirectory directory;
  const Meeting meeting{.at = {"127.0.0.1", 0}, .notice = directory.path / "port"};
  std::vector<std::thread> threads;
  for (int index = 0; index < 3; ++index)
    threads.emplace_back([&, index] {
      const auto ranks = meet({.index = index, .count = 3, .on_host = 3}, meeting);
      float sum = static_cast<float>(ranks->rank());
      ranks->all_reduce({&sum, 1});
      EXPECT_EQ(sum, 3.0f);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ridge
