// The names of the workshop's programs and scripts, and the lines of its performance study.

#include "ridge/cli/workshop_names.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/passes/schedules.h"
#include "tests/base/message_of.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string small_model =
    " --hidden-dim 16 --num-layers 1 --num-heads 2 --vocab-size 32 --seq-len 8 --batch-size 2 "
    "--threads 1";

Words command(std::string_view program, const Words& arguments = {}) {
  return workshop_command(program, arguments).value_or(Words{});
}

TEST(WorkshopNames, StandForCommands) {
  EXPECT_THAT(command("tiny_llama_v3", {"--num-steps", "2"}),
              ElementsAre("train", "--version", "v3", "--num-steps", "2"));
  EXPECT_EQ(command("tiny_llama_v3.py"), command("tiny_llama_v3"));
  EXPECT_THAT(command("compare_versions.py"), ElementsAre("compare", "v1", "v2", "v3", "v4"));
  EXPECT_THAT(command("compare_versions", {"--json"}),
              ElementsAre("compare", "v1", "v2", "v3", "v4", "--json"));
  EXPECT_THAT(command("compare_versions", {"v1", "v4"}), ElementsAre("compare", "v1", "v4"));
  EXPECT_EQ(workshop_command("ridge", {}), std::nullopt);
  EXPECT_EQ(workshop_command("tiny_llama_v9", {}), std::nullopt);
  for (const ScheduleRow& row : schedules()) {
    if (row.kind != ScheduleRow::Kind::version) continue;
    EXPECT_THAT(command(fmt::format("tiny_llama_{}", row.name)),
                ElementsAre("train", "--version", row.name));
  }
}

TEST(WorkshopNames, StandForWhatTorchrunStarts) {
  EXPECT_THAT(command("torchrun", {"--nproc-per-node", "2", "micro_benchmarking_pytorch.py",
                                   "--network", "resnet50", "--batch-size", "128"}),
              ElementsAre("bench", "--network", "resnet50", "--batch-size", "128",
                          "--ranks-per-gpu", "0", "--nproc-per-node", "2"));
  EXPECT_THAT(command("torchrun", {"--standalone", "--nnodes=1", "--nproc_per_node=4",
                                   "./tiny_llama_v4.py", "--seq-len", "8"}),
              ElementsAre("train", "--version", "v4", "--seq-len", "8", "--ranks-per-gpu", "0",
                          "--nproc_per_node=4"));
  EXPECT_THAT(message_of<UsageError>([] { command("torchrun", {"train.py"}); }),
              HasSubstr("torchrun --no-python"));
}

// Each has a link beside the program, and the flags that it stands for are there.
TEST(WorkshopNames, AreLinksToTheProgram) {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const Sandbox sandbox;
  for (const WorkshopName& name : workshop_names()) {
    const std::string plain(name.name);
    const bool is_script = plain.starts_with("run_") || plain.starts_with("launch_");
    const fs::path link = bin / (is_script ? plain + ".sh" : plain);
    EXPECT_EQ(fs::read_symlink(link), "ridge") << link;
    const ProgramResult help = sandbox.run({plain, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr(plain + " is this command:"));
  }
}

TEST(WorkshopNames, Run) {
  for (const char* script :
       {"run_baseline.sh", "run_pytorch_profiler.sh", "run_deepspeed_flops.sh", "run_rocprofv3.sh",
        "run_rocprof_sys.sh", "run_rocprof_compute.sh", "run_all_profilers.sh"}) {
    const Sandbox sandbox;
    const ProgramResult result = sandbox.run(words_of(script + small_model + " --num-steps 11"));
    EXPECT_EQ(result.exit_code, 0) << script << ": " << result.err;
    EXPECT_THAT(result.out, HasSubstr("Throughput: "));
    EXPECT_EQ(std::string(script) == "run_baseline.sh",
              result.out.find("[PROFILING]") == std::string::npos)
        << script;
  }
}

// A shell in the sandbox, where the program's names lie as files.
struct Shell {
  Shell() {
    const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
    for (const char* name : {"launch_performance_study.sh", "tiny_llama_v1.py"})
      fs::create_symlink(bin / "ridge", sandbox.path(name));
  }
  std::string operator()(const std::string& lines) const {
    sandbox.write("lines.sh", lines);
    const std::string run =
        fmt::format("cd '{0}' && bash lines.sh > .out 2>&1", sandbox.path("").string());
    EXPECT_EQ(std::system(run.c_str()), 0) << sandbox.read(".out");
    return sandbox.read(".out");
  }
  fs::path only_result(const std::string& size) const {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(sandbox.path("")))
      if (entry.path().filename().string().starts_with("performance_results_" + size))
        found = entry.path();
    return found;
  }
  Sandbox sandbox;
};

// The lines of step 4 in section 6.3 of the workshop's text.
constexpr const char* analysis = R"(# List all performance study results
ls -lt performance_results_*/

# View latest tiny run configuration
cat performance_results_tiny_*/config.json

# View training output
cat performance_results_tiny_*/training_output.log

# Compare throughput across sizes
echo "=== Throughput Comparison ==="
for dir in performance_results_*/; do
    size=$(basename "$dir" | cut -d'_' -f3)
    throughput=$(grep "Throughput:" "$dir/training_output.log" | tail -1 | awk '{print $2, $3}')
    echo "$size: $throughput"
done

# Compare memory usage
echo ""
echo "=== Memory Usage Comparison ==="
for dir in performance_results_*/; do
    size=$(basename "$dir" | cut -d'_' -f3)
    memory=$(grep "Peak memory usage:" "$dir/training_output.log" | tail -1 | awk '{print $4, $5}')
    echo "$size: $memory"
