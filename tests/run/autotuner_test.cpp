// Candidates are told apart by how long they spin, by a factor of ten and more: no test measures
// anything finer.

#include "ridge/run/autotuner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/onednn.h"
#include "ridge/ops/op.h"
#include "tests/base/temporary_directory.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Work of which candidate `fast` takes next to nothing and any other half a millisecond.
struct Work {
  std::size_t fast = 0;
  int runs = 0;

  std::function<void(std::size_t)> function() {
    return [this](std::size_t i) {
      ++runs;
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::microseconds(i == fast ? 0 : 500);
      while (std::chrono::steady_clock::now() < until) {
      }
    };
  }
};

Autotuner::Options options(const std::filesystem::path& cache, std::string hardware = "cpu a") {
  return {.cache = cache, .hardware = std::move(hardware), .seconds_per_search = 0.02};
}

std::size_t choose(Autotuner& tuner, std::string_view key, std::size_t fast,
                   std::size_t candidates = 3) {
  Work work{fast};
  return tuner.choose(key, candidates, work.function());
}

TEST(Autotuner, ChoosesTheFastestOnceForEachKey) {
  Autotuner tuner(options({}));
  Work work{2};
  EXPECT_EQ(tuner.choose("x", 4, work.function()), 2u);
  const int runs = work.runs;
  EXPECT_GE(runs, 8);
  EXPECT_EQ(tuner.choose("x", 4, work.function()), 2u);
  EXPECT_EQ(work.runs, runs);
  EXPECT_EQ(choose(tuner, "y", 1), 1u);
  EXPECT_EQ(tuner.searched(), 2);
  EXPECT_EQ(tuner.cached(), 1);
  EXPECT_EQ(tuner.remembered(), 0) << "both were timed by this tuner";
  EXPECT_TRUE(tuner.warnings().empty());
}

TEST(FastestOf, IsTheFirstUnlessAnotherIsClearlyFaster) {
  EXPECT_EQ(fastest_of(std::vector{2.0}), 0u);
  EXPECT_EQ(fastest_of(std::vector{2.0, 1.0, 3.0}), 1u);
  EXPECT_EQ(fastest_of(std::vector{2.0, 1.97}), 0u) << "by noise alone";
  EXPECT_EQ(fastest_of(std::vector{2.0, 1.95}), 1u);
  EXPECT_EQ(fastest_of(std::vector{2.0, 1.97, 1.95}), 2u);
  EXPECT_EQ(fastest_of(std::vector{2.0, 1.95, 1.93}), 1u);
}

TEST(Autotuner, NeedsNoTimingForOneCandidate) {
  Autotuner tuner(options({}));
  Work work;
  EXPECT_EQ(tuner.choose("x", 1, work.function()), 0u);
  EXPECT_EQ(work.runs, 0);
  EXPECT_THROW(tuner.choose("x", 0, work.function()), UsageError);
}

TEST(Autotuner, LeavesOutWaysThatDoNotExist) {
  Autotuner tuner(options({}));
  Work work{1};
  const auto run = work.function();
  EXPECT_EQ(tuner.choose("x", 3,
                         [&](std::size_t i) {
                           if (i == 2) throw Tuner::NoSuchCandidate("nobody has this");
                           run(i);
                         }),
            1u);
  EXPECT_EQ(tuner.choose("alone", 2,
                         [&](std::size_t i) {
                           if (i == 1) throw Tuner::NoSuchCandidate("nobody has this");
                         }),
            0u);
}

TEST(Autotuner, RemembersTheOnlyOneThatExists) {
  const TemporaryDirectory directory;
  const auto cache = options(directory.path / "cache.json");
  const auto only = [](std::size_t existing) {
    return [existing](std::size_t i) {
      if (i != existing) throw Tuner::NoSuchCandidate("nobody has this");
    };
  };
  {
    Autotuner tuner(cache);
    EXPECT_EQ(tuner.choose("first", 3, only(0)), 0u);
    EXPECT_EQ(tuner.choose("last", 3, only(2)), 2u);
  }
  Autotuner again(cache);
  const auto nobody = [](std::size_t) { FAIL() << "both are known"; };
  EXPECT_EQ(again.choose("first", 3, nobody), 0u);
  EXPECT_EQ(again.choose("last", 3, nobody), 2u);
}

