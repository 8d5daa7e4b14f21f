// Studies as a user measures, stops, resumes and reads them.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "ridge/study/store.h"
#include "ridge/study/study_result.h"
#include "tests/base/sanitized.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::string quick = " --num-steps 2" + tiny;

struct StudyCommand : ::testing::Test {
  StudyCommand() { ::unsetenv("RIDGE_STORE"); }

  std::string out(const std::string& command) { return output_of(sandbox.run(words_of(command))); }
  std::string err(const std::string& command, int exit_code) {
    return complaint_of(sandbox.run(words_of(command)), exit_code);
  }
  StudyResult result(const std::string& name, const std::string& file = ".ridge/runs.db") {
    Store store(sandbox.path(file));
    return read_study(store, name);
  }
  // Every turn has one run, and the store has no others.
  void expect_complete(const std::string& name, std::size_t variants, std::int64_t rounds) {
    Store store(sandbox.path(".ridge/runs.db"));
    std::map<StudyTurn, int> turns;
    for (const StudyEntry& entry : store.study_entries(name)) {
      ASSERT_TRUE(entry.run) << entry.fault;
      EXPECT_EQ(entry.run->outcome, "completed");
      ++turns[entry.turn];
    }
    EXPECT_EQ(turns.size(), variants * static_cast<std::size_t>(rounds));
    for (const auto& [turn, count] : turns) EXPECT_EQ(count, 1);
    EXPECT_EQ(store.count(""), std::ssize(turns)) << "no variant is measured twice";
    EXPECT_TRUE(result(name).is_complete());
  }
  Sandbox sandbox;
};

TEST_F(StudyCommand, MeasuresAMatrixInRounds) {
  const std::string text = out(
      "ridge study --name m --vary batch-size=1,2 --vary version=v1,v4 --rounds 2 --json j.json "
      "--markdown m.md" +
      quick);
  EXPECT_THAT(text, AllOf(HasSubstr("Study m: 4 variants in 2 rounds, 0 of 8 measurements done\n"),
                          HasSubstr("Round 2 of 2 is done: 4 measurements"),
                          ContainsRegex("\nbatch-size 2, version v4 +\\|"),
                          HasSubstr("Rounds from, to"), HasSubstr("\nLaws")));
  expect_complete("m", 4, 2);
  for (const char* file : {"results.md", "results.json", "time-of-a-step-by-batch-size.svg",
                           "throughput-by-batch-size.svg", "peak-memory-by-batch-size.svg",
                           "variants/04.json", "logs/04-round-2.log"})
    EXPECT_TRUE(sandbox.has("studies/m/" + std::string(file))) << file;
  const json results = json::parse(sandbox.read("j.json"));
  for (const json& variant : results["variants"]) {
    EXPECT_EQ(variant["outcome"], "measured");
    EXPECT_EQ(variant["peak_bytes"], variant["planned_peak_bytes"]) << variant["name"];
    EXPECT_GT(variant["flops_per_second"], 0);
    EXPECT_EQ(variant["rounds"].size(), 2u);
  }
  EXPECT_THAT(sandbox.read("m.md"), HasSubstr("# Study m\n"));
  EXPECT_FALSE(fs::exists(sandbox.path("output"))) << "where runs of a study do not write";

  EXPECT_THAT(out("ridge study list"),
              ContainsRegex("\nm +\\| [0-9-]+ +\\| +4 \\| +2 \\| +8 of 8"));
  const std::string shown = out("ridge study show m");
  EXPECT_THAT(text, HasSubstr(shown)) << "the same from the store alone";
  EXPECT_THAT(out("ridge runs list --filter study=m --json"), HasSubstr("\"total\": 8"));
  // The same command line again measures nothing.
  EXPECT_THAT(
      out("ridge study --name m --vary batch-size=1,2 --vary version=v1,v4 --rounds 2" + quick),
      AllOf(HasSubstr("8 of 8 measurements done"), Not(HasSubstr("is done"))));
  expect_complete("m", 4, 2);
}

TEST_F(StudyCommand, MeasuresNetworksToo) {
  out("ridge study --name n --network squeezenet1_1 --image-size 32 --vary batch-size=1,2 --rounds "
      "1 --num-steps 2 --warmup-steps 1 --threads 1");
  const StudyResult study = result("n");
  ASSERT_THAT(study.variants, SizeIs(2));
  EXPECT_EQ(study.variants[1].runs[0].mode, "inference");
  EXPECT_EQ(study.variants[1].runs[0].version, "none");
  EXPECT_GT(study.variants[1].samples_per_second, 0);
  out("ridge study --name t --network squeezenet1_1 --mode training --image-size 32 --vary "
      "batch-size=2 --rounds 1 --num-steps 2 --warmup-steps 1 --threads 1");
  EXPECT_EQ(result("t").variants[0].runs[0].mode, "training");
}

