// Runs that are kept, as a user keeps, finds, tags, exchanges and removes them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/cli/tiny_runs.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::string train = "ridge train --num-steps 2" + tiny;

struct Runs : ::testing::Test {
  Runs() { ::unsetenv("RIDGE_STORE"); }
  ~Runs() override { ::unsetenv("RIDGE_STORE"); }

  std::string out(const std::vector<std::string>& command) {
    return output_of(sandbox.run(command));
  }
  std::string out(const std::string& command) { return out(words_of(command)); }
  // One line on standard error, and nothing else.
  std::string err(const std::vector<std::string>& command, int exit_code = 1) {
    const ProgramResult result = sandbox.run(command);
    EXPECT_THAT(result.out, IsEmpty());
    return complaint_of(result, exit_code);
  }
  std::string err(const std::string& command, int exit_code = 1) {
    return err(words_of(command), exit_code);
  }
  // A store with runs that nobody ran.
  void fill(const std::vector<RunDocument>& runs) {
    out("ridge store init");
    Store(sandbox.path(".ridge/runs.db")).add(runs);
  }
  json rows(const std::string& filter = "version!=''") {
    return json::parse(out({"ridge", "runs", "list", "--json", "--filter", filter}))["runs"];
  }
  Sandbox sandbox;
};

TEST_F(Runs, AreKeptIfTheUserAsks) {
  EXPECT_THAT(out("ridge store init"), HasSubstr("Made an empty store of runs: .ridge/runs.db"));
  EXPECT_THAT(out("ridge store init"), HasSubstr("There is a store already"));
  EXPECT_THAT(out(train), Not(HasSubstr("Kept")));
  EXPECT_THAT(out("ridge runs list"), HasSubstr("No runs"));
  EXPECT_THAT(out(train + " --record --tag baseline,first"),
              HasSubstr("Kept as run 1 in .ridge/runs.db"));
  EXPECT_THAT(
      out("ridge bench --network resnet18 --image-size 32 --batch-size 1 --iterations 2 --record"),
      HasSubstr("Kept as run 2"));
  const json kept = rows();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0]["workload"], "resnet18");
  EXPECT_EQ(kept[0]["image_size"], 32);
  EXPECT_EQ(kept[1]["workload"], "tiny_llama");
  EXPECT_EQ(kept[1]["tags"], json({"baseline", "first"}));
  EXPECT_GT(kept[1]["kernels"], 10);
  EXPECT_GT(kept[1]["flops"], 0);
  EXPECT_GT(kept[1]["peak_bytes"], 0);
  EXPECT_GT(kept[1]["median_seconds"], 0);
  EXPECT_EQ(kept[1]["cores"], 1);
  EXPECT_EQ(kept[1]["outcome"], "completed");
}

TEST_F(Runs, AreKeptWhereAStoreIsNamed) {
  EXPECT_THAT(out(train + " --store mine.db"), HasSubstr("Kept as run 1 in mine.db"))
      << "which is made";
  ::setenv("RIDGE_STORE", "mine.db", 1);
  EXPECT_THAT(out(train), HasSubstr("Kept as run 2 in mine.db"));
  EXPECT_THAT(
      out("ridge exercise debug --stage 1 --num-steps 2 --hidden-dim 16 --n-layers 1 --n-heads 2 "
          "--seq-len 8"),
      Not(HasSubstr("Kept")))
      << "a run with a defect";
  EXPECT_THAT(rows(), SizeIs(2));
  EXPECT_THAT(out(train + " --store other.db"), HasSubstr("Kept as run 1 in other.db"));
  EXPECT_THAT(out("ridge runs list --store other.db"), HasSubstr("1 run\n"));
}