// One that could not be timed has no time that a file could keep.
TEST(Autotuner, TakesTheFirstWhereNoneCanBeTimedAndLooksAgain) {
  const TemporaryDirectory directory;
  const auto cache = options(directory.path / "cache.json");
  const auto none = [](std::size_t) { throw Tuner::NoSuchCandidate("nobody has this"); };
  {
    Autotuner tuner(cache);
    EXPECT_EQ(tuner.choose("none", 3, none), 0u);
    EXPECT_EQ(choose(tuner, "some", 2), 2u);
  }
  Autotuner again(cache);
  EXPECT_EQ(choose(again, "none", 1), 1u);
  EXPECT_EQ(choose(again, "some", 1), 2u);
  EXPECT_TRUE(again.warnings().empty());
}

TEST(Autotuner, KeepsWhatThereIsToTell) {
  Autotuner tuner(options({}));
  for (const char* choice : {"ours", "theirs"}) tuner.tell("attention", choice);
  tuner.tell("a norm", "ours");
  EXPECT_THAT(tuner.told(), ElementsAre(::testing::Pair("a norm", "ours"),
                                        ::testing::Pair("attention", "theirs")));
}

TEST(Autotuner, AnnouncesEachSearch) {
  std::vector<std::string> log;
  auto with_log = options({});
  with_log.log = [&](std::string_view key, int number) {
    log.push_back(std::to_string(number) + " " + std::string(key));
  };
  Autotuner tuner(with_log);
  choose(tuner, "a", 0);
  choose(tuner, "a", 0);
  choose(tuner, "b", 0);
  EXPECT_THAT(log, ElementsAre("1 a", "2 b"));
}

TEST(Autotuner, AnnouncesEachCandidateOnce) {
  std::vector<std::string> log;
  auto with_log = options({});
  with_log.trying = [&](std::string_view key, std::size_t number, std::size_t of) {
    log.push_back(fmt::format("{} {}/{}", key, number, of));
  };
  Autotuner tuner(with_log);
  choose(tuner, "a", 0, 3);
  choose(tuner, "a", 0, 3);
  choose(tuner, "b", 0, 2);
  EXPECT_THAT(log, ElementsAre("a 1/3", "a 2/3", "a 3/3", "b 1/2", "b 2/2"));
}

TEST(AutotunerCache, SecondStartSearchesNothing) {
  const TemporaryDirectory directory;
  const auto cache = directory.path / "new" / "tuning.json";
  {
    Autotuner tuner(options(cache));
    EXPECT_EQ(choose(tuner, "x", 2), 2u);
    EXPECT_EQ(choose(tuner, "y", 1), 1u);
  }
  const std::string saved = read_text_file(cache, 10000);
  Autotuner tuner(options(cache));
  // Another candidate is the fastest now, but the choice stands.
  EXPECT_EQ(choose(tuner, "x", 0), 2u);
  EXPECT_EQ(choose(tuner, "y", 0), 1u);
  EXPECT_EQ(tuner.searched(), 0);
  EXPECT_EQ(tuner.cached(), 2);
  EXPECT_EQ(read_text_file(cache, 10000), saved);
}

TEST(AutotunerCache, IsEnoughForWhoDoesNotSearch) {
  const TemporaryDirectory directory;
  const auto cache = directory.path / "tuning.json";
  {
    Autotuner tuner(options(cache));
    EXPECT_EQ(choose(tuner, "x", 2), 2u);
  }
  Autotuner::Options remembers = options(cache);
  remembers.searches = false;
  Autotuner tuner(remembers);
  EXPECT_EQ(choose(tuner, "x", 0), 2u);
  EXPECT_EQ(choose(tuner, "y", 2), 0u) << "without a search";
  EXPECT_EQ(tuner.searched(), 0);
}

