#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/workshop_commands.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Words train_tiny = Words{"ridge", "train"} + tiny_flags;

nlohmann::json summary_in(const Sandbox& sandbox, const std::string& directory) {
  return nlohmann::json::parse(sandbox.read(directory + "/performance_summary.json"));
}

// Runs a command that is to end with this exit code.
ProgramResult run_to(int exit_code, const Sandbox& sandbox, const Words& command) {
  ProgramResult result = sandbox.run(command);
  EXPECT_EQ(result.exit_code, exit_code)
      << ::testing::PrintToString(command) << result.out << result.err;
  return result;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(text))
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

TEST(WorkshopCommands, AreUnderstoodAsWritten) {
  const std::vector<Words> commands = workshop_commands();
  ASSERT_GT(commands.size(), 30u);
  const Sandbox sandbox;
  for (const Words& command : commands) {
    const ProgramResult result = run_to(0, sandbox, command + Words{"--print-config"});
    // Every "--flag value" is in the options that will be used.
    const nlohmann::json used = nlohmann::json::parse(result.out);
    for (std::size_t i = 1; i + 1 < command.size(); ++i) {
      if (!command[i].starts_with("--") || command[i + 1].starts_with("--")) continue;
      std::string name = command[i].substr(2);
      if (name == "num-layers") name = "n-layers";
      ASSERT_TRUE(used.contains(name)) << name;
      const std::string value =
          used[name].is_string() ? used[name].get<std::string>() : used[name].dump();
      EXPECT_EQ(value, command[i + 1]) << name;
    }
  }
}

// The same lines, made small, to their end.
TEST(WorkshopCommands, Run) {
  for (const Words& command : workshop_commands()) {
    const Sandbox sandbox;
    const ProgramResult result =
        run_to(0, sandbox, command + tiny_flags + Words{"--num-steps", "2"});
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_EQ(lines_with(result.out, "Loss = ").size(), 2u);
    EXPECT_EQ(summary_in(sandbox, "output")["performance_summary"]["losses"].size(), 2u);
    // A directory for profiles is written to when a profile was asked for, as in all such lines.
    const auto directory = std::ranges::find(command, "--profile-dir");
    if (directory != command.end()) {
      EXPECT_EQ(summary_in(sandbox, *(directory + 1))["version"], "v1");
    }
  }
}

// Before it does anything, whatever the command.
TEST(Fp8, NeedsAGpuThatHasIt) {
  const Sandbox sandbox;
  for (const char* command : {"train", "plan", "compare"}) {
    Words line{"ridge", command, "--device", "cpu", "--dtype", "fp8"};
    if (command == std::string("compare")) line = line + Words{"v1", "v4"};
    const ProgramResult result = run_to(2, sandbox, line);
    EXPECT_THAT(result.err, AllOf(HasSubstr("--dtype fp8 needs a GPU"), HasSubstr("on cpu")));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
  EXPECT_FALSE(sandbox.has("output"));
}

TEST(Output, IsInTheWorkshopsLayout) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run({"tiny_llama_v1", "--num-steps", "5", "--batch-size",
                                            "1", "--seq-len", "16", "--output-dir", "a/b"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b"))) << "no colors in a file";
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("\nTiny LLaMA V1 - Baseline\n"), HasSubstr("\nConfiguration:\n"),
            HasSubstr("\n  Batch Size: 1\n"), HasSubstr("\n  Sequence Length: 16\n"),
            HasSubstr("\nModel Configuration:\n"), HasSubstr("\n  Total Parameters: 2,873,600\n"),
            HasSubstr("\n  Model Size: 11.5 MB (FP32)\n"), HasSubstr("\nUsing device: cpu\n"),
            HasSubstr("\nStarting training...\n"), HasSubstr("\nPerformance Summary:\n")));
  const auto steps = lines_with(result.out, "Loss = ");
  ASSERT_EQ(steps.size(), 5u);
  for (const std::string& line : steps)
    EXPECT_THAT(line, ::testing::MatchesRegex(
                          "Step [1-5]/5: Loss = [0-9]\\.[0-9]+, Time = [0-9]+\\.[0-9]+ seconds"));
  EXPECT_THAT(result.out, ContainsRegex("\nAverage time per step: [0-9.]+ seconds\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nTraining speed: [0-9.]+ samples/sec\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nAvg time per forward: [0-9.]+ seconds\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nAvg time per backward: [0-9.]+ seconds\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nAvg time per optimizer: [0-9.]+ seconds\n"));
  EXPECT_THAT(result.out, HasSubstr("over 2 steps, without the first 3"));
  // The workshop's scripts take these by their place in the line.
  const auto throughput = lines_with(result.out, "Throughput:");
  ASSERT_EQ(throughput.size(), 1u);
  EXPECT_GT(std::stod(words_of(throughput[0]).at(1)), 0);
  EXPECT_EQ(words_of(throughput[0]).at(2), "samples/sec");
  const auto memory = lines_with(result.out, "Peak memory usage:");
  ASSERT_EQ(memory.size(), 1u);
  const nlohmann::json json = summary_in(sandbox, "a/b");
  EXPECT_NEAR(std::stod(words_of(memory[0]).at(3)),
              json["performance_summary"]["peak_memory_mb"].get<double>(), 0.051);
  EXPECT_EQ(words_of(memory[0]).at(4), "MB");
  EXPECT_NEAR(json["performance_summary"]["losses"][0].get<double>(), std::log(1000.0), 0.1);
  EXPECT_THAT(json["timestamp"].get<std::string>(), ::testing::MatchesRegex("[0-9-]+T[0-9:]+Z"));
  EXPECT_GT(json["performance_summary"]["peak_resident_bytes"],
            json["performance_summary"]["peak_memory_bytes"]);
}

