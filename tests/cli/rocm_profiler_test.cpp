// ROCm's profilers as names of the program: the workshop's lines, their flags, and their files.

#include "ridge/cli/rocm_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/cli/workshop_names.h"
#include "ridge/trace/read.h"
#include "ridge/trace/report.h"
#include "tests/base/message_of.h"
#include "tests/cli/measured_machine.h"
#include "tests/cli/workshop_commands.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RocmProfile profile_of(const std::string& line) { return parse_rocm_call(words_of(line)).profile; }

std::vector<std::string> files_of(const std::string& line) {
  std::vector<std::string> names;
  for (const RocmProfile::File& file : profile_of(line).files) names.push_back(file.path.string());
  return names;
}

TEST(RocmProfiler, NamesItsFilesAsTheToolsDo) {
  EXPECT_THAT(files_of("rocprof x"), ElementsAre("results.csv"));
  EXPECT_THAT(files_of("rocprof --stats --hip-trace -o a/b.csv x"),
              ElementsAre("a/b.csv", "a/b.stats.csv", "a/b.json"));
  EXPECT_THAT(files_of("rocprofv2 --kernel-trace -o t.json x"), ElementsAre("t.json"));
  EXPECT_THAT(files_of("rocprofv2 --plugin perfetto -d out -o t x"), ElementsAre("out/t.pftrace"));
  EXPECT_THAT(files_of("rocprofv3 --kernel-trace --stats -d out -o n -- x"),
              ElementsAre("out/n_agent_info.csv", "out/n_kernel_trace.csv",
                          "out/n_kernel_stats.csv", "out/n_domain_stats.csv"));
  EXPECT_THAT(files_of("rocprofv3 -r -f pftrace csv -o n -- x"),
              ElementsAre("n_results.pftrace", "n_agent_info.csv", "n_kernel_trace.csv"));
  EXPECT_THAT(files_of("rocprofv3 -r --output-format=pftrace -- x"),
              ElementsAre(ContainsRegex("^[^/]+/[0-9]+_results.pftrace$")));
  EXPECT_THAT(files_of("rocprof-compute profile -n net -- x"),
              ElementsAre("workloads/net/pmc_perf.csv"));
  EXPECT_TRUE(profile_of("rocprofv3 --kernel-trace -T -- x").truncates);
  EXPECT_TRUE(profile_of("rocprof --basenames on x").truncates);
  EXPECT_TRUE(profile_of("rocprof-compute profile -w f x").counts);
}

// The program that is started, and its own flags, which may be those of the tool.
TEST(RocmProfiler, StandsForTheProgramThatItStarts) {
  const auto command = [](const std::string& line) {
    Words words = words_of(line);
    const std::string tool = words.front();
    words.erase(words.begin());
    return workshop_command(tool, words).value_or(Words{});
  };
  const Words words =
      command("rocprof --stats -o f.csv python3 ./micro_benchmarking_pytorch.py --network vgg11");
  ASSERT_EQ(words.size(), 4U);
  EXPECT_THAT(Words(words.begin(), words.end() - 1), ElementsAre("bench", "--network", "vgg11"));
  const RocmProfile profile = rocm_profile(words.back().substr(std::string(rocm_flag).size() + 1));
  EXPECT_EQ(profile.tool, "rocprof");
  EXPECT_THAT(profile.files.back().path.string(), EndsWith("f.stats.csv"));
  EXPECT_EQ(command("rocprofv3 -r -- ridge train --stats").at(1), "--stats");
  EXPECT_EQ(command("rocprof torchrun --nproc-per-node 2 micro_benchmarking_pytorch.py").at(0),
            "bench");
  for (const char* line :
       {"rocprof --stats", "rocprof -o a.csv python3", "rocprof ls", "rocprof ridge plan",
        "rocprof compare_versions", "rocprof rocprof", "rocprofv3 -r --"})
    EXPECT_THAT(message_of<UsageError>([&] { command(line); }),
                HasSubstr("profiles ridge train and ridge bench"))
        << line;
}

