// Which of a family's candidates is prepared; of kernels that launch nothing, so that no GPU is
// needed.

#include "ridge/gpu/device/candidates.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "ridge/base/error.h"

namespace ridge::gpu {
namespace {

// What the candidates below are asked: which of them support the work, exist, and how good each is
// expected to be.
struct Work {
  std::string supported = "abcd", existing = "abcd";
  std::array<int, 4> expected{};

  std::string key() const { return "a key"; }
  std::string work() const { return "some work"; }
};

std::vector<char> prepared;  // by name, in order

template <char which>
constexpr Candidate<Work> candidate(bool fallback = false) {
  return {.name = [](const Work&) { return std::string(1, which); },
          .supports = [](const Work& w) { return w.supported.find(which) != std::string::npos; },
          .expectation = [](const Work& w, const Card&) { return w.expected[which - 'a']; },
          .prepare = [](const Work& w, GpuPrepare& prepare) -> KernelPtr {
            prepared.push_back(which);
            if (w.existing.find(which) == std::string::npos) throw DeviceError("no {}", which);
            prepare.workspace = static_cast<std::size_t>(which);
            return make_kernel([](const Launch&) {});
          },
          .fallback = fallback};
}

constexpr Candidate<Work> table[] = {candidate<'a'>(), candidate<'b'>(), candidate<'c'>(),
                                     candidate<'d'>(true)};

// Remembers a choice.
class Remembers final : public Tuner {
 public:
  explicit Remembers(std::size_t choice) : choice_(choice) {}
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>&) override {
    asked = candidates;
    return choice_;
  }
  void tell(std::string_view, std::string_view choice) override { told = choice; }

  std::optional<std::size_t> asked;
  std::string told;

 private:
  std::size_t choice_;
};

// The candidate whose kernel it is, told by its workspace.
char best(const Work& work, Tuner* tuner = nullptr) {
  const Context gpu;
  GpuPrepare prepare{.gpu = gpu, .in = {}, .out = {}, .choice = {.tuner = tuner}};
  prepared.clear();
  best_kernel<Work>(prepare, work, table);
  return static_cast<char>(prepare.workspace);
}

TEST(Candidates, TheHighestExpectationIsTakenUntuned) {
  EXPECT_EQ(best({.expected = {1, 3, 2, 0}}), 'b');
  EXPECT_EQ(prepared, std::vector{'b'});
}

TEST(Candidates, EqualExpectationsRankAsInTheTable) {
  EXPECT_EQ(best({.expected = {1, 2, 2, 0}}), 'b');
}

TEST(Candidates, WhatDoesNotSupportTheWorkIsNotPrepared) {
  EXPECT_EQ(best({.supported = "acd", .expected = {1, 3, 2, 0}}), 'c');
  EXPECT_EQ(prepared, std::vector{'c'});
}

TEST(Candidates, TheNextStandsInForOneThatDoesNotExist) {
  EXPECT_EQ(best({.existing = "ad", .expected = {1, 3, 2, 0}}), 'a');
  EXPECT_EQ(best({.existing = "ad", .expected = {1, 3, 2, 2}}), 'd');
}

TEST(Candidates, TheLastRefusalIsToldWhereNoneExists) {
  EXPECT_THROW(best({.existing = ""}), DeviceError);
  EXPECT_THROW(best({.supported = ""}), DeviceError);
}

TEST(Candidates, TheTunerChoosesByRankAndAmongAllButAFallback) {
  Remembers tuner(1);
  EXPECT_EQ(best({.expected = {1, 3, 2, 0}}, &tuner), 'c');
  EXPECT_EQ(tuner.asked, 3u);
  EXPECT_EQ(tuner.told, "c");
  EXPECT_EQ(prepared, std::vector{'c'});
}

TEST(Candidates, AFallbackExpectedToBeTheFastestIsTimed) {
  Remembers tuner(3);
  EXPECT_EQ(best({.expected = {1, 3, 2, 4}}, &tuner), 'a');
  EXPECT_EQ(tuner.asked, 4u);
}

TEST(Candidates, NobodyIsAskedAboutOneCandidate) {
  Remembers tuner(0);
  EXPECT_EQ(best({.supported = "ad", .expected = {1, 3, 2, 0}}, &tuner), 'a');
  EXPECT_EQ(tuner.asked, std::nullopt);
  EXPECT_EQ(tuner.told, "");
}

TEST(Candidates, ARememberedOneThatExistsNoMoreIsReplacedByTheFirst) {
  Remembers tuner(1);
  EXPECT_EQ(best({.existing = "abd", .expected = {1, 3, 2, 0}}, &tuner), 'b');
  EXPECT_EQ(tuner.told, "b");
}

TEST(Candidates, WhatStandsInForTheFirstIsToldByItsName) {
  Remembers tuner(0);
  EXPECT_EQ(best({.existing = "d", .expected = {1, 3, 2, 0}}, &tuner), 'd');
  EXPECT_EQ(tuner.told, "d");
}

// Times the first, which prepares all that are to be timed.
class TimesTheFirst final : public Tuner {
 public:
  std::size_t choose(std::string_view, std::size_t,
                     const std::function<void(std::size_t)>& run) override {
    try {
      run(0);
    } catch (const DeviceError&) {  // without a GPU there is nothing to time with
    }
    return 0;
  }
};

template <char which>
constexpr Candidate<Work> slow_to_prepare() {
  Candidate<Work> slow = candidate<which>();
  slow.prepare = [](const Work& w, GpuPrepare& prepare) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return candidate<which>().prepare(w, prepare);
  };
  slow.may_compile = true;
  return slow;
}

TEST(Candidates, NoMoreAreCompiledAfterSomeTookLong) {
  constexpr Candidate<Work> slow[] = {slow_to_prepare<'a'>(), slow_to_prepare<'b'>(),
                                      slow_to_prepare<'c'>(), candidate<'d'>()};
  const Context gpu;
  TimesTheFirst tuner;
  GpuPrepare prepare{.gpu = gpu, .in = {}, .out = {}, .choice = {.tuner = &tuner}};
  prepared.clear();
  best_kernel<Work>(prepare, {.expected = {4, 3, 2, 1}}, slow);
  EXPECT_EQ(prepared, (std::vector{'a', 'b', 'd'}));
}

}  // namespace
}  // namespace ridge::gpu