TEST(Output, ShowsWhatProfilingAddsToIt) {
  const Sandbox sandbox;
  const ProgramResult result =
      run_to(0, sandbox,
             train_tiny + Words{"--num-steps", "8", "--profile", "--profile_steps", "2",
                                "--enable-memory-profiling", "--flops", "--profile-dir", "p"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("V1 - Baseline (Profiling Enabled)\n"),
                                HasSubstr("Profiling enabled: Steps 5-7\n"),
                                HasSubstr("Memory Profiling Enabled\n"),
                                HasSubstr("FLOPs of one step:\n"), HasSubstr("GFLOP/s")));
  EXPECT_EQ(lines_with(result.out, " MB [PROFILING]").size(), 3u);
  EXPECT_EQ(lines_with(result.out, ", Memory = ").size(), 8u);
  EXPECT_EQ(sandbox.read("p/performance_summary.json"),
            sandbox.read("output/performance_summary.json"));
  EXPECT_GT(summary_in(sandbox, "p")["performance_summary"]["flops_per_step"]["total"], 0);
}

TEST(Output, HasOneTraceUnderTwoNames) {
  const Sandbox sandbox;
  for (const bool compressed : {false, true}) {
    const std::string end = compressed ? ".json.gz" : ".json";
    const ProgramResult result =
        run_to(0, sandbox,
               train_tiny + Words{"--num-steps", "7", "--profile", "--profile-dir", end,
                                  compressed ? "--compress-traces" : "--profile"});
    const std::string trace = end + "/trace_step_4_7" + end;
    EXPECT_EQ(sandbox.read(trace).starts_with("\x1f\x8b"), compressed);
    const auto listed = lines_with(result.out, ".pt.trace" + end);
    ASSERT_EQ(listed.size(), 1u) << result.out;
    const std::string worker = words_of(listed[0]).at(1);
    EXPECT_TRUE(worker.ends_with(end));
    EXPECT_TRUE(sandbox.read(worker) == sandbox.read(trace));
    run_to(0, sandbox, {"ridge", "trace", "check", worker, "--tool", "HolisticTraceAnalysis"});
    // What is read from it is what the profile says itself.
    const auto read =
        nlohmann::json::parse(
            run_to(0, sandbox, {"ridge", "trace", "report", trace, "--json"}).out)["ranks"]
            .at(0);
    const auto said = nlohmann::json::parse(sandbox.read(end + "/operators.json"));
    EXPECT_NEAR(read["busy_us"], said["operators_ns"].get<double>() * 1e-3, 0.01);
    EXPECT_EQ(read["steps"].size(), said["steps"]);
    double products_us = 0, products_ns = 0;
    for (const auto& sum : read["operators"])
      if (sum["name"] == "aten::mm" || sum["name"] == "aten::bmm")
        products_us += sum["host_us"].get<double>();
    for (const auto& row : said["rows"])
      if (row["name"] == "matmul") products_ns += row["total"]["time_ns"].get<double>();
    EXPECT_NEAR(products_us, products_ns * 1e-3, 0.01);
  }
}