TEST_F(StudyCommand, GoesOnWhereItWasKilled) {
  const std::string command = "ridge study --name k --vary batch-size=1,2,3 --rounds 12" + quick;
  std::uint64_t random = 0x2545F4914F6CDD1D;
  int kills = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    RunningProgram program(sandbox,
                           words_of(attempt % 2 == 0 ? command : "ridge study --resume k"));
    if (attempt == 0) program.wait_for("Study k");
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    ::usleep(static_cast<useconds_t>(20'000 + random % 150'000));
    program.send(attempt % 4 == 3 ? SIGINT : SIGKILL);
    const ProgramResult killed = program.wait();
    kills += killed.signal == SIGKILL || killed.exit_code == 128 + SIGINT;
    if (result("k").is_complete()) break;
  }
  EXPECT_GE(kills, 3);
  EXPECT_THAT(out("ridge study --resume k"), HasSubstr("Study k: 3 variants in 12 rounds"));
  expect_complete("k", 3, 12);
  EXPECT_THAT(out("ridge store check"), HasSubstr("Nothing is damaged"));
}

TEST_F(StudyCommand, SaysHowToGoOnWhenInterrupted) {
  RunningProgram program(
      sandbox, words_of("ridge study --name i --vary batch-size=1,2 --rounds 50" + quick));
  ASSERT_TRUE(program.wait_for("Round 1 of 50 is done"));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, ContainsRegex("Interrupted: [0-9]+ of 100 measurements are kept. Go on "
                                        "with: ridge study --resume i\n$"));
  EXPECT_THAT(out("ridge study show i"), ContainsRegex("measurements are still to be taken"));
}

TEST_F(StudyCommand, IsMeasuredByOneProcessAtATime) {
  RunningProgram program(
      sandbox, words_of("ridge study --name o --vary batch-size=1,2 --rounds 50" + quick));
  ASSERT_TRUE(program.wait_for("Round 1 of 50 is done"));
  EXPECT_THAT(err("ridge study --resume o", 1),
              HasSubstr("another process measures the study o now"));
}

TEST_F(StudyCommand, GoesOnWhenAVariantFails) {
  // A length that the time limit cuts off, beside one that it does not.
  const std::string limit = is_sanitized ? "20" : "3";
  const std::string text = out(
      "ridge study --name f --vary num-steps=2,100000000 --rounds 2 --time-limit " + limit + tiny);
  EXPECT_THAT(text, HasSubstr("num-steps 100000000 failed in round 1: no end after " + limit +
                              ".0 s; see "));
  StudyResult study = result("f");
  EXPECT_EQ(study.variants[0].outcome, "measured");
  EXPECT_EQ(study.variants[1].outcome, "no end after " + limit + ".0 s in round 1");
  EXPECT_TRUE(study.is_complete()) << "it takes no further turn";
  // A corpus that vanished is an error of the run, which the row repeats.
  sandbox.write("text.txt", std::string(4000, '\n'));
  out("ridge study --name g --data text.txt --vary batch-size=1,2 --rounds 1" + quick);
  fs::remove(sandbox.path("text.txt"));
  {
    Store store(sandbox.path(".ridge/runs.db"));
    store.prune({.filter = "study=g and batch_size=2"});
  }
  EXPECT_THAT(out("ridge study --resume g"), HasSubstr("exit code 1: cannot read"));
  EXPECT_THAT(result("g").variants[1].outcome, HasSubstr("text.txt"));
  sandbox.write("text.txt", std::string(4000, '\n'));
  EXPECT_THAT(out("ridge study --resume g"), HasSubstr("cannot read"));
  out("ridge study --resume g --retry");
  EXPECT_EQ(result("g").variants[1].outcome, "measured");
}