TEST(AutotunerCache, HoldsForItsHardwareAndCandidatesOnly) {
  const TemporaryDirectory directory;
  const auto cache = directory.path / "tuning.json";
  Autotuner a(options(cache, "cpu a"));
  EXPECT_EQ(choose(a, "x", 2), 2u);
  Autotuner b(options(cache, "cpu b"));
  EXPECT_EQ(choose(b, "x", 1), 1u);
  EXPECT_EQ(b.searched(), 1);
  // Four candidates are not the three that were timed.
  Autotuner c(options(cache, "cpu a"));
  EXPECT_EQ(choose(c, "x", 0, 4), 0u);
  EXPECT_EQ(c.searched(), 1);
  Autotuner again(options(cache, "cpu b"));
  EXPECT_EQ(choose(again, "x", 0), 1u);
  EXPECT_EQ(again.searched(), 0);
}

TEST(AutotunerCache, DamagedFilesAreReportedOnceAndReplaced) {
  const TemporaryDirectory directory;
  const auto cache = directory.path / "tuning.json";
  for (const std::string text :
       {"", "{", "[1, 2]", R"({"format": "ridge tuning cache", "version": 9, "choices": {}})",
        R"({"format": "ridge tuning cache", "version": 1, "choices": {"cpu a": {"x": 3}}})",
        R"({"format": "ridge tuning cache", "version": 1, "choices": {"cpu a": {"x":
            {"candidate": 3, "of": 3, "seconds": 1}}}})",
        "\xff\xfe"}) {
    SCOPED_TRACE(text);
    std::ofstream(cache) << text;
    Autotuner tuner(options(cache));
    EXPECT_EQ(choose(tuner, "x", 1), 1u);
    EXPECT_EQ(choose(tuner, "y", 2), 2u);
    EXPECT_THAT(tuner.warnings(), ElementsAre(HasSubstr("is damaged")));
    Autotuner next(options(cache));
    EXPECT_EQ(choose(next, "x", 0), 1u);
    EXPECT_EQ(choose(next, "y", 0), 2u);
    EXPECT_TRUE(next.warnings().empty());
  }
}

TEST(AutotunerCache, TuningGoesOnWhereNothingCanBeWritten) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path / "file") << "no directory";
  Autotuner tuner(options(directory.path / "file" / "tuning.json"));
  EXPECT_EQ(choose(tuner, "x", 1), 1u);
  EXPECT_EQ(choose(tuner, "y", 2), 2u);
  EXPECT_EQ(choose(tuner, "x", 0), 1u);
  EXPECT_THAT(tuner.warnings(), ElementsAre(HasSubstr("without a cache")));
}

TEST(AutotunerCache, ADirectoryInItsPlaceIsReported) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path / "tuning.json");
  Autotuner tuner(options(directory.path / "tuning.json"));
  EXPECT_EQ(choose(tuner, "x", 1), 1u);
  EXPECT_EQ(tuner.searched(), 1);
  EXPECT_FALSE(tuner.warnings().empty());
}

TEST(AutotunerCache, WhoSavesFirstDecidesForAll) {
  const TemporaryDirectory directory;
  const auto cache = directory.path / "tuning.json";
  Autotuner first(options(cache)), second(options(cache));
  EXPECT_EQ(choose(first, "x", 2), 2u);
  // It has read the cache before, finds candidate 1 the fastest, and yields.
  EXPECT_EQ(choose(second, "x", 1), 2u);
  EXPECT_EQ(second.searched(), 1);
  EXPECT_EQ(choose(second, "x", 1), 2u);
}

