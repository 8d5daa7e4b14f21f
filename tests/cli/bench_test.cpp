#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "ridge/cpu/device.h"
#include "ridge/models/vision/vision.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> quick{
    "ridge", "bench",    "--device", "cpu",          "--network", "squeezenet1_1", "--batch-size",
    "1",     "--warmup", "1",        "--image-size", "64",        "--iterations",  "3"};

std::vector<std::string> with(std::vector<std::string> command,
                              const std::vector<std::string>& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST(BenchCommand, PrintsEveryIterationAndASummary) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run(with(quick, {"--export-json", "b.json", "--export-times", "b.csv"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"Using network: squeezenet1_1", "Warmup iteration 0: Loss = ", "Warmup complete.",
        "Epoch 0: Loss = ", "Epoch 2: Loss = ", "Performance Summary:", "Wrote b.csv",
        "Wrote b.json"})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_EQ(
      nlohmann::json::parse(sandbox.read("b.json"))["performance_summary"]["step_seconds"].size(),
      4u)
      << "the one to warm up among them";
  EXPECT_THAT(sandbox.read("b.csv"), HasSubstr("\n2,"));
}

TEST(BenchCommand, WritesTheSourcesOfChains) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run({"ridge", "bench", "--device", "cpu", "--network", "densenet121", "--mode",
                   "training", "--compile", "--batch-size", "2", "--image-size", "64", "--warmup",
                   "0", "--iterations", "1", "--export-kernels", "kernels"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("generated kernels to kernels"));
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(sandbox.path("kernels"))) {
    EXPECT_THAT(sandbox.read("kernels/" + file.path().filename().string()),
                HasSubstr("__global__"));
    ++count;
  }
  EXPECT_GT(count, 0u);
}