TEST_F(StudyCommand, DoesNotRunWhatDoesNotFit) {
  const std::string text =
      out("ridge study --name p --vary seq-len=8,65536 --rounds 1" + quick + " --batch-size 64");
  EXPECT_THAT(text, ContainsRegex("seq-len 65536 is not run: it needs [0-9.]+ TiB, and the CPU has "
                                  "[0-9.]+ GiB left"));
  EXPECT_EQ(result("p").variants[0].outcome, "measured");
  EXPECT_THAT(result("p").variants[1].outcome, ContainsRegex("^needs [0-9.]+ TiB"));
  EXPECT_TRUE(result("p").is_complete());
  EXPECT_THAT(err("ridge study --name q very_large --batch-size 4096", 1),
              ContainsRegex("no variant fits: very_large, the smallest, needs [0-9.]+ TiB, and the "
                            "CPU has"));
  EXPECT_THAT(out("ridge study list"), Not(HasSubstr("q"))) << "it was not begun";
}

TEST_F(StudyCommand, ProfilesEachVariantAfterTheRounds) {
  out("ridge study --name e --vary batch-size=1,2 --rounds 1 --enable-profilers --num-steps 8" +
      tiny);
  for (const char* profile : {"01", "02"})
    EXPECT_TRUE(sandbox.has("studies/e/profiles/" + std::string(profile) + "/operators.json"));
  expect_complete("e", 2, 1);
  Store store(sandbox.path(".ridge/runs.db"));
  for (const MeasuredVariant& variant : result("e").variants) {
    const std::int64_t run = variant.runs.back().id;
    EXPECT_EQ(store.profiled_run(run), run);
    EXPECT_EQ(json::parse(store.profile(run))["config"]["batch-size"],
              *variant.runs.back().batch_size);
  }
  EXPECT_THAT(out("ridge study --resume e"), Not(HasSubstr("Profiled"))) << "once";
}

TEST_F(StudyCommand, RefusesMistakes) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "a study of what?"},
      {"tinny", "did you mean tiny?"},
      {"tiny tiny", "given twice"},
      {"--vary btach-size=2", "did you mean batch-size?"},
      {"--vary batch-size=", "has an empty value"},
      {"--vary batch-size=2,2", "twice"},
      {"--vary batch-size=0", "--batch-size is 0"},
      {"--vary version=v9", "there is no version 'v9'"},
      {"--vary output-dir=x", "cannot vary"},
      {"tiny --rounds 0", "--rounds is 0"},
      {"tiny --time-limit 0", "--time-limit is 0"},
      {"tiny --profile", "give --enable-profilers"},
      {"tiny --network vgg11", "sizes are those of tiny_llama"},
      {"tiny --name a/b", "is no name of a study"},
      {"tiny --retry", "name it with --resume"},
      {"show", "show which study?"}};
  for (const auto& [arguments, message] : mistakes)
    EXPECT_THAT(err(fmt::format("ridge study {}", arguments), 2), HasSubstr(message));
  EXPECT_FALSE(sandbox.has(".ridge")) << "nobody made a store";
  EXPECT_THAT(err("ridge study --resume x", 1), HasSubstr("there is no store"));
  EXPECT_THAT(err("ridge study tiny --store none/s.db", 1), HasSubstr("none/s.db"));
  out("ridge study --name a --vary batch-size=1 --rounds 1" + quick);
  EXPECT_THAT(err("ridge study --name a --vary batch-size=2 --rounds 1" + quick, 2),
              HasSubstr("there is a study a of other variants or rounds already"));
  EXPECT_THAT(err("ridge study --resume b", 2), HasSubstr("there is no study \"b\""));
  EXPECT_THAT(err("ridge study --resume a --batch-size 2", 2), HasSubstr("leave out --batch-size"));
}

TEST_F(StudyCommand, LeavesTheStoreAsItWasOnAFullDisk) {
  out("ridge study --name a --vary batch-size=1 --rounds 1" + quick);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { 20'000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult result =
      sandbox.run(words_of("ridge study --name b --vary batch-size=2 --rounds 1" + quick));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
  EXPECT_THAT(out("ridge store check"), HasSubstr("Nothing is damaged"));
  out("ridge study --name b --vary batch-size=2 --rounds 1" + quick);
}

TEST_F(StudyCommand, ShowsProgressOnATerminalOnly) {
  const auto result = run_on_terminal(
      sandbox, words_of("ridge study --name p --vary batch-size=1,2 --rounds 2" + quick));
  if (!result) GTEST_SKIP() << "no terminal here";
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_THAT(result->out, HasSubstr("Measuring "));
  EXPECT_THAT(result->out, ContainsRegex("[0-9]/4  .* left"));
}

}  // namespace
}  // namespace ridge