// Two kernels, the second of which the host launches 400 us too late.
TEST(Output, JudgesATraceAndWritesItsPage) {
  const Sandbox sandbox;
  std::string events;
  for (int i = 0; i < 2; ++i)
    events += fmt::format(
        R"({{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":{},"dur":2,"args":{{"correlation":{}}}}},)"
        R"({{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{},"dur":100,"args":{{"stream":7,"correlation":{}}}}}{})",
        500 * i, i + 1, 500 * i + 5, i + 1, i == 0 ? "," : "");
  sandbox.write("late.json", "[" + events + "]");
  const Words report = {"ridge", "trace", "report", "late.json"};
  run_to(0, sandbox, report + Words{"--fail-above", "70"});
  const ProgramResult result = run_to(1, sandbox, report + Words{"--fail-above", "60"});
  EXPECT_EQ(result.err,
            "ridge: late.json: launch-bound costs up to 66.7 % of the time, more than 60 %\n");
  EXPECT_THAT(run_to(0, sandbox, report + Words{"--html", "late.html"}).out,
              HasSubstr("Wrote late.html ("));
  EXPECT_THAT(sandbox.read("late.html"), HasSubstr("gemm"));
}

TEST(Output, PrintsEveryNthStepAndTheFirstAndLast) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run(train_tiny + Words{"--num-steps", "10", "--log-interval", "4"});
  std::vector<std::string> steps;
  for (const std::string& line : lines_with(result.out, "Loss = "))
    steps.push_back(words_of(line)[1]);
  EXPECT_THAT(steps, ElementsAre("1/10:", "4/10:", "8/10:", "10/10:"));
  EXPECT_EQ(summary_in(sandbox, "output")["performance_summary"]["losses"].size(), 10u);
}

TEST(Output, HasAProgressBarAndColorsOnATerminalOnly) {
  const Sandbox sandbox;
  const Words command = train_tiny + Words{"--num-steps", "4"};
  ::unsetenv("NO_COLOR");
  const auto plain = run_on_terminal(sandbox, command);
  if (!plain) GTEST_SKIP() << "there are no terminals here";
  EXPECT_EQ(plain->exit_code, 0);
  EXPECT_THAT(plain->out, AllOf(HasSubstr("25%  1/4"), HasSubstr(" left"), HasSubstr("\x1b[1m")));
  EXPECT_THAT(plain->out, HasSubstr("\r\x1b[KStep 4/4"));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_THAT(run_on_terminal(sandbox, command).value().out,
              AllOf(HasSubstr("25%  1/4"), Not(HasSubstr("\x1b[1m"))));
  ::unsetenv("NO_COLOR");
}