TEST(RocmProfiler, RefusesWhatItHasNotInOneLine) {
  const std::pair<const char*, const char*> refused[] = {
      {"rocprof -i input.txt x", "rocprof has no -i here: rocprof --help names the flags"},
      {"rocprof -o out.txt x", "must end in .csv"},
      {"rocprof -o", "a value is missing: NAME.csv"},
      {"rocprof --basenames maybe x", "rocprof --basenames: maybe is neither on nor off"},
      {"rocprof --stats=1 x", "rocprof --stats takes no value"},
      {"rocprofv2 -o t.xml x", "must end in .csv, .json or .pftrace"},
      {"rocprofv2 --plugin ctf x", "it is file, json or perfetto here"},
      {"rocprofv3 --stats -- x", "add --kernel-trace or --runtime-trace"},
      {"rocprofv3 -r -f otf2 -- x", "it is csv or pftrace here"},
      {"rocprofv3 --pmc SQ_WAVES -- x", "rocprofv3 has no --pmc here"},
      {"rocprof-compute analyze -p d", "rocprof-compute is rocprof-compute profile here"},
      {"rocprof-compute profile -- x", "name the file by -w FILE"}};
  for (const auto& [line, what] : refused) {
    const std::string message = message_of<UsageError>([&] { profile_of(line); });
    EXPECT_THAT(message, AllOf(HasSubstr(what), Not(HasSubstr("\n")))) << line;
  }
  const Sandbox sandbox;
  EXPECT_THAT(complaint_of(sandbox.run(words_of("rocprofv3 --pmc A -- tiny_llama_v3")), 2),
              HasSubstr("rocprofv3 has no --pmc here"));
  EXPECT_THAT(complaint_of(sandbox.run(words_of("rocprof -o no/such.csv tiny_llama_v1 "
                                                "--batch-size 0")),
                           2),
              HasSubstr("batch-size"));
  EXPECT_THAT(complaint_of(sandbox.run(words_of("rocprof micro_benchmarking_pytorch "
                                                "--batch-sizes 1,2")),
                           2),
              HasSubstr("--batch-sizes excludes rocprof"));
  EXPECT_TRUE(fs::is_empty(sandbox.path(""))) << "nothing was begun";
}