// Processes that save at the same time lose none of each other's choices.
TEST(AutotunerCache, SurvivesManyProcessesAtOnce) {
  const TemporaryDirectory directory;
  const auto cache = directory.path / "tuning.json";
  constexpr int processes = 4, keys = 12;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto quick = options(cache);
      quick.seconds_per_search = 0;
      Autotuner tuner(quick);
      for (int k = 0; k < keys; ++k)
        tuner.choose(std::to_string(p) + "/" + std::to_string(k), 2, [](std::size_t) {});
      ::_exit(tuner.warnings().empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  Autotuner tuner(options(cache));
  for (int p = 0; p < processes; ++p)
    for (int k = 0; k < keys; ++k)
      tuner.choose(std::to_string(p) + "/" + std::to_string(k), 2, [](std::size_t) {});
  EXPECT_EQ(tuner.searched(), 0);
  EXPECT_EQ(tuner.cached(), processes * keys);
  EXPECT_EQ(tuner.remembered(), processes * keys);
}

TEST(AutotunerCache, LivesWhereTheUserSays) {
  const auto with = [](const char* xdg, const char* home) {
    xdg ? ::setenv("XDG_CACHE_HOME", xdg, 1) : ::unsetenv("XDG_CACHE_HOME");
    home ? ::setenv("HOME", home, 1) : ::unsetenv("HOME");
    return default_tuning_cache();
  };
  const std::string home = ::getenv("HOME") ? ::getenv("HOME") : "";
  const char* xdg_before = ::getenv("XDG_CACHE_HOME");
  const std::string xdg = xdg_before ? xdg_before : "";
  EXPECT_EQ(with("/c", "/h"), "/c/ridge/tuning.json");
  EXPECT_EQ(with(nullptr, "/h"), "/h/.cache/ridge/tuning.json");
  EXPECT_EQ(with("relative", "/h"), "/h/.cache/ridge/tuning.json");
  EXPECT_EQ(with(nullptr, nullptr), "");
  with(xdg_before ? xdg.c_str() : nullptr, home.empty() ? nullptr : home.c_str());
}

// Takes the last candidate, after trying all.
struct LastCandidate final : Tuner {
  std::size_t choose(std::string_view key, std::size_t candidates,
                     const std::function<void(std::size_t)>& run) override {
    keys.emplace_back(key);
    for (std::size_t i = 0; i < candidates; ++i) run(i);
    return candidates - 1;
  }
  std::vector<std::string> keys;
};

// Whoever multiplies: integers give the exact product.
TEST(Products, OfEveryLibraryAreTheSame) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const MatMul op{.trans_b = true};
    const std::vector<TensorType> in{{dtype, {70, 50}}, {dtype, {90, 50}}}, out = op.infer(in);
    const std::vector<testing::Reals> values{testing::sample_values({in[0], -1, 2}, DType::i32, 0),
                                             testing::sample_values({in[1], -1, 2}, DType::i32, 1)};
    const auto expected = testing::run_reference(op, in, out, values);
    LastCandidate tuner;
    for (const Products products : {Products::vendor, Products::packed, Products::tuned})
      for (Tuner* t : {static_cast<Tuner*>(nullptr), static_cast<Tuner*>(&tuner)}) {
        CpuDevice device(2);
        const auto actual =
            testing::run_kernel(device, op, in, out, values, {.products = products, .tuner = t});
        testing::expect_close(testing::decode(actual[0], dtype), expected[0], {0.0, 0.0});
      }
    // Only tuned products ask a tuner; where oneDNN has no bf16, nobody asks for it.
    ASSERT_EQ(tuner.keys.size(), dtype == DType::f32 || onednn_supports_bf16() ? 2u : 1u);
    for (const std::string& key : tuner.keys) EXPECT_THAT(key, HasSubstr("1x70x90x50 nt"));
  }
}

// What decides the bits of a result is one question, whatever the number of threads; what does not
// is asked for each.
TEST(Products, AreByTheSameLibraryOnAnyNumberOfThreads) {
  const MatMul op{.trans_b = true};
  const std::vector<TensorType> in{{DType::f32, {70, 50}}, {DType::f32, {90, 50}}};
  const std::vector<TensorType> out = op.infer(in);
  LastCandidate one, three;
  CpuDevice(1).prepare(op, in, out, {.products = Products::tuned, .tuner = &one});
  CpuDevice(3).prepare(op, in, out, {.products = Products::tuned, .tuner = &three});
  EXPECT_EQ(CpuDevice(1).hardware(), CpuDevice(3).hardware());
  ASSERT_EQ(one.keys.size(), 2u);
  ASSERT_EQ(three.keys.size(), 2u);
  EXPECT_NE(one.keys[0], three.keys[0]);
  EXPECT_EQ(one.keys[1], three.keys[1]);
  EXPECT_THAT(one.keys[1], HasSubstr("oneDNN"));
}

}  // namespace
}  // namespace ridge