TEST(Configuration, FlagsWinOverTheFileWhichWinsOverDefaults) {
  const Sandbox sandbox;
  sandbox.write("c.json", R"({"batch_size": 3, "num-layers": 2, "seed": 7, "version": "v9"})");
  const ProgramResult result =
      sandbox.run({"tiny_llama_v1", "--config", "c.json", "--n_layers=1", "--print-config",
                   "--seq-len", "9", "--seq-len", "10", "--use-amp"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json used = nlohmann::json::parse(result.out);
  EXPECT_EQ(used["batch-size"], 3);
  EXPECT_EQ(used["n-layers"], 1);
  EXPECT_EQ(used["seed"], 7);
  EXPECT_EQ(used["seq-len"], 10) << "the last of several";
  EXPECT_EQ(used["version"], "v1") << "the name of the program is a flag";
  EXPECT_EQ(used["dtype"], "bf16");
  EXPECT_FALSE(sandbox.has("output")) << "only printed";
}

TEST(Configuration, WrittenByARunRepeatsIt) {
  const Sandbox sandbox;
  run_to(0, sandbox, train_tiny + Words{"--num-steps", "3", "--seed", "5"});
  run_to(0, sandbox, {"ridge", "train", "--config", "output/config.json", "--output-dir", "b"});
  EXPECT_EQ(summary_in(sandbox, "b")["performance_summary"]["losses"],
            summary_in(sandbox, "output")["performance_summary"]["losses"]);
}

TEST(Checkpoints, ResumeGoesOnAsIfNothingHadHappened) {
  const Sandbox sandbox;
  const Words command = train_tiny + Words{"--learning-rate", "0.01"};
  run_to(0, sandbox, command + Words{"--num-steps", "5", "--output-dir", "whole"});
  const ProgramResult first = run_to(
      0, sandbox, command + Words{"--num-steps", "3", "--save-every", "2", "--output-dir", "part"});
  EXPECT_EQ(lines_with(first.out, "Saved part/checkpoint.safetensors at step").size(), 2u)
      << "after step 2 and at the end";
  const Words resume{"ridge",       "train", "--resume", "part/checkpoint.safetensors",
                     "--num-steps", "5"};
  const ProgramResult second = run_to(0, sandbox, resume);
  EXPECT_THAT(second.out, HasSubstr("Resumed from part/checkpoint.safetensors at step 3\n"));
  const auto whole = summary_in(sandbox, "whole")["performance_summary"]["losses"];
  const auto rest = summary_in(sandbox, "part")["performance_summary"];
  EXPECT_EQ(rest["first_step"], 4);
  EXPECT_EQ(rest["losses"], nlohmann::json(std::vector<double>(whole.begin() + 3, whole.end())));

  EXPECT_THAT(run_to(0, sandbox, resume).out, HasSubstr("Nothing is left to do"));
  EXPECT_THAT(run_to(1, sandbox, resume + Words{"--hidden-dim", "32"}).err,
              HasSubstr("other sizes"));
}

TEST(Validation, IsReportedEveryKStepsAndAtTheEnd) {
  const Sandbox sandbox;
  sandbox.write("text", std::string(2000, 'a'));
  const ProgramResult result =
      run_to(0, sandbox,
             train_tiny + Words{"--vocab-size", "256", "--data", "text", "--num-steps", "5",
                                "--eval-every", "2", "--eval-batches", "1"});
  EXPECT_EQ(lines_with(result.out, "Validation after step").size(), 3u);
  const auto losses = summary_in(sandbox, "output")["performance_summary"]["validation_losses"];
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_EQ(losses[2]["step"], 5);
}

// Sends a signal to a long run and expects it to end as if that were what it had been asked for.
void expect_graceful_end(int signal) {
  const Sandbox sandbox;
  RunningProgram program(
      sandbox, train_tiny + Words{"--num-steps", "100000000", "--save-every", "100000000"});
  ASSERT_TRUE(program.wait_for("Step 3/")) << "each line is flushed";
  program.send(signal);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 128 + signal);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Saved output/checkpoint.safetensors"),
                                HasSubstr("Interrupted\n"), HasSubstr("Performance Summary:")));
  const auto summary = summary_in(sandbox, "output")["performance_summary"];
  EXPECT_EQ(summary["outcome"], "interrupted");
  EXPECT_GE(summary["losses"].size(), 3u);
  EXPECT_TRUE(sandbox.has("output/checkpoint.safetensors"));
}

TEST(Interrupt, FinishesTheStepAndReports) { expect_graceful_end(SIGINT); }
TEST(Interrupt, OfTheOtherKindDoesToo) { expect_graceful_end(SIGTERM); }