done
)";

// Sections 6.3 to 6.7, of models small enough for a test: the flags that follow a size say so.
TEST(WorkshopStudy, RunsTheLinesOfTheText) {
  const Shell shell;
  const std::string tiny =
      shell("./launch_performance_study.sh tiny --hidden-dim 16 --n-heads 2 --threads 1\n");
  EXPECT_THAT(
      tiny, AllOf(HasSubstr("CASTILLE AI WORKSHOP - VERSION 1 BASELINE PERFORMANCE STUDY\n"),
                  HasSubstr("\nProblem Size: TINY\nConfiguration:\n  Hidden Dimension:    16\n"
                            "  Number of Layers:    4\n  Sequence Length:     128\n"
                            "  Batch Size:          8\n  Training Steps:      50\n"),
                  ContainsRegex("\n  Parameters:          [0-9,]+\n"
                                "  Est. Parameters:     ~2.9M [^\n]*\n"
                                "  Expected Time:       <5s/iter"),
                  HasSubstr("\n  Profilers Enabled:   false\n"),
                  ContainsRegex("\nOutput Directory: performance_results_tiny_[0-9]{8}_[0-9]{6}\n"),
                  HasSubstr("\nStarting V1 Baseline training...\n"), HasSubstr("\nStep 50/50: "),
                  ContainsRegex("\n=+\nPERFORMANCE STUDY COMPLETE\n=+\nTotal Runtime: [0-9]+s\n"
                                "Throughput: [0-9.]+ samples/sec\nPeak Memory: [0-9]+ MB\n"),
                  HasSubstr("\nNext steps:\n")));
  const std::string profiled = shell(
      "./launch_performance_study.sh small --enable-profilers --hidden-dim 16 --n-layers 1 "
      "--n-heads 2 --threads 1 --num-steps 12 --version v4  # instead of medium\n");
  EXPECT_THAT(profiled, AllOf(HasSubstr("Profilers Enabled:   true"),
                              HasSubstr(" - VERSION 4 ULTRA PERFORMANCE STUDY\n"),
                              HasSubstr("\nStarting V4 Ultra training...\n")));

  const std::string text = shell(analysis);
  EXPECT_THAT(text, ContainsRegex("=== Throughput Comparison ===\nsmall: [0-9.]+ samples/sec\n"
                                  "tiny: [0-9.]+ samples/sec\n\n=== Memory Usage Comparison ===\n"
                                  "small: [0-9.]+ MB\ntiny: [0-9.]+ MB\n$"));
  EXPECT_THAT(text, HasSubstr("\"hidden-dim\": 16"));

  // Section 6.6, without Python, and 6.7.
  EXPECT_THAT(shell("cd performance_results_small_*/\ncat performance_summary.json\n"
                    "ls -lh pytorch_profiles/\n"),
              AllOf(HasSubstr("\"performance_summary\""), HasSubstr("operators.json")));
  EXPECT_THAT(shell("chmod +x launch_performance_study.sh\n./launch_performance_study.sh tiny "
                    "--hidden-dim 16 --n-heads 2 --num-steps 2\n"),
              HasSubstr("PERFORMANCE STUDY COMPLETE"));
  EXPECT_THAT(shell("./tiny_llama_v1.py --hidden-dim 16 --num-layers 2 --num-heads 2 --seq-len 8 "
                    "--batch-size 2 --num-steps 2\n"),
              HasSubstr("Step 2/2"));
}

TEST(WorkshopStudy, IsTheSameRunAsItsFiles) {
  const Shell shell;
  const std::string out =
      shell("./launch_performance_study.sh tiny --hidden-dim 16 --n-heads 2 --num-steps 5\n");
  const fs::path directory = shell.only_result("tiny");
  const std::string log = read_text_file(directory / "training_output.log", 1 << 20);
  EXPECT_THAT(out, HasSubstr(log)) << "all of the training's output is shown";
  const auto record =
      nlohmann::json::parse(read_text_file(directory / "performance_summary.json", 1 << 20));
  EXPECT_THAT(
      out, HasSubstr(fmt::format("\nThroughput: {:.1f} samples/sec\nPeak Memory: {:.0f} MB\n",
                                 record["performance_summary"]["samples_per_second"].get<double>(),
                                 record["performance_summary"]["peak_memory_mb"].get<double>())));
}

TEST(WorkshopStudy, RefusesMistakesInALine) {
  const Sandbox sandbox;
  const auto err = [&](const std::string& arguments, int exit_code) {
    return complaint_of(sandbox.run(words_of("launch_performance_study.sh" + arguments)),
                        exit_code);
  };
  EXPECT_THAT(err("", 2), HasSubstr("which size?"));
  EXPECT_THAT(err(" meduim", 2), HasSubstr("did you mean medium?"));
  EXPECT_THAT(err(" tiny small", 2), HasSubstr("which size?"));
  EXPECT_THAT(err(" very_large --batch-size 4096", 1),
              ContainsRegex("very_large needs [0-9.]+ TiB, and the CPU has [0-9.]+ GiB left"));
  EXPECT_THAT(err(" medium --batch-size 512", 1),
              ContainsRegex("it would fit with .*--batch-size [0-9]+; or take a smaller size"));
  EXPECT_TRUE(fs::is_empty(sandbox.path(""))) << "nothing was begun";
}

}  // namespace
}  // namespace ridge
