#include "ridge/dist/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <thread>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

struct Place {
  RendezvousServer server{{"127.0.0.1", 0}};
  Rendezvous rank(std::chrono::milliseconds patience = 10s) const {
    return {{"127.0.0.1", server.port()}, patience};
  }
};

TEST(Rendezvous, KeepsWhatWasLeft) {
  const Place place;
  const std::string bytes("\0\n \xff left 3", 11);
  place.rank().leave("a/b", bytes);
  place.rank().leave("empty", "");
  EXPECT_EQ(place.rank().find("a/b"), bytes);
  EXPECT_EQ(place.rank().find("empty"), "");
  EXPECT_EQ(place.server.left("a/b"), bytes);
  EXPECT_EQ(place.server.left("c"), std::nullopt);
  place.rank().leave("a/b", "later");
  EXPECT_EQ(place.rank().find("a/b"), "later");
}

TEST(Rendezvous, WaitsUntilSomebodyLeavesIt) {
  const Place place;
  std::thread late([&] {
    std::this_thread::sleep_for(200ms);
    place.rank().leave("late", "here");
  });
  EXPECT_EQ(place.rank().find("late"), "here");
  late.join();
}

TEST(Rendezvous, WaitsForAServerThatComesLater) {
  int port = 0;
  {
    const Place place;
    port = place.server.port();
  }
  std::thread late([&] {
    std::this_thread::sleep_for(200ms);
    const RendezvousServer server({"127.0.0.1", port});
    Rendezvous({"127.0.0.1", port}, 10s).leave("x", "y");
    EXPECT_EQ(Rendezvous({"127.0.0.1", port}, 10s).find("done"), "1");
  });
  const Rendezvous early({"127.0.0.1", port}, 10s);
  EXPECT_EQ(early.find("x"), "y");
  early.leave("done", "1");
  late.join();
}

TEST(Rendezvous, TellsWhoDidNotCome) {
  const Place place;
  EXPECT_THAT(message_of<RankError>([&] { place.rank(300ms).find("rank-3"); }),
              HasSubstr("no rank left 'rank-3' at 127.0.0.1"));
  int free_port = 0;
  {
    const Place gone;
    free_port = gone.server.port();
  }
  EXPECT_THAT(message_of<RankError>([&] {
                Rendezvous({"127.0.0.1", free_port}, 300ms).find("x");
              }),
              HasSubstr("nobody answered at 127.0.0.1"));
}

// Somebody who says nothing, or nonsense, or breaks off, costs the ranks no more than a moment.
TEST(Rendezvous, SurvivesOtherVisitors) {
  const Place place;
  namespace asio = boost::asio;
  asio::io_context io;
  for (const std::string said : {"GET / HTTP/1.1\r\n\r\n", "leave x 99999999999999\n",
                                 "leave x 5\nab", "leave", "\xff\xff"}) {
    asio::ip::tcp::iostream visitor("127.0.0.1", std::to_string(place.server.port()));
    visitor << said << std::flush;
    visitor.close();
  }
  asio::ip::tcp::iostream silent("127.0.0.1", std::to_string(place.server.port()));
  place.rank().leave("rank-0", "here");
  EXPECT_EQ(place.rank().find("rank-0"), "here");
  EXPECT_EQ(place.server.left("x"), std::nullopt);
}

TEST(Rendezvous, TellsOfAPortInUse) {
  const Place place;
  EXPECT_THAT(message_of<IoError>([&] {
                RendezvousServer({"127.0.0.1", place.server.port()});
              }),
              HasSubstr("cannot listen for other ranks on 127.0.0.1"));
}

TEST(Rendezvous, KnowsTheAddressByWhichOthersReachThisMachine) {
  const Place place;
  EXPECT_EQ(place.rank().own_address(), "127.0.0.1");
}

}  // namespace
}  // namespace ridge