TEST(Interrupt, EndsAtOnceTheSecondTime) {
  const Sandbox sandbox;
  // One step of these takes hours.
  RunningProgram program(sandbox, train_tiny + Words{"--gradient-accumulation-steps", "65536",
                                                     "--seq-len", "256", "--batch-size", "64"});
  ASSERT_TRUE(program.wait_for("Starting training..."));
  ::usleep(300'000);  // until the step has begun: before it, the first signal ends the run
  program.send(SIGINT);
  ::usleep(200'000);
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.signal, SIGINT);
  EXPECT_THAT(result.out, Not(HasSubstr("Summary")));
}

TEST(Divergence, EndsTheRunAndIsReported) {
  const Sandbox sandbox;
  // Weights are multiplied by 1 - 10^4 at each step.
  const ProgramResult result =
      run_to(1, sandbox,
             train_tiny + Words{"--learning-rate", "100", "--weight-decay", "100", "--num-steps",
                                "100", "--save-every", "100"});
  EXPECT_THAT(result.err, AllOf(StartsWith("ridge: the loss is "), HasSubstr("at step "),
                                HasSubstr("--learning-rate")));
  EXPECT_EQ(lines_of(result.err).size(), 1u);
  EXPECT_EQ(summary_in(sandbox, "output")["performance_summary"]["outcome"], "diverged");
  EXPECT_FALSE(sandbox.has("output/checkpoint.safetensors")) << "spoilt weights are not kept";
}

TEST(Profile, ThatCannotBeWrittenCostsNoOtherFile) {
  const Sandbox sandbox;
  std::filesystem::create_directories(sandbox.path("p/operators.json"));
  const ProgramResult result = run_to(1, sandbox,
                                      train_tiny + Words{"--num-steps", "4", "--save-every", "4",
                                                         "--profile", "--profile-dir", "p"});
  EXPECT_EQ(result.err, "ridge: cannot write p/operators.json: it is a directory\n");
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Performance Summary:"), HasSubstr("  - p/modules.json\n"),
                    Not(HasSubstr("  - p/operators.json\n"))));
  EXPECT_TRUE(sandbox.has("p/modules.json"));
  EXPECT_TRUE(sandbox.has("output/checkpoint.safetensors"));
  EXPECT_EQ(summary_in(sandbox, "output")["performance_summary"]["outcome"], "completed");
}

TEST(Checkpoints, ThatCannotBeWrittenCostNoSummary) {
  const Sandbox sandbox;
  std::filesystem::create_directories(sandbox.path("output/checkpoint.safetensors"));
  const ProgramResult result =
      run_to(1, sandbox, train_tiny + Words{"--num-steps", "4", "--save-every", "4"});
  EXPECT_EQ(result.err, "ridge: cannot write output/checkpoint.safetensors: it is a directory\n");
  EXPECT_EQ(summary_in(sandbox, "output")["performance_summary"]["losses"].size(), 4u);
}

struct BadInput {
  Words arguments;
  int exit_code;
  std::string reason;
};