TEST(BenchCommand, ReadsNumbersAsTrainDoes) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run(with(
      quick, {"--batch-size", "3", "--batch-size", "002", "--warmup", "0", "--iterations", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Batch size: 2\n"));
  EXPECT_THAT(
      sandbox.run(with(quick, {"--batch-size", "010", "--warmup", "0", "--iterations", "1"})).out,
      HasSubstr("Batch size: 10\n"));
}

TEST(BenchCommand, ListsTheNetworks) {
  const Sandbox sandbox;
  const auto list = nlohmann::json::parse(sandbox.run({"ridge", "bench", "--list", "--json"}).out);
  ASSERT_EQ(list.size(), 1 + vision_networks().size());
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& entry : list) {
    for (const char* key : {"name", "aliases", "parameters", "macs", "input_size", "classes"})
      EXPECT_TRUE(entry.contains(key)) << entry;
    by_name[entry["name"]] = entry;
  }
  EXPECT_EQ(by_name.at("tiny_llama")["input_size"], nlohmann::json({128}));
  EXPECT_EQ(by_name.at("tiny_llama")["classes"], 1000);
  EXPECT_EQ(by_name.at("resnet50")["input_size"], nlohmann::json({3, 224, 224}));
  EXPECT_EQ(by_name.at("resnet50")["classes"], 1000);
  EXPECT_EQ(by_name.at("fcn_resnet50")["classes"], 21) << "of each pixel";
  EXPECT_THAT(sandbox.run({"ridge", "bench", "--list"}).out, HasSubstr("resnext50_32x4d"));
}

TEST(BenchCommand, RefusesWhatItCannotDoBeforeItMeasures) {
  const Sandbox sandbox;
  const auto refused = [&](std::initializer_list<std::string> more, int code, const char* what) {
    const ProgramResult result = sandbox.run(with(quick, more));
    EXPECT_EQ(result.exit_code, code);
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_THAT(result.err, EndsWith("\n"));
    EXPECT_THAT(result.out, Not(HasSubstr("Epoch")));
  };
  refused({"--network", "resnet5"}, 2, "resnet50");
  refused({"--batch-size", "0"}, 2, "--batch-size is 0");
  refused({"--image-size", "8"}, 2, "8 x 8 are too small");
  refused({"--seed", "many"}, 2, "--seed is 'many'; it must be an integer");
  refused({"--seed", "-1"}, 2, "--seed is -1");
  refused({"--iterations", "1.5"}, 2, "--num-steps is '1.5'; it must be an integer");
  refused({"--seed", "99999999999999999999"}, 2, "--seed is '99999999999999999999', which is out");
  refused({"--batch-size", "0x10"}, 2, "--batch-size is '0x10'; it must be an integer");
  refused({"--learning-rate", "1x"}, 2, "--learning-rate is '1x'; it must be a number");
  refused({"--batch-sizes", "1,x,3"}, 2, "--batch-sizes is 'x'; it must be an integer");
  refused({"--batch-sizes", "8,,4"}, 2, "--batch-sizes is '8,,4', whose item 2 is empty");
  refused({"--batch-sizes", "1,"}, 2, "--batch-sizes is '1,', whose item 2 is empty");
  refused({"--precisions", ","}, 2, "--precisions is ',', whose item 1 is empty");
  refused({"--precisions", ""}, 2, "--precisions is empty; it needs a value");
  refused({"--seed", ""}, 2, "--seed is empty; it needs a value");
  refused({"--weights", ""}, 2, "--weights is empty");
  refused({"--device", "cuda:1"}, 2, "--device is 'cuda:1'; choose one of auto, cpu, cuda");
  refused({"stray"}, 2, "there is no argument stray");
  refused({"--dtype", "fp17"}, 2, "fp32, tf32, bf16, fp16, fp8, int8");
  refused({"--dtype", "int8", "--mode", "training"}, 2, "it is for inference");
  refused({"--dtype", "int8", "--channels-last", "off"}, 2,
          "the pass int8-layers needs channels-last, which is disabled");
  if (!CpuDevice(1).target().multiplies_float16)
    refused({"--dtype", "fp16"}, 2, "has no fp16 arithmetic; use --dtype bf16 or fp32");
  refused({"--fp16", "2"}, 2, "--fp16 is 2");
  refused({"--amp-opt-level", "4"}, 2, "--amp-opt-level is 4");
  refused({"--compile", "--compileContext", "{'mode': 'fast'}"}, 2, "'mode' is 'fast'");
  refused({"--compile", "--compileContext", "{'mode'"}, 2, "takes a dict of Python");
  refused({"--flops-prof-step", "3"}, 2, "iterations 0 to 2");
  refused({"--precisions", "fp32,fp17"}, 2, "--precisions fp17: ");
  refused({"--batch-sizes", "8,0"}, 2, "--batch-sizes is 0; it must be from 1");
  refused({"--find-max-batch", "--max-batch-for", "3XB"}, 2, "'3XB' is no amount of memory");
  refused({"--export-profile", "missing/t.json"}, 1, "cannot write missing/t.json");
  refused({"--export-json", "missing/b.json"}, 1, "cannot write missing/b.json");
}

TEST(BenchCommand, RefusesFlagsThatExcludeEachOther) {
  const Sandbox sandbox;
  const auto refused = [&](std::initializer_list<std::string> more, const char* what) {
    const ProgramResult result = sandbox.run(with(quick, more));
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  };
  refused({"--fp16", "1", "--dtype", "bf16"}, "--fp16 1 and --dtype bf16 exclude each other");
  refused({"--fp16", "0", "--dtype", "fp16"}, "--fp16 0 and --dtype fp16 exclude each other");
  refused({"--fp16", "0", "--amp-opt-level", "1"}, "--fp16 0 and --amp-opt-level 1");
  refused({"--amp-opt-level", "1", "--dtype", "fp32"}, "excludes --dtype fp32");
  refused({"--amp-opt-level", "1", "--dtype", "int8"}, "excludes --dtype int8");
  refused({"--fp16", "1", "--dtype", "int8"}, "--fp16 1 and --dtype int8 exclude each other");
  refused({"--compileContext", "{}"}, "give --compile too");
  refused({"--find-max-batch", "--batch-sizes", "1,2"}, "exclude each other");
  refused({"--find-max-batch", "--compare-modes"}, "exclude each other");
  refused({"--compare-modes", "--modes", "none"}, "exclude each other");
  refused({"--modes", "none,fast"}, "there is no version 'fast'");
  refused({"--networks", "resnet18,resnet50"}, "--networks excludes --network");
  refused({"--latency-limit", "5"}, "give --batch-sizes too");
  refused({"--batch-sizes", "1,2", "--latency-limit", "0"}, "--latency-limit is 0");
  refused({"--price-per-hour", "-1"}, "--price-per-hour is -1");
  refused({"--batch-sizes", "1,2", "--energy"}, "--batch-sizes excludes --energy");
  refused({"--compare-modes", "--compile"}, "--compare-modes excludes --compile");
  refused({"--precisions", "fp32,bf16", "--dtype", "bf16"}, "--precisions excludes --dtype");
  refused({"--batch-sizes", "1,2", "--kineto"}, "--batch-sizes excludes --kineto");
  refused({"--max-batch-for", "1GB"}, "give that too");
  for (const char* table : {"--find-max-batch", "--compare-modes"})
    refused({table, "--mode", "training", "--save-weights", "w"}, "excludes --save-weights");
  refused({"--batch-sizes", "1,2", "--mode", "training", "--save-weights", "w"},
          "--batch-sizes excludes --save-weights");
  refused({"--learning-rate", "0.1"}, "--learning-rate is for --mode training");
  refused({"--export-times", "f", "--export-json", "./f"},
          "--export-times and --export-json write one file");
  refused({"--kineto", "--export-json", "squeezenet1_1_trace.json"},
          "--export-json and --kineto write one file");
  refused({"--find-max-batch", "--mode", "learning"}, "--mode is 'learning'");
  if (CpuDevice(1).target().multiplies_float16) return;
  refused({"--precisions", "fp32,fp16"}, "has no fp16 arithmetic");
  refused({"--find-max-batch", "--precisions", "bf16,fp16"}, "has no fp16 arithmetic");
  for (const char* flag : {"--device_ids", "--rank", "--world-size"})
    refused({flag, "1"}, "give --ranks N");
  refused({"--distributed_dataparallel"}, "give --ranks N");
}

// A word of a shell's line may be in double quotes.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> std::quoted(word);) words.push_back(word);
  return words;
}