TEST_F(Runs, AreKeptWithTheOperatorsOfTheirProfile) {
  out("ridge train --num-steps 6" + tiny + " --profile --store s.db");
  const json run = json::parse(out("ridge runs show 1 --json --store s.db"));
  EXPECT_EQ(run["context"]["operators"]["rows"][0]["self"]["calls"].is_number(), true);
  EXPECT_THAT(out("ridge runs show 1 --store s.db"), HasSubstr("Operators\n"));
  // The profile of another run, which lies there still, is none of this one's.
  out(train + " --store s.db");
  EXPECT_FALSE(
      json::parse(out("ridge runs show 2 --json --store s.db"))["context"].contains("operators"));
}

TEST_F(Runs, ThatCannotBeKeptDoNotBegin) {
  EXPECT_THAT(err(train + " --record"), HasSubstr("no store of runs here"));
  EXPECT_THAT(err(train + " --tag x", 2), HasSubstr("give --record or --store"));
  EXPECT_THAT(err(train + " --store none/s.db"), HasSubstr("none/s.db"));
  EXPECT_THAT(err(train + " --store s.db --tag 12", 2), HasSubstr("taken for the id"));
  sandbox.write("text", "no store");
  EXPECT_THAT(err(train + " --store text"), HasSubstr("text is no store of runs"));
  EXPECT_THAT(err("ridge bench --network resnet18 --compare-modes --store s.db", 2),
              HasSubstr("--compare-modes excludes --store"));
  EXPECT_FALSE(sandbox.has("output/performance_summary.json"));
}