TEST(BadInput, IsOneLineAndWritesNothing) {
  const Sandbox sandbox;
  sandbox.write("empty", "");
  sandbox.write("short", "abc");
  sandbox.write("gzip", "\x1f\x8b\x08");
  sandbox.write("text", std::string(5000, 'a'));
  sandbox.write("list.json", "[1]");
  sandbox.write("unknown.json", R"({"sede": 1})");
  sandbox.write("a.safetensors", std::string("\x05\0\0\0\0\0\0\0{}", 10));
  const Words t{"ridge", "train", "--output-dir", "out", "--num-steps", "1"};
  const BadInput inputs[] = {
      {{"ridge"}, 2, "which command?"},
      {{"ridge", "trian"}, 2, "did you mean train?"},
      {{"ridge", "--vresion"}, 2, "did you mean --version?"},
      {{"ridge", "trace"}, 2, "there are: ridge trace report FILE, diff FILE FILE"},
      {{"ridge", "trace", "report"}, 2, "report which trace?"},
      {{"ridge", "trace", "report", "nowhere.json"}, 1, "cannot open \"nowhere.json\""},
      {{"ridge", "trace", "report", "gzip"},
       1,
       "\"gzip\" is no trace: the gzip file is cut short before its list of events"},
      {{"ridge", "trace", "report", "text"}, 1, "\"text\" is no trace: there is no list of events"},
      {{"ridge", "trace", "report", ".", "--top", "0"}, 2, "--top"},
      {{"ridge", "trace", "critical-path"}, 2, "the critical path of which trace?"},
      {{"ridge", "trace", "critical-path", "text"}, 1, "there is no list of events"},
      {{"ridge", "trace", "diff"}, 2, "compare which traces?"},
      {{"ridge", "trace", "diff", "text"}, 2, "give two"},
      {{"ridge", "trace", "diff", "text", "text"}, 1, "\"text\" is no trace"},
      {{"ridge", "trace", "diff", "text", "nowhere.json"}, 1, "\"text\" is no trace"},
      {{"ridge", "trace", "diff", "a", "b", "--top", "0"}, 2, "--top"},
      {{"ridge", "trace", "diff", "a", "b", "--fail-above", "-1"}, 2, "--fail-above"},
      {{"ridge", "trace", "check"}, 2, "check which trace?"},
      {{"ridge", "trace", "check", "gzip", "more"}, 2, "there is no argument more"},
      {{"ridge", "exercise", "debug", "--stgae", "1"}, 2, "did you mean --stage?"},
      {{"ridge", "trace", "check", "gzip"}, 1, "\"gzip\" is a gzip file that is cut short"},
      {t + Words{"--btach-size", "8"}, 2,
       "there is no flag --btach-size; did you mean --batch-size?"},
      {t + Words{"--batchsize=8"}, 2, "there is no flag --batchsize; did you mean --batch-size?"},
      {t + Words{"--qqqqqq"}, 2, "see ridge train --help"},
      {t + Words{"-x"}, 2, "-x"},
      {t + Words{"stray"}, 2, "stray"},
      {t + Words{"--batch-size"}, 2, "--batch-size needs one value"},
      {t + Words{"--batch-size", "--seq-len", "8"}, 2, "--batch-size needs a value"},
      {t + Words{"--batch-size", "0"}, 2, "--batch-size is 0"},
      {t + Words{"--batch-size", "-8"}, 2, "--batch-size is -8"},
      {t + Words{"--batch-size", "many"}, 2, "--batch-size is 'many'"},
      {t + Words{"--hidden-dim", "250"}, 2, "--hidden-dim 250 does not divide"},
      {t + Words{"--learning-rate", "nan"}, 2, "--learning-rate is nan"},
      {t + Words{"--version", "v7"}, 2, "v7"},
      {t + Words{"--device", "tpu"}, 2, "auto, cpu, cuda"},
      {t + Words{"--device", "cpu", "--dtype", "fp16"}, 2, "use --dtype bf16"},
      {{"ridge", "verify", "--device", "cpu", "--dtypes", "fp16"}, 2, "there are fp32, bf16"},
      {t + Words{"--data", "missing"}, 1, "missing: No such file"},
      {t + Words{"--data", "."}, 1, "directory"},
      {t + Words{"--data", "empty"}, 1, "empty"},
      {t + Words{"--data", "short"}, 2, "short"},
      {t + Words{"--data", "text", "--vocab-size", "50"}, 2, "text"},
      {t + Words{"--batch-size", "1000000", "--seq-len", "1000000"}, 2, "needs a tensor of"},
      {t + Words{"--batch-size", "512", "--seq-len", "16384"}, 1, "left of"},
      {t + Words{"--config", "missing"}, 1, "missing: No such file"},
      {t + Words{"--config", "list.json"}, 1, "list.json: the text is no JSON object"},
      {t + Words{"--config", "unknown.json"}, 1, "did you mean 'seed'?"},
      {t + Words{"--resume", "missing"}, 1, "missing: No such file"},
      {t + Words{"--resume", "text"}, 1, "text"},
      {t + Words{"--resume", "a.safetensors"}, 1, "a.safetensors"},
      {t + Words{"--init-from", "missing"}, 1, "missing"},
      {t + Words{"--output-dir", "text/out"}, 1, "Not a directory"},
      {t + Words{"--output-dir", "/proc/out"}, 1, "/proc/out"},
      {t + Words{"--output-dir", ""}, 2, "--output-dir is empty"},
      {t + Words{"--output-dir", "a\nb"}, 2, "control character"},
      {t + Words{"--profile", "--profile-dir", "text/out"}, 1, "Not a directory"},
  };
  for (const BadInput& input : inputs) {
    const ProgramResult result = run_to(input.exit_code, sandbox, input.arguments);
    const std::string shown = ::testing::PrintToString(input.arguments);
    EXPECT_THAT(result.err, AllOf(StartsWith("ridge: "), HasSubstr(input.reason), EndsWith("\n")))
        << shown;
    EXPECT_EQ(lines_of(result.err).size(), 1u) << shown << result.err;
    EXPECT_THAT(result.out, IsEmpty()) << shown;
    EXPECT_FALSE(sandbox.has("out/config.json")) << shown;
    EXPECT_FALSE(sandbox.has("output")) << shown;
    std::filesystem::remove_all(sandbox.path("out"));
  }
}

