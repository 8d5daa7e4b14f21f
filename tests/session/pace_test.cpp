// A run whose steps are asked for over a socket.

#include "ridge/session/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "ridge/cpu/device.h"
#include "ridge/session/loop.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;

// The end of the socket that asks.
class Asker {
 public:
  Asker() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~Asker() { close(); }
  int other() const { return ends_[1]; }  // the loop closes it
  void say(const std::string& text) const {
    EXPECT_EQ(::send(ends_[0], text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  std::string line() const {
    std::string text;
    for (char c = 0; ::read(ends_[0], &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  bool is_silent() const {
    pollfd waited{.fd = ends_[0], .events = POLLIN, .revents = 0};
    return ::poll(&waited, 1, 50) == 0;
  }
  void close() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

RunOptions resolved(RunOptions options) {
  options.resolve();
  return options;
}

// Runs a loop of `last_step` steps at the pace of `ask`, which ends by closing the socket.
template <class Ask>
Record paced_record(const RunOptions& options, const std::string& slowdown, std::int64_t last_step,
                    Asker& asker, const Ask& ask) {
  const auto device = std::make_unique<CpuDevice>(1);
  Session session(options, *device);
  ::setenv(pace_variable, (std::to_string(asker.other()) + slowdown).c_str(), 1);
  LastWords last_words;
  Loop loop(session, {.last_step = last_step}, {}, last_words);
  EXPECT_EQ(std::getenv(pace_variable), nullptr) << "programs that it starts are not paced";
  std::thread asking([&] {
    ask();
    asker.close();
  });
  Record record = loop.run();
  asking.join();
  return record;
}

TEST(Pace, TakesTheStepsThatAreAskedFor) {
  Asker asker;
  std::vector<PacedTurn> turns;
  const Record record = paced_record(resolved(small_llama(one_layer)), "", 2, asker, [&] {
    EXPECT_EQ(asker.line(), pace_greeting);
    EXPECT_TRUE(asker.is_silent()) << "it waits to be asked";
    asker.say("1 0\n");
    turns.push_back(paced_turn_from(asker.line()));
    EXPECT_TRUE(asker.is_silent());
    asker.say("3 2\n");  // beyond the last step that it would take alone
    turns.push_back(paced_turn_from(asker.line()));
    EXPECT_TRUE(asker.is_silent());
  });
  ASSERT_EQ(record.steps.size(), 6u);
  EXPECT_EQ(record.outcome, Outcome::completed);
  EXPECT_EQ(turns[0].loss, record.steps[0].loss);
  EXPECT_EQ(turns[1].loss, record.steps[5].loss);
  EXPECT_GE(turns[0].seconds, record.steps[0].seconds);
  EXPECT_EQ(turns[0].forward, record.steps[0].forward_seconds);
  EXPECT_GT(turns[1].backward, 0);
}

TEST(Pace, HasTheLossesOfARunThatNobodyPaces) {
  const RunOptions options = resolved(small_llama(one_layer));
  CpuDevice device(1);
  Session alone(options, device);
  const std::vector<double> losses = losses_of(alone, 4);
  Asker asker;
  const Record record = paced_record(options, ":1.5", 2, asker, [&] {
    asker.line();
    asker.say("4 0\n");
    asker.line();
  });
  ASSERT_EQ(record.steps.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(record.steps[i].loss, losses[i]);
}

TEST(Pace, SlowsDownByAFactor) {
  Asker asker;
  std::vector<PacedTurn> turns;
  const Record record = paced_record(resolved(small_llama(one_layer)), ":3.0", 2, asker, [&] {
    asker.line();
    for (int turn = 0; turn < 3; ++turn) {
      asker.say("1 0\n");
      turns.push_back(paced_turn_from(asker.line()));
    }
  });
  for (std::size_t i = 0; i < turns.size(); ++i)
    EXPECT_GE(turns[i].seconds, 3 * record.steps[i].seconds);
}

TEST(Pace, EndsAtRequestsThatAreNone) {
  for (const char* request : {"x\n", "0 0\n", "1\n", "1 2 3\n", "-1 0\n"}) {
    Asker asker;
    const Record record = paced_record(resolved(small_llama(one_layer)), "", 2, asker, [&] {
      asker.line();
      asker.say(request);
      EXPECT_EQ(asker.line(), "") << request;
    });
    EXPECT_TRUE(record.steps.empty()) << request;
  }
}

TEST(Pace, RefusesAVariableThatNamesNoSocket) {
  for (const char* value : {"", "x", "99999", "0:0.5", "0:x", "-1"}) {
    ::setenv(pace_variable, value, 1);
    EXPECT_THROW(Pace::open(), UsageError) << value;
  }
  ::unsetenv(pace_variable);
  EXPECT_EQ(Pace::open(), nullptr);
}

TEST(Pace, WritesTurnsAsLines) {
  const PacedTurn turn{.seconds = 0.1, .forward = 0.04, .backward = 1.0 / 3, .loss = 6.9};
  EXPECT_EQ(paced_turn_from(to_line(turn)), turn);
  for (const char* line : {"", "0.1", "0.1 - - -", "0.1 - - - 7 8", "x - - - 7", "0 - - - 7"})
    EXPECT_THROW(paced_turn_from(line), FormatError) << line;
}

}  // namespace
}  // namespace ridge