TEST_F(Runs, KeepTheirFilesWhereTheStoreIsFull) {
  out(train + " --store s.db");
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { 30'000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult result = sandbox.run(words_of(train + " --store s.db"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("s.db"));
  EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
  EXPECT_TRUE(sandbox.has("output/performance_summary.json"));
  EXPECT_THAT(out("ridge runs list --store s.db"), HasSubstr("1 run\n"));
}

TEST_F(Runs, AreListedNewestFirst) {
  std::vector<RunDocument> runs;
  for (int i = 0; i < 60; ++i)
    runs.push_back(document_of({.version = i % 2 == 0 ? "v1" : "v4",
                                .created = 1'790'000'000 + i,
                                .median_seconds = 0.001 * (100 - i)}));
  fill(runs);
  const std::string table = out("ridge runs list");
  EXPECT_THAT(table, AllOf(HasSubstr(" 60 | 2026-09-21 14:14 | tiny_llama | training | v4 "),
                           HasSubstr("50 of 60 runs; --limit N and --all show more\n")));
  EXPECT_THAT(lines_of(table), SizeIs(2 + 50 + 1));
  EXPECT_THAT(lines_of(out("ridge runs list --all")), SizeIs(2 + 60 + 1));
  EXPECT_THAT(out("ridge runs list --limit 1"), HasSubstr("1 of 60 runs"));
  EXPECT_THAT(out("ridge runs list --filter version=v4 --limit 3"), HasSubstr("3 of 30 runs"));
  EXPECT_THAT(lines_of(out("ridge runs list --jsonl")), SizeIs(60)) << "a program gets all";
  EXPECT_THAT(lines_of(out("ridge runs list --csv")), SizeIs(61));
  const auto first = [&](const std::string& flags) {
    return json::parse(lines_of(out("ridge runs list --jsonl --limit 1 " + flags)).front())["id"];
  };
  EXPECT_EQ(first(""), 60);
  EXPECT_EQ(first("--reverse"), 1);
  EXPECT_EQ(first("--sort median_seconds"), 60);
  EXPECT_EQ(first("--sort median_seconds --reverse"), 1);
  EXPECT_EQ(json::parse(out("ridge runs list --json --limit 2"))["total"], 60);
}

TEST_F(Runs, AreShownInFull) {
  fill({document_of({.version = "v4", .gpu = "NVIDIA H100", .seed = 7}, {"best"})});
  const std::string text = out("ridge runs show best");
  for (const char* part :
       {"Run 1\n", "  Workload      tiny_llama, training, v4, fp32\n", "  Tag           best\n",
        "--version v4", "--seed 7", "  Step          100.000 ms in the median, 90.000 to 110.000\n",
        "  GPU           NVIDIA H100, GPU-1\n", "  Commit        c0ffee\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const json whole = json::parse(out("ridge runs show 1 --json"));
  EXPECT_EQ(whole["record"]["performance_summary"]["losses"].size(), 4u);
  EXPECT_THAT(err("ridge runs show bets", 2), HasSubstr("did you mean the tag \"best\"?"));
  EXPECT_THAT(err("ridge runs show", 2), HasSubstr("show which run?"));
}

TEST_F(Runs, AreTaggedAndUntagged) {
  fill({document_of({}), document_of({}), document_of({})});
  EXPECT_THAT(out("ridge runs tag 1 2 keep"), HasSubstr("Tagged 2 runs as \"keep\""));
  EXPECT_THAT(out("ridge runs tag 2 3 keep"), HasSubstr("Tagged 1 run as \"keep\"; the others"));
  EXPECT_THAT(out("ridge runs untag 1 keep"), HasSubstr("Took the tag \"keep\" from 1 run"));
  EXPECT_THAT(rows("tag=keep"), SizeIs(2));
  EXPECT_THAT(err("ridge runs tag keep", 2), HasSubstr("ridge runs tag RUN.. TAG"));
  EXPECT_THAT(err("ridge runs tag 1 9 keep", 2), HasSubstr("no run \"9\""));
  EXPECT_THAT(err("ridge runs tag 1 2", 2), HasSubstr("taken for the id"));
}

TEST_F(Runs, GoFromStoreToStore) {
  fill({document_of({}, {"a"}), document_of({.version = "v4"})});
  EXPECT_THAT(out("ridge runs export all.jsonl"), HasSubstr("Wrote 2 runs to all.jsonl"));
  EXPECT_THAT(lines_of(out("ridge runs export - --filter tag=a")), SizeIs(1));
  EXPECT_THAT(out("ridge runs import all.jsonl --store new.db"),
              HasSubstr("Imported 2 runs into new.db; 0 were there already"));
  EXPECT_THAT(out("ridge runs import all.jsonl --store new.db"),
              HasSubstr("Imported 0 runs into new.db; 2 were there already"));
  EXPECT_EQ(out("ridge runs export - --store new.db"), sandbox.read("all.jsonl"));

  sandbox.write("all.jsonl", "{}\n" + sandbox.read("all.jsonl"));
  const ProgramResult damaged =
      sandbox.run(words_of("ridge runs import all.jsonl --store third.db"));
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.out,
              AllOf(HasSubstr("Imported 2 runs"), HasSubstr("all.jsonl: line 1 is no run")));
  EXPECT_THAT(damaged.err, HasSubstr("all.jsonl has 1 damaged line, the first is line 1"));
  EXPECT_THAT(err("ridge runs import none.jsonl"), HasSubstr("cannot read none.jsonl"));
}

TEST_F(Runs, AreRemovedOnlyWithYes) {
  std::vector<RunDocument> runs;
  for (int i = 0; i < 10; ++i) runs.push_back(document_of({.created = 1000 + i}));
  runs[0].tags = {"keep"};
  fill(runs);
  EXPECT_THAT(out("ridge runs prune --keep 4"),
              HasSubstr("Would remove 5 runs, number 6 the newest; --yes"));
  EXPECT_THAT(rows(), SizeIs(10));
  EXPECT_THAT(out("ridge runs prune --keep 4 --yes"), HasSubstr("Removed 5 runs"));
  EXPECT_THAT(rows(), SizeIs(5));
  EXPECT_THAT(out("ridge runs prune --filter tag=keep --yes"), HasSubstr("Removed 0 runs"));
  EXPECT_THAT(out("ridge runs prune --filter tag=keep --tagged --yes"),
              HasSubstr("Removed 1 run\n"));
  EXPECT_THAT(out("ridge runs prune --filter version=v9"), HasSubstr("No runs to remove"));
  EXPECT_THAT(err("ridge runs prune", 2), HasSubstr("prune which runs?"));
}

TEST_F(Runs, AreAnsweredInOneLineWhereTheStoreIsWrong) {
  EXPECT_THAT(err("ridge runs list"), HasSubstr("ridge store init"));
  EXPECT_THAT(err("ridge runs list --store none.db"), HasSubstr("there is no store none.db"));
  fill({document_of({})});
  EXPECT_THAT(out("ridge store check"),
              AllOf(HasSubstr("version 3, 1 runs"), HasSubstr("Nothing is damaged")));
  {
    Database database(sandbox.path(".ridge/runs.db"), Database::Access::write);
    database.execute("PRAGMA user_version = 99");
  }
  EXPECT_THAT(err("ridge runs list"), HasSubstr("is a store of version 99; this program knows"));
  EXPECT_THAT(err(train + " --record"), HasSubstr("version 99"));
  sandbox.write(".ridge/runs.db", sandbox.read(".ridge/runs.db").substr(0, 9000));
  EXPECT_THAT(err("ridge store check"),
              ContainsRegex("runs.db is (damaged|no store|a store of version)"));
  EXPECT_THAT(err("ridge runs", 2), HasSubstr("ridge runs does what?"));
  EXPECT_THAT(err("ridge runs lst", 2), HasSubstr("did you mean list?"));
}

TEST_F(Runs, RefuseFlagsThatMakeNoSense) {
  fill({document_of({})});
  EXPECT_THAT(err("ridge runs list --json --csv", 2), HasSubstr("exclude each other"));
  EXPECT_THAT(err("ridge runs list --all --limit 3", 2), HasSubstr("exclude each other"));
  EXPECT_THAT(err("ridge runs list --limit 0", 2), HasSubstr("--limit is 0"));
  EXPECT_THAT(err("ridge runs list --sort speed", 2), HasSubstr("no column \"speed\""));
  EXPECT_THAT(err("ridge runs list --filter verson=v4", 2), HasSubstr("did you mean version?"));
  EXPECT_THAT(err("ridge runs prune --keep -1", 2), HasSubstr("--keep is -1"));
}

// Nothing that a run is called reaches a terminal as more than text.
TEST_F(Runs, WithHostileNamesArePrintedAsText) {
  const std::string names[] = {"\x1b[2J\x1b]0;title\x07",
                               "a\nRun 99\r\n",
                               std::string(10'000, 'y'),
                               "\xff\xfe",
                               "\u202egnp.exe",
                               "'; DROP TABLE runs; --",
                               "\x9b"
                               "31m",
                               "\xc2\x9b"
                               "31m"};
  std::vector<RunDocument> runs;
  for (const std::string& name : names) {
    const std::string text = stored_text(name);
    RunDocument run =
        document_of({.workload = text, .gpu = text, .commit = text, .outcome = text}, {name});
    run.study = name;
    runs.push_back(run);
  }
  fill(runs);
  std::vector<std::string> printed{out("ridge runs list"), out("ridge runs list --csv"),
                                   out("ridge runs list --jsonl")};
  EXPECT_THAT(lines_of(printed[0]), SizeIs(2 + std::size(names) + 1));
  EXPECT_THAT(lines_of(printed[1]), SizeIs(1 + std::size(names)));
  for (const std::string& line : lines_of(printed[0])) EXPECT_LT(line.size(), 400u);
  for (const std::string& name : names) {
    printed.push_back(out({"ridge", "runs", "show", name}));
    printed.push_back(out({"ridge", "runs", "show", "--json", name}));
    printed.push_back(out({"ridge", "runs", "untag", name, name}));
  }
  for (const std::string& text : printed) {
    EXPECT_TRUE(std::ranges::all_of(text, [](unsigned char c) {
      return c == '\n' || (c >= 0x20 && c != 0x7f);
    })) << text;
    EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b"))) << text;
    EXPECT_THAT(text, Not(HasSubstr("\u202e"))) << text;
  }
}

}  // namespace
}  // namespace ridge