std::string value_after(const std::vector<std::string>& words, const std::string& flag) {
  const auto at = std::ranges::find(words, flag);
  return at == words.end() ? "" : *(at + 1);
}

// Each line as it stands, but for a network and images that take no time.
TEST(BenchCommand, RunsTheWorkshopsLines) {
  std::ifstream file(RIDGE_SOURCE_DIR "/tests/cli/bench_commands.txt");
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    SCOPED_TRACE(line);
    std::vector<std::string> command = shell_words(line);
    vision_network(value_after(command, "--network"));
    const std::string iterations = value_after(command, "--iterations");
    const bool profiles_flops = !value_after(command, "--flops-prof-step").empty();
    const ProgramResult result = Sandbox().run(with(
        command,
        {"--network", "squeezenet1_1", "--image-size", "32", "--batch-size", "2", "--threads", "1",
         "--warmup", "1", "--device", "cpu", "--iterations", profiles_flops ? "11" : "4"}));
    const bool half = value_after(command, "--fp16") == "1";
    if (half && result.exit_code == 2) {  // on a processor without fp16
      EXPECT_THAT(result.err, HasSubstr("fp16"));
      EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
      continue;
    }
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    for (const char* text :
         {"Using network: ", "Batch size: 2\n", "Iterations: ", "Warming up (1 iterations)...\n",
          "Warmup iteration 0: Loss = ", "Warmup complete.\n", "Running timed iterations...\n",
          "Epoch 3: Loss = ", " seconds", "Performance Summary:\n",
          "Average time per iteration: ", "Standard deviation: ", "Throughput: ", "Memory Usage: ",
          "Milliseconds per batch: ", "Microseconds per sample: ", "Median: "})
      EXPECT_THAT(result.out, HasSubstr(text));
    EXPECT_THAT(result.out, HasSubstr(half ? "FP16: True\n" : "FP16: False\n"));
    const bool compiles = std::ranges::find(command, "--compile") != command.end();
    EXPECT_EQ(result.out.find("Compilation complete in ") != std::string::npos, compiles);
    if (line.find("max-autotune") != std::string::npos) {
      EXPECT_THAT(result.out, HasSubstr("Compile: ENABLED (mode=max-autotune)\n"));
    }
    if (line.find("--autograd-profiler") != std::string::npos) {
      for (const char* text :
           {"Profiler Results (iterations 2 to 3):\n", "conv2d", "memory, in one",
            "Which operations take longest", "  Together: ", "What share have convolutions?",
            "How much does the host add?", "Are there gaps", "Are there copies?",
            "Do launches of the same work vary", "and 2 that were recorded"})
        EXPECT_THAT(result.out, HasSubstr(text));
    }
    if (profiles_flops) {
      for (const char* text : {"Profile Summary at step 10:\n", "Aggregated Profile",
                               "Detailed Profile", "How efficient is it?", "Which modules hold it",
                               "How many FLOPs does it do for each byte", "What holds it back?",
                               "What would help it most?\n  1. ", "and 1 that were recorded"})
        EXPECT_THAT(result.out, HasSubstr(text));
    }
    if (::testing::Test::HasFailure()) break;  // the others would say the same
  }
  EXPECT_EQ(lines, 46u);
}