TEST(RocmProfiler, HasHelpAndLinks) {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const Sandbox sandbox;
  for (const std::string tool : {"rocprof", "rocprofv2", "rocprofv3", "rocprof-compute"}) {
    EXPECT_EQ(fs::read_symlink(bin / tool), "ridge");
    const std::string help = output_of(sandbox.run({tool, "--help"}));
    EXPECT_THAT(help, AllOf(HasSubstr("Usage: " + tool), HasSubstr("Example:")));
    for (const std::string& line : lines_of(help)) EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_THAT(output_of(sandbox.run(words_of("rocprof --stats tiny_llama_v1 --help"))),
              HasSubstr("rocprof is this command:"));
}

std::size_t rows_in(const std::string& csv) {
  return static_cast<std::size_t>(std::ranges::count(csv, '\n')) - 1;
}

// The calls of kernels that `ridge trace report` sees in a file.
std::int64_t kernels_seen_in(const Sandbox& sandbox, const std::string& file) {
  const ProgramResult result = sandbox.run({"ridge", "trace", "report", file, "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  return json.at("ranks").at(0).at("kernels").get<std::int64_t>();
}

std::string only_file(const Sandbox& sandbox, const std::string& end) {
  std::string found;
  for (const auto& entry : fs::recursive_directory_iterator(sandbox.path("")))
    if (entry.path().string().ends_with(end))
      found = fs::relative(entry.path(), sandbox.path("")).string();
  return found;
}

void expect_rocprof(const Sandbox& sandbox, const std::string& name, const std::string& out) {
  const std::string calls = sandbox.read(name + ".csv"), stats = sandbox.read(name + ".stats.csv");
  EXPECT_THAT(calls, HasSubstr("\"Index\",\"KernelName\",\"gpu-id\","));
  EXPECT_THAT(stats,
              HasSubstr("\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\n"));
  EXPECT_THAT(stats, HasSubstr("\n\"conv2d\",78,")) << "26 in each of three passes";
  EXPECT_THAT(out, HasSubstr("Profiling output will be in: " + name + ".csv\n"));
  EXPECT_THAT(out, HasSubstr("Results saved to: " + name + ".stats.csv\n"));
  // Two steps and the one that warms up.
  EXPECT_EQ(rows_in(calls) % 3, 0U);
  EXPECT_GT(rows_in(calls), 60U);
  EXPECT_EQ(kernels_seen_in(sandbox, name + ".csv"), static_cast<std::int64_t>(rows_in(calls)));
}

void expect_rocprofv3_tables(const Sandbox& sandbox, const std::string& out) {
  const std::string trace = only_file(sandbox, "_kernel_trace.csv"),
                    stats = only_file(sandbox, "_kernel_stats.csv");
  EXPECT_THAT(sandbox.read(trace), HasSubstr("\"Kind\",\"Agent_Id\",\"Queue_Id\""));
  EXPECT_THAT(sandbox.read(stats), HasSubstr(",\"MinNs\",\"MaxNs\",\"StdDev\"\n"));
  EXPECT_THAT(sandbox.read(only_file(sandbox, "_domain_stats.csv")),
              HasSubstr("\"KERNEL_DISPATCH\","));
  EXPECT_THAT(sandbox.read(only_file(sandbox, "_agent_info.csv")), HasSubstr("\"CPU\""));
  EXPECT_THAT(out, ContainsRegex("ROCPROFV3 SUMMARY:\nNAME +\\| DOMAIN +\\| CALLS "));
  EXPECT_THAT(out, HasSubstr("KERNEL_DISPATCH"));
  EXPECT_EQ(kernels_seen_in(sandbox, trace),
            static_cast<std::int64_t>(rows_in(sandbox.read(trace))));
}

void expect_counters(const Sandbox& sandbox, const std::string& out) {
  const std::string csv = sandbox.read("profile.csv");
  EXPECT_THAT(csv, HasSubstr("Dispatch_ID,GPU_ID,"));
  EXPECT_THAT(out, HasSubstr("Speed of light: how busy each unit is"));
  EXPECT_THAT(out, ContainsRegex("\nconv2d[^\n]* \\| "));
  EXPECT_THAT(out, HasSubstr("|   registers    |"));
  EXPECT_EQ(kernels_seen_in(sandbox, "profile.csv"), static_cast<std::int64_t>(rows_in(csv)));
  if (out.find("no hardware counters") == std::string::npos) {
    EXPECT_THAT(csv, HasSubstr("\"cycles\""));
  }
}

void expect_timeline(const Sandbox& sandbox, const std::string& out) {
  EXPECT_THAT(out, AllOf(HasSubstr("Timeline saved to: timeline.json\nFile size: "),
                         HasSubstr("View at: https://ui.perfetto.dev\n")));
  const auto trace = nlohmann::json::parse(sandbox.read("timeline.json"));
  EXPECT_TRUE(std::ranges::any_of(trace["traceEvents"], [](const auto& event) {
    return event.value("name", "") == "aten::conv2d";
  }));
  EXPECT_GT(kernels_seen_in(sandbox, "timeline.json") +
                static_cast<std::int64_t>(trace["traceEvents"].size()),
            60);
}

// Each line as it stands, python3 and .py included, but for networks that take no time.
TEST(RocmProfiler, RunsTheWorkshopsLines) {
  const MeasuredMachine machine;
  std::ifstream file(RIDGE_SOURCE_DIR "/tests/cli/rocm_commands.txt");
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    SCOPED_TRACE(line);
    Words command = words_of(line);
    const bool llama = line.find("tiny_llama") != std::string::npos;
    const Words small = llama ? tiny_flags : Words{"--network",    "squeezenet1_1",
                                                   "--image-size", "32",
                                                   "--batch-size", "2",
                                                   "--threads",    "1",
                                                   "--warmup",     "1",
                                                   "--device",     "cpu",
                                                   "--iterations", "2"};
    command.insert(command.end(), small.begin(), small.end());
    const Sandbox sandbox;
    const ProgramResult result = sandbox.run(command);
    if (line.ends_with("--fp16 1") && result.exit_code == 2) {  // on a processor without fp16
      EXPECT_THAT(result.err, HasSubstr("fp16"));
      continue;
    }
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, HasSubstr(command[0] + ": Profiling enabled, by Ridge\n"));
    EXPECT_THAT(result.out, HasSubstr("\nProfiling complete.\n"));
    EXPECT_THAT(result.out, Not(HasSubstr("Overhead of recording")));
    switch (lines) {
      case 0:
        expect_rocprof(sandbox, "profile_fp16", result.out);
        break;
      case 1:
        expect_rocprof(sandbox, "profile_fp32", result.out);
        break;
      case 2:
        expect_rocprof(sandbox, "results", result.out);
        break;
      case 3:
        expect_counters(sandbox, result.out);
        break;
      case 4:
        expect_timeline(sandbox, result.out);
        break;
      case 5:
        EXPECT_GT(fs::file_size(sandbox.path(only_file(sandbox, "_results.pftrace"))), 10'000U);
        break;
      default:
        expect_rocprofv3_tables(sandbox, result.out);
    }
  }
  EXPECT_EQ(lines, 7U);
}

// Several processes share a run; one of them writes.
TEST(RocmProfiler, WritesTheFirstRanksKernels) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run(words_of(
      "rocprof --stats -o r.csv torchrun --nproc-per-node 2 micro_benchmarking_pytorch.py "
      "--network squeezenet1_1 --image-size 32 --batch-size 2 --threads 1 --warmup 1 --device cpu "
      "--iterations 2"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(rows_in(sandbox.read("r.csv")), 60U);
}

}  // namespace
}  // namespace ridge
