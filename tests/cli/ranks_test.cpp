// Runs by several processes, as users start them.

#include "ridge/cli/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/environment.h"
#include "tests/cli/program.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

ScopedVariables of_open_mpi(const std::string& index, const std::string& count) {
  return ScopedVariables{{"OMPI_COMM_WORLD_RANK", index}, {"OMPI_COMM_WORLD_SIZE", count}};
}

Words train(const Words& more = {}) {
  Words words{"ridge",          "train", "--device",    "cpu", "--hidden-dim", "32",
              "--n-layers",     "1",     "--n-heads",   "2",   "--n-kv-heads", "2",
              "--seq-len",      "8",     "--num-steps", "6",   "--batch-size", "12",
              "--warmup-steps", "0"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The lines that tell of steps, without the times.
std::vector<std::string> steps_in(const std::string& out) {
  std::vector<std::string> steps;
  for (const std::string& line : lines_of(out))
    if (line.starts_with("Step ")) steps.push_back(line.substr(0, line.find(", Time")));
  return steps;
}

// The processes that the program has started, by rank.
std::vector<pid_t> ranks_of(const Sandbox& sandbox) {
  std::vector<std::pair<std::string, pid_t>> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr !=
        name.data() + name.size())
      continue;
    std::error_code fault;
    const auto directory = std::filesystem::read_symlink(entry.path() / "cwd", fault);
    if (fault || directory != sandbox.path("").parent_path()) continue;
    const std::string environment = content(entry.path() / "environ");
    if (environment.find("RIDGE_RENDEZVOUS=") == std::string::npos) continue;
    const auto at = environment.find(std::string("\0RANK=", 6));
    found.emplace_back(environment.substr(at + 6, 1), pid);
  }
  std::ranges::sort(found);
  std::vector<pid_t> pids;
  for (const auto& [rank, pid] : found) pids.push_back(pid);
  return pids;
}

TEST(RanksOfTheProgram, TrainAsOneDoes) {
  const Sandbox sandbox;
  const auto one = steps_in(output_of(sandbox.run(train())));
  ASSERT_EQ(one.size(), 6u);
  for (const char* count : {"2", "3", "4"}) {
    const std::string out =
        output_of(sandbox.run(train({"--ranks", count, "--output-dir", "of-all"})));
    EXPECT_EQ(steps_in(out), one) << count;
    EXPECT_THAT(out, HasSubstr("Ranks: " + std::string(count)));
    EXPECT_TRUE(sandbox.has("of-all/performance_summary.json"));
  }
}

// The lines of the workshop, with its layout.
TEST(RanksOfTheProgram, TimeANetworkAsTheWorkshopDoes) {
  const Sandbox sandbox;
  const std::string out = output_of(sandbox.run(
      {"torchrun", "--nproc-per-node", "2", "micro_benchmarking_pytorch.py", "--network",
       "squeezenet1_0", "--image-size", "64", "--batch-size", "4", "--iterations", "2", "--device",
       "cpu", "--warmup", "1", "--export-json", "times.json"}));
  for (const char* line :
       {"**** Launching with torchrun ****", "Setting up process group...",
        "[CPU 1] Initializing...", "Process group initialized.",
        "[CPU 0] Using network: squeezenet1_0", "[CPU 1] Local batch size: 2",
        "[CPU 1] Global batch size: 4", "[CPU 1] Warmup complete.",
        "Performance Summary (CPU 0):", "Global batch size: 4", "Local batch size: 2",
        "World size: 2", " samples/sec (global)", "Per-CPU throughput: "})
    EXPECT_THAT(out, HasSubstr(line));
  const std::string one = output_of(
      sandbox.run({"micro_benchmarking_pytorch", "--network", "squeezenet1_0", "--image-size", "64",
                   "--batch-size", "4", "--iterations", "2", "--device", "cpu", "--warmup", "1"}));
  const auto losses = [](const std::string& text, const std::string& begin) {
    std::vector<std::string> found;
    for (const std::string& line : lines_of(text))
      if (line.starts_with(begin))
        found.push_back(line.substr(begin.size(), line.find(", Time") - begin.size()));
    return found;
  };
  EXPECT_EQ(losses(one, "Epoch").size(), 2u);
  for (const char* rank : {"[CPU 0] Epoch", "[CPU 1] Epoch"})
    EXPECT_EQ(losses(out, rank), losses(one, "Epoch"));
  EXPECT_THAT(sandbox.read("times.json"), HasSubstr("\"ranks\": 2"));
  EXPECT_THAT(
      complaint_of(
          sandbox.run({"ridge", "bench", "--ranks", "2", "--device", "cpu", "--compare-modes"}), 2),
      HasSubstr("--compare-modes is for one rank"));
}