TEST(BadInput, KeepsItsExitCodeWhereNobodyCanBeToldWhy) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer itself writes a file before the program begins";
#endif
  const Sandbox sandbox;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit none { 0, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const ProgramResult result = sandbox.run({"ridge", "trian"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.exit_code, 2) << "signal " << result.signal;
}

TEST(BadInput, OutputThatCannotBeWrittenIsAnErrorBeforeTraining) {
  const Sandbox sandbox;
  std::filesystem::create_directories(sandbox.path("out/performance_summary.json"));
  const ProgramResult result =
      run_to(1, sandbox, train_tiny + Words{"--num-steps", "1", "--output-dir", "out"});
  EXPECT_THAT(result.err, HasSubstr("performance_summary.json"));
  EXPECT_THAT(result.out, Not(HasSubstr("Starting training")));
}

TEST(Help, NamesEveryFlagAndTheProgram) {
  const Sandbox sandbox;
  for (const Words& command : {Words{"ridge", "train", "--help"}, Words{"tiny_llama_v1", "-h"}}) {
    EXPECT_THAT(run_to(0, sandbox, command).out,
                AllOf(HasSubstr("--gradient-accumulation-steps"), HasSubstr("Profiling:"),
                      HasSubstr("Examples:")));
  }
  EXPECT_THAT(sandbox.run({"ridge", "--help"}).out, AllOf(HasSubstr("train"), HasSubstr("about")));
  EXPECT_THAT(sandbox.run({"ridge", "about"}).out, StartsWith("ridge "));
  EXPECT_EQ(sandbox.run({"ridge", "--version"}).out, sandbox.run({"ridge", "about"}).out);
}

// One core computes at 0.1 TFLOP/s, all of them at 0.4.
constexpr const char* machine_file = R"({"format": "ridge machine ceilings", "measured_at": "then",
  "host": "h", "hardware": "another CPU", "threads": 64,
  "compute": [{"instructions": "i", "dtype": "f32", "one_core_flops_per_second": 1e11,
               "all_cores_flops_per_second": 4e11}],
  "bandwidth": [{"level": "memory", "bytes": 0, "cores_sharing": 1,
                 "one_core_bytes_per_second": 1e10, "all_cores_bytes_per_second": 2e10}]})";

TEST(RooflineCommand, RefusesWhatMakesNoSense) {
  const Sandbox sandbox;
  const auto refused = [&](const char* flag, const char* value, const char* what) {
    const ProgramResult result =
        run_to(2, sandbox, {"ridge", "roofline", "--device", "cpu", flag, value});
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_EQ(result.out, "");
  };
  refused("--peak-tflops", "0", "--peak-tflops is 0; a peak is a positive number");
  refused("--peak-bandwidth", "-1", "--peak-bandwidth is -1; a peak");
  refused("--threads", "4097", "it must be from 0 to 4,096");
  refused("--ranks", "0", "--ranks is 0; it must be from 1 to 256");
  refused("--seconds", "long", "--seconds is 'long'; it must be a number");
}

// Ceilings that no machine reaches stand for those of a day on which this one was idle.
TEST(RooflineCommand, KeepsTheBestOfBeforeUnlessToldToForgetIt) {
  using Json = nlohmann::json;
  constexpr double unreachable = 1e30;
  const Sandbox sandbox;
  const auto kept_after = [&](const Words& flags) {
    run_to(0, sandbox,
           Words{"ridge", "roofline", "--device", "cpu", "--seconds", "0.1", "--threads", "1",
                 "--machine-file", "machine.json"} +
               flags);
    return Json::parse(sandbox.read("machine.json")).at("devices");
  };
  const auto rates_of = [](Json& device) {
    std::vector<Json*> rates;
    for (Json& ceiling : device.at("compute"))
      rates.push_back(&ceiling.at("one_core_flops_per_second"));
    for (Json& ceiling : device.at("bandwidth"))
      rates.push_back(&ceiling.at("one_core_bytes_per_second"));
    return rates;
  };
  Json devices = kept_after({});
  ASSERT_EQ(devices.size(), 1u);
  const std::size_t count = rates_of(devices[0]).size();
  for (Json* rate : rates_of(devices[0])) *rate = unreachable;
  devices.push_back(devices[0]);
  devices[1]["hardware"] = "another CPU";
  const Json machine{{"format", "ridge machine ceilings"}, {"devices", devices}};
  sandbox.write("machine.json", machine.dump());
  const auto unreachable_after = [&](const Words& flags, bool of_another) {
    std::size_t n = 0;
    Json kept = kept_after(flags);
    for (Json& device : kept)
      if ((device.at("hardware") == "another CPU") == of_another)
        for (const Json* rate : rates_of(device)) n += *rate == unreachable ? 1 : 0;
    return n;
  };
  EXPECT_EQ(unreachable_after({}, false), count);
  EXPECT_EQ(unreachable_after({"--fresh"}, false), 0u);
  EXPECT_EQ(unreachable_after({"--fresh"}, true), count)
      << "of other hardware nothing is forgotten";
}