TEST(BenchCommand, WritesATraceAndTablesAsJson) {
  const Sandbox sandbox;
  ProgramResult result = sandbox.run(with(quick, {"--kineto", "--export-json", "b.json"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Wrote squeezenet1_1_trace.json, for ui.perfetto.dev"));
  for (const char* text : {"What it shows, of 2 passes:\n",
                           "  Long operations: ", "  Gaps above 10 µs: ", "  Transfers: none"})
    EXPECT_THAT(result.out, HasSubstr(text));
  const auto trace = nlohmann::json::parse(sandbox.read("squeezenet1_1_trace.json"));
  EXPECT_TRUE(std::ranges::any_of(trace["traceEvents"], [](const auto& event) {
    return event.value("name", "") == "aten::conv2d";
  }));
  const auto json = nlohmann::json::parse(sandbox.read("b.json"));
  EXPECT_FALSE(json["profile"]["operators"]["rows"].empty());
  EXPECT_EQ(json["performance_summary"]["recorded_steps"], nlohmann::json({2, 3}));

  result = sandbox.run(with(quick, {"--export-profile", "t.pftrace"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(sandbox.has("t.pftrace"));
  EXPECT_THAT(result.out, Not(HasSubstr("Profiler Results")));
}

TEST(BenchCommand, ComparesModesPrecisionsAndBatchSizes) {
  const Sandbox sandbox;
  const auto table = [&](const std::vector<std::string>& more) {
    const ProgramResult result = sandbox.run(with(with(quick, more), {"--export-json", "t.json"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, Not(HasSubstr("Epoch")));
    return std::pair(result.out, nlohmann::json::parse(sandbox.read("t.json")));
  };
  const auto [modes, modes_json] = table({"--compare-modes"});
  for (const char* row : {"\nno compile ", "\ndefault ", "\nreduce-overhead ", "\nmax-autotune "})
    EXPECT_THAT(modes, HasSubstr(row));
  EXPECT_EQ(modes_json["rows"].size(), 4u);

  const auto [precisions, precisions_json] = table({"--precisions", "fp32,bf16"});
  EXPECT_THAT(precisions, HasSubstr("Largest difference of logits"));
  EXPECT_LT(precisions_json["rows"][1]["difference"]["logits_over_rms"], 0.2);

  const auto [sizes, sizes_json] = table({"--batch-sizes", "1,2,1000000"});
  EXPECT_THAT(sizes, HasSubstr("  1000000 | out of memory"));
  EXPECT_GT(sizes_json["rows"][1]["peak_memory_mb"], sizes_json["rows"][0]["peak_memory_mb"]);

  const auto [most, most_json] =
      table({"--find-max-batch", "--max-batch-for", "50MB", "--precisions", "fp32,bf16"});
  EXPECT_THAT(most, HasSubstr("bf16 takes "));
  for (const auto& row : most_json["rows"])
    EXPECT_EQ(row["measured_peak_bytes"], row["planned_peak_bytes"]);

  // Gradients and the optimizer's state take their part.
  for (const bool compiled : {false, true}) {
    std::vector<std::string> flags{"--find-max-batch", "--max-batch-for", "50MB", "--mode",
                                   "training"};
    if (compiled) flags.emplace_back("--compile");
    const auto [trained, trained_json] = table(flags);
    const auto& row = trained_json["rows"][0];
    EXPECT_GT(row["batch_size"], 0) << compiled;
    EXPECT_LT(2 * int{row["batch_size"]}, int{most_json["rows"][0]["batch_size"]}) << compiled;
    EXPECT_EQ(row["measured_peak_bytes"], row["planned_peak_bytes"]) << compiled;
  }
}

TEST(BenchCommand, TimesAllCombinationsOfWhatVaries) {
  const Sandbox sandbox;
  const Words small =
      words_of("ridge bench --device cpu --batch-size 1 --warmup 1 --image-size 64 --iterations 6");
  const ProgramResult result =
      sandbox.run(with(small, words_of("--networks squeezenet1_1,mobilenet_v2 --modes none,default "
                                       "--precisions fp32,bf16 --price-per-hour 3.6 "
                                       "--export-json t.json")));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Using networks: squeezenet1_1, mobilenet_v2\n"));
  EXPECT_THAT(result.out, HasSubstr("Network       | Precision | Mode    | ms/batch"));
  EXPECT_THAT(result.out, HasSubstr("\nMost samples/s of mobilenet_v2: mobilenet_v2, "));
  const auto json = nlohmann::json::parse(sandbox.read("t.json"));
  ASSERT_EQ(json["rows"].size(), 8u);
  EXPECT_EQ(json["rows"][3]["name"], "squeezenet1_1, bf16, default");
  EXPECT_EQ(json["rows"][3]["dtype"], "bf16");
  EXPECT_EQ(json["rows"][3]["version"], "default");
  EXPECT_LT(json["rows"][1]["bytes_moved"], json["rows"][0]["bytes_moved"]);
  EXPECT_GT(json["rows"][4]["convolution_seconds"], 0);
  EXPECT_EQ(json["rows"][4]["speedup"]["ratio"], 1.0) << "the first of its network";
  EXPECT_NEAR(json["rows"][0]["price_of_1000"], 1.0 / double{json["rows"][0]["samples_per_second"]},
              1e-9);
  EXPECT_THAT(json["answers"][0], HasSubstr("Most samples/s of squeezenet1_1: "));
}

TEST(BenchCommand, SaysWhatTablesShow) {
  const Sandbox sandbox;
  const auto table = [&](const std::vector<std::string>& more) {
    const ProgramResult result = sandbox.run(with(quick, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string sizes = table({"--batch-sizes", "1,2,4", "--latency-limit", "100000"});
  EXPECT_THAT(sizes, HasSubstr("\nSweet spot: a batch of "));
  EXPECT_THAT(sizes, HasSubstr("\nLargest batch within 100000.0 ms: 4, with "));
  EXPECT_THAT(sizes, HasSubstr("| GFLOP | GFLOP/s"));
  const std::string modes = table({"--modes", "none,max-autotune", "--export-json", "t.json"});
  EXPECT_THAT(modes, HasSubstr("| Pays after | Second start"));
  const auto rows = nlohmann::json::parse(sandbox.read("t.json"))["rows"];
  EXPECT_TRUE(rows[0]["second_compile_seconds"].is_null()) << "nothing is compiled";
  EXPECT_GT(rows[1]["second_compile_seconds"], 0);
  EXPECT_THAT(modes, HasSubstr(" kernels in place of "));
  const std::string precisions = table({"--precisions", "fp32,bf16"});
  for (const char* row : {"\n  in convolutions ", "\n  in the slowest kernel ", "\nKernels ",
                          "\nGFLOP/s ", "\n  parameters ", "\n  intermediates "})
    EXPECT_THAT(precisions, HasSubstr(row));
  EXPECT_THAT(precisions, ::testing::ContainsRegex("BF16 holds .* MB (less|more) at the peak: "));
}

TEST(BenchCommand, SaysWhatASampleCosts) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run(with(quick, {"--price-per-hour", "3.6", "--energy", "--export-json", "b.json"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("Price of 1,000 images: .*, at 3.6 an hour\n"));
  EXPECT_THAT(result.out, HasSubstr("Energy of an image: not known"));
  EXPECT_THAT(result.out, HasSubstr("measured and planned are equal to the byte\n"));
  const auto json = nlohmann::json::parse(sandbox.read("b.json"));
  EXPECT_NEAR(json["price_of_1000"],
              1.0 / double{json["performance_summary"]["samples_per_second"]}, 1e-9);
}

// Batch norm finds no variance in one image whose last activations are of 1 x 1.
TEST(BenchCommand, RefusesABatchThatBatchNormCannotTrainOn) {
  const Sandbox sandbox;
  const std::vector<std::string> training{
      "ridge",  "bench",    "--device", "cpu", "--network",    "resnet18", "--image-size", "32",
      "--mode", "training", "--warmup", "0",   "--iterations", "2",        "--threads",    "2"};
  ProgramResult result = sandbox.run(with(training, {"--batch-size", "1"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("use a larger batch or larger images"));
  EXPECT_EQ(result.out, "");

  result = sandbox.run(with(training, {"--batch-sizes", "1,2", "--batch-size", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("         1 |  refused |"));
  EXPECT_THAT(result.out, HasSubstr("\n1: one image of this size leaves"));
  EXPECT_THAT(result.out, Not(HasSubstr("         2 |  refused |")));

  result = sandbox.run(with(training, {"--find-max-batch", "--max-batch-for", "139MiB"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("fp32      | "));
  result = sandbox.run(with(training, {"--find-max-batch", "--max-batch-for", "100MB"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("fp32: not even a batch of 2 fits"));
}

TEST(BenchCommand, SaysWhyAPrecisionHasNoLargestBatch) {
  const Sandbox sandbox;
  const auto within = [&](const std::string& budget) {
    return sandbox.run(
        with(quick, {"--find-max-batch", "--max-batch-for", budget, "--precisions", "bf16,fp32"}));
  };
  // How much less 16 bits need depends on the processor's kernels, so each is asked for it.
  const auto needed = [out = within("1MB").out](const std::string& precision) {
    std::smatch found;
    return std::regex_search(out, found,
                             std::regex("\n" + precision + ": .* it needs ([0-9.]+) MiB"))
               ? std::stod(found[1])
               : 0;
  };
  const double bf16 = needed("bf16"), fp32 = needed("fp32");
  ASSERT_LT(bf16, fp32);
  const ProgramResult result = within(fmt::format("{:.3f}MiB", (bf16 + fp32) / 2));
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nfp32: not even a batch of 1 fits"));
  EXPECT_THAT(result.out, Not(HasSubstr("\nbf16: ")));
}

TEST(BenchCommand, LeavesATableOfLargestBatchesAfterAnInterrupt) {
  const Sandbox sandbox;
  RunningProgram program(
      sandbox, with(quick, {"--image-size", "224", "--find-max-batch", "--max-batch-for", "2GB",
                            "--precisions", "fp32,bf16"}));
  ASSERT_TRUE(program.wait_for("Device: "));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_THAT(result.out, HasSubstr("Interrupted\nLargest batches of squeezenet1_1"));
}

TEST(BenchCommand, SumsUpWhatWasMeasuredBeforeAnInterrupt) {
  const Sandbox sandbox;
  RunningProgram program(sandbox, with(quick, {"--iterations", "100000", "--autograd-profiler"}));
  ASSERT_TRUE(program.wait_for("Epoch 2: "));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_THAT(result.out, HasSubstr("Interrupted\n"));
  EXPECT_THAT(result.out, HasSubstr("Performance Summary:\n"));
  EXPECT_THAT(result.out, HasSubstr("Nothing was profiled: the run ended before iteration"));
}

TEST(BenchCommand, ReportsWhatItMeasuredEvenIfWeightsCannotBeSaved) {
  const Sandbox sandbox;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { 200'000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult result =
      sandbox.run(with(quick, {"--mode", "training", "--save-weights", "w.safetensors"}));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write w.safetensors"));
  EXPECT_THAT(result.out, HasSubstr("Throughput: "));
  EXPECT_FALSE(sandbox.has("w.safetensors"));
}

TEST(BenchCommand, SaysHowItIsCalled) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run({"micro_benchmarking_pytorch", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("ridge bench --network resnet50"));
  EXPECT_THAT(result.out, HasSubstr("--compileContext"));
}

}  // namespace
}  // namespace ridge