TEST(RanksOfTheProgram, LeaveAProfileEach) {
  const Sandbox sandbox;
  output_of(
      sandbox.run(train({"--ranks", "2", "--enable-pytorch-profiler", "--profile-dir", "p"})));
  EXPECT_TRUE(sandbox.has("p/operators.json"));
  EXPECT_TRUE(sandbox.has("p/rank-1/operators.json"));
  EXPECT_THAT(sandbox.read("p/trace_all_ranks.json"), HasSubstr(R"("name": "rank 1")"));
  EXPECT_FALSE(sandbox.has("p/rank-1/trace_all_ranks.json"));
  EXPECT_THAT(sandbox.read("p/rank-1/operators.json"), HasSubstr("all_reduce"));
  // What is read from their traces is what they said themselves.
  const auto read =
      nlohmann::json::parse(output_of(sandbox.run({"ridge", "trace", "report", "p", "--json"})));
  const auto said = nlohmann::json::parse(sandbox.read("p/communication.json"));
  EXPECT_EQ(read["together"]["collectives_compared"], said["collectives_compared"]);
  ASSERT_EQ(read["ranks"].size(), 2u);
  for (std::size_t r = 0; r < 2; ++r) {
    const auto us = [](const nlohmann::json& ns) { return ns.get<double>() * 1e-3; };
    const auto& of_rank = said["ranks"][r];
    const auto& together = read["together"]["ranks"][r];
    EXPECT_NEAR(read["ranks"][r]["communication_us"], us(of_rank["communication_ns"]), 0.01);
    EXPECT_NEAR(together["waited_us"], us(of_rank["waited_ns"]), 0.01);
    EXPECT_NEAR(together["others_waited_us"], us(of_rank["others_waited_ns"]), 0.01);
    EXPECT_EQ(together["came_last"], of_rank["came_last"]);
  }
  EXPECT_GT(read["together"]["collectives"][0]["bus_bytes_per_second"], 0);
}

TEST(RanksOfTheProgram, SayInOneLineWhatIsWrong) {
  const Sandbox sandbox;
  EXPECT_THAT(complaint_of(sandbox.run(train({"--ranks", "5"})), 2),
              HasSubstr("--batch-size 12 does not divide among 5 ranks"));
  EXPECT_THAT(complaint_of(sandbox.run(train({"--ranks", "2", "--data", "nowhere.txt"})), 1),
              AllOf(HasSubstr("rank "), HasSubstr("nowhere.txt")));
  EXPECT_THAT(complaint_of(sandbox.run(train({"--ranks", "0"})), 2), HasSubstr("--ranks"));
  EXPECT_THAT(complaint_of(sandbox.run(train({"--ranks", "2", "--resume", "none"})), 1),
              HasSubstr("none"));
}