TEST(Profiles, AreDrawnUnderTheCeilingsOfTheirThreads) {
  const Sandbox sandbox;
  sandbox.write("machine.json", machine_file);
  const Words profile{"--num-steps", "2", "--profile", "--profile-dir", "p"};
  EXPECT_THAT(run_to(0, sandbox, train_tiny + profile).out,
              HasSubstr("\nridge report p draws it\n"));
  const ProgramResult roofline =
      sandbox.run({"ridge", "roofline", "--profile", "p", "--machine-file", "machine.json"});
  EXPECT_THAT(roofline.out, HasSubstr("f32 peak 100 GFLOP/s"));

  EXPECT_THAT(run_to(0, sandbox, {"ridge", "report", "p", "--machine", "machine.json"}).out,
              StartsWith("Wrote p/report.html"));
  EXPECT_THAT(sandbox.read("p/report.html"), HasSubstr("\"f32_flops_per_second\":100000000000.0"));
  run_to(0, sandbox, {"ridge", "report", "p", "--output", "other.html"});
  EXPECT_TRUE(sandbox.has("other.html"));
}

TEST(Roofline, BeginsADamagedCacheAnewButNotAnotherFile) {
  const Sandbox sandbox;
  std::filesystem::create_directory(sandbox.path("ridge"));
  sandbox.write("ridge/machine.json", "{\xff");
  sandbox.write("named.json", "[1]");
  const std::string before = ::getenv("XDG_CACHE_HOME") ? ::getenv("XDG_CACHE_HOME") : "";
  ::setenv("XDG_CACHE_HOME", sandbox.path("").c_str(), 1);
  const Words measure{"ridge", "roofline", "--device", "cpu", "--seconds", "0.1", "--threads", "1"};
  const ProgramResult anew = sandbox.run(measure);
  const ProgramResult named = sandbox.run(measure + Words{"--machine-file", "named.json"});
  before.empty() ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.out, HasSubstr("machine.json is damaged and is begun anew\n"));
  EXPECT_THAT(sandbox.read("ridge/machine.json"), HasSubstr("\"ridge machine ceilings\""));
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_THAT(named.err, HasSubstr("named.json holds no machine's ceilings"));
  EXPECT_EQ(sandbox.read("named.json"), "[1]");
}

TEST(Report, SaysInOneLineWhatItCannotDraw) {
  const Sandbox sandbox;
  std::filesystem::create_directory(sandbox.path("p"));
  const auto complaint = [&](const Words& arguments, int exit_code) {
    const std::string error = run_to(exit_code, sandbox, Words{"ridge", "report"} + arguments).err;
    EXPECT_EQ(lines_of(error).size(), 1u);
    return error;
  };
  EXPECT_THAT(complaint({}, 2), HasSubstr("which profile?"));
  EXPECT_THAT(
      complaint({"nowhere"}, 1),
      HasSubstr("\"nowhere\" is no directory of a profile, and no kept run: there is no store"));
  EXPECT_THAT(complaint({"p"}, 1), HasSubstr("no operators.json"));
  sandbox.write("p/operators.json", "{\"steps\": \x01\n");
  EXPECT_THAT(complaint({"p"}, 1), HasSubstr("p/operators.json is no JSON"));
  EXPECT_FALSE(sandbox.has("p/report.html"));
}

}  // namespace
}  // namespace ridge