TEST(RanksOfTheProgram, EndWithinSecondsWhenOneDies) {
  const Sandbox sandbox;
  RunningProgram program(sandbox, train({"--ranks", "3", "--num-steps", "100000"}));
  ASSERT_TRUE(program.wait_for("Step 2/"));
  const std::vector<pid_t> ranks = ranks_of(sandbox);
  ASSERT_EQ(ranks.size(), 3u);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(complaint_of(program.wait(), 1),
            "ridge: rank 1 was ended by signal 9 (Killed); nothing was saved: --save-every makes "
            "checkpoints\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
  EXPECT_TRUE(ranks_of(sandbox).empty());
}

TEST(RanksOfTheProgram, EndWhenOneHangs) {
  const Sandbox sandbox;
  RunningProgram program(sandbox, train({"--ranks", "3", "--num-steps", "100000"}));
  ASSERT_TRUE(program.wait_for("Step 2/"));
  const std::vector<pid_t> ranks = ranks_of(sandbox);
  ASSERT_EQ(ranks.size(), 3u);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(ranks[2], SIGSTOP);
  EXPECT_THAT(complaint_of(program.wait(), 1),
              HasSubstr("rank 2 did not answer the others, and was ended"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
  EXPECT_TRUE(ranks_of(sandbox).empty());
}

TEST(RanksOfTheProgram, EndWithWhoeverStartedThem) {
  const Sandbox sandbox;
  {
    RunningProgram program(sandbox, train({"--ranks", "3", "--num-steps", "100000"}));
    ASSERT_TRUE(program.wait_for("Step 2/"));
    program.send(SIGKILL);
    program.wait();
  }
  for (int i = 0; i < 500 && !ranks_of(sandbox).empty(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(ranks_of(sandbox).empty());
}

TEST(RanksOfTheProgram, StopTogetherWhenInterrupted) {
  const Sandbox sandbox;
  RunningProgram program(
      sandbox, train({"--ranks", "3", "--num-steps", "100000", "--save-every", "1000000"}));
  ASSERT_TRUE(program.wait_for("Step 2/"));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(program.out(), HasSubstr("Interrupted"));
  EXPECT_TRUE(sandbox.has("output/checkpoint.safetensors"));
}

// A run that was killed in the middle, and started again, ends as if nothing had been.
TEST(RanksOfTheProgram, StartAgainFromTheLastCheckpoint) {
  const Sandbox sandbox;
  const Words run = train({"--ranks", "2", "--num-steps", "400", "--save-every", "20",
                           "--log-interval", "20", "--restarts", "5"});
  const auto with_output = [&](const std::string& name) {
    Words words = run;
    words.insert(words.end(), {"--output-dir", name});
    return words;
  };
  output_of(sandbox.run(with_output("undisturbed")));
  RunningProgram program(sandbox, with_output("killed"));
  for (const int rank : {1, 0}) {
    ASSERT_TRUE(program.wait_for(rank == 1 ? "Saved killed/checkpoint.safetensors at step 20"
                                           : "Resumed from killed/checkpoint.safetensors"));
    const std::vector<pid_t> ranks = ranks_of(sandbox);
    if (ranks.size() == 2) ::kill(ranks[static_cast<std::size_t>(rank)], SIGKILL);
  }
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("rank 1 was ended by signal 9 (Killed); starting again from "
                                    "killed/checkpoint.safetensors"));
  EXPECT_EQ(tensors_in(sandbox.path("killed/checkpoint.safetensors")),
            tensors_in(sandbox.path("undisturbed/checkpoint.safetensors")));
}

// To the same bits, on any number of ranks, whatever they share out, and from a checkpoint too.
TEST(RanksOfTheProgram, ComputeTheSameBitsIfDeterministic) {
  const Sandbox sandbox;
  const auto run = [&](const std::string& name, const Words& more) {
    Words words = train({"--deterministic", "--save-every", "3", "--output-dir", name});
    words.insert(words.end(), more.begin(), more.end());
    output_of(sandbox.run(words));
    return tensors_in(sandbox.path(name + "/checkpoint.safetensors"));
  };
  const auto alone = run("alone", {});
  EXPECT_EQ(run("four", {"--ranks", "4"}), alone);
  EXPECT_EQ(run("two", {"--ranks", "2", "--zero", "3"}), alone);
  // What is derived is derived anew, and not taken from the checkpoint.
  Words longer = train({"--deterministic", "--save-every", "3", "--output-dir", "on", "--ranks",
                        "2", "--resume", "alone/checkpoint.safetensors"});
  Words whole = train({"--deterministic", "--save-every", "3", "--output-dir", "whole"});
  for (Words* words : {&longer, &whole}) *std::ranges::find(*words, "6") = "9";
  output_of(sandbox.run(longer));
  output_of(sandbox.run(whole));
  EXPECT_EQ(tensors_in(sandbox.path("on/checkpoint.safetensors")),
            tensors_in(sandbox.path("whole/checkpoint.safetensors")));
}

// What a launcher does: each process is given its number, and where the first one is.
TEST(RanksOfALauncher, FindEachOther) {
  const Sandbox sandboxes[2];
  const std::string port = std::to_string(20000 + ::getpid() % 10000);
  std::vector<std::unique_ptr<RunningProgram>> programs;
  for (const int rank : {0, 1}) {
    const ScopedVariables variables{{"RANK", std::to_string(rank)},
                                    {"WORLD_SIZE", "2"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", port}};
    programs.push_back(std::make_unique<RunningProgram>(sandboxes[rank], train()));
  }
  for (const std::size_t rank : {0, 1}) {
    const ProgramResult result = programs[rank]->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(steps_in(programs[rank]->out()).size(), rank == 0 ? 6u : 0u);
    EXPECT_EQ(sandboxes[rank].has("output"), rank == 0);
  }
}

TEST(RanksOfALauncher, MustAgree) {
  const Sandbox sandboxes[2];
  const std::string port = std::to_string(20000 + (::getpid() + 5000) % 10000);
  std::vector<std::unique_ptr<RunningProgram>> programs;
  for (const int rank : {0, 1}) {
    const ScopedVariables variables{{"RANK", std::to_string(rank)},
                                    {"WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", port}};
    programs.push_back(
        std::make_unique<RunningProgram>(sandboxes[rank], train({"--seed", std::to_string(rank)})));
  }
  for (const auto& program : programs)
    EXPECT_THAT(complaint_of(program->wait(), 2),
                HasSubstr("rank 1 is another version of Ridge than rank 0, or has other options"));
}

TEST(RanksOfALauncher, ThatSaysNotWhere) {
  const auto started = of_open_mpi("1", "2");
  const Sandbox sandbox;
  EXPECT_THAT(complaint_of(sandbox.run(train()), 2),
              HasSubstr("Open MPI does not tell rank 1 where the others are: set MASTER_ADDR"));
  EXPECT_FALSE(sandbox.has("output"));
  EXPECT_THAT(complaint_of(sandbox.run(train({"--ranks", "3"})), 2),
              HasSubstr("--ranks is 3, but Open MPI started 2 processes"));
}

TEST(RanksOfALauncher, DoNotWaitForeverForOthers) {
  const ScopedVariables variables{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  const Sandbox sandbox;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(complaint_of(sandbox.run(train()), 1),
              HasSubstr("nobody answered at 127.0.0.1, port 2"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(RanksOfALauncher, OfOneRunAlone) {
  const auto started = of_open_mpi("0", "1");
  const Sandbox sandbox;
  EXPECT_THAT(output_of(sandbox.run(train())), HasSubstr("Step 6/6"));
}

TEST(RanksOfALauncher, TellOfThemselves) {
  const auto started = of_open_mpi("1", "2");
  const Sandbox sandbox;
  EXPECT_THAT(output_of(sandbox.run({"ridge", "train", "--help"})), HasSubstr("--num-steps"));
  EXPECT_THAT(output_of(sandbox.run({"ridge", "passes"})), HasSubstr("flash-attention"));
}

TEST(RanksOfALauncher, ThatMakeNoSenseAreNamed) {
  const auto started = of_open_mpi("2", "2");
  const Sandbox sandbox;
  EXPECT_THAT(complaint_of(sandbox.run(train()), 2),
              HasSubstr("OMPI_COMM_WORLD_RANK is '2': it must be a number from 0 to 1"));
}

using Ends = std::vector<std::pair<int, RankEnd>>;
constexpr RankEnd good{};
const RankEnd lost{.end = {.exit_code = lost_rank_exit}, .words = "another rank has ended"};

TEST(FaultOf, IsOfTheRankThatFailedByItself) {
  EXPECT_EQ(fault_of(Ends{{1, good}, {0, good}}), std::nullopt);
  EXPECT_EQ(fault_of(Ends{{1, lost}, {2, {.end = {.signal = SIGKILL}}}, {0, lost}}),
            "rank 2 was ended by signal 9 (Killed)");
  EXPECT_EQ(fault_of(Ends{{1, lost}, {0, {.end = {.exit_code = 1}, .words = "the disk is full"}}}),
            "rank 0: the disk is full");
}

TEST(FaultOf, IsOfTheRankThatHadToBeEnded) {
  EXPECT_EQ(
      fault_of(Ends{{1, lost}, {0, lost}, {2, {.end = {.signal = SIGKILL}, .was_stopped = true}}}),
      "rank 2 did not answer the others, and was ended");
}

TEST(FaultOf, IsThatRanksLostEachOther) {
  EXPECT_EQ(fault_of(Ends{{1, lost}, {0, lost}}), "rank 1: another rank has ended");
}

// All were told to end, and did.
TEST(FaultOf, IsNoneOfAnInterruptedRun) {
  const RankEnd interrupted{.end = {.exit_code = 130}};
  EXPECT_EQ(fault_of(Ends{{1, interrupted}, {0, interrupted}}), std::nullopt);
}

}  // namespace
}  // namespace ridge
