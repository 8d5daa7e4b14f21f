#include "ridge/cli/workshop_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/rocm_profiler.h"
#include "ridge/passes/schedules.h"

namespace ridge {
namespace {

std::vector<WorkshopName> made_names() {
  std::vector<WorkshopName> names;
  std::string versions;
  for (const ScheduleRow& row : schedules()) {
    if (row.kind != ScheduleRow::Kind::version) continue;
    names.push_back(
        {fmt::format("tiny_llama_{}", row.name), fmt::format("train --version {}", row.name)});
    versions += fmt::format("{} ", row.name);
  }
  const WorkshopName others[] = {
      {"micro_benchmarking_pytorch", "bench"},
      {"run_baseline", "train --version v1"},
      {"run_pytorch_profiler",
       "train --num-steps 20 --enable-pytorch-profiler --profile-memory --profile-dir "
       "./pytorch_profiles"},
      {"run_deepspeed_flops",
       "train --num-steps 20 --enable-deepspeed-flops --flops-profile-step 10"},
      {"run_rocprofv3",
       "train --num-steps 20 --enable-pytorch-profiler --profile-dir ./rocprofv3_profiles"},
      {"run_rocprof_sys",
       "train --num-steps 20 --enable-pytorch-profiler --profile-memory --profile-system "
       "--profile-dir ./rocprof_sys_profiles"},
      {"run_rocprof_compute",
       "train --num-steps 20 --profile-operators --counters --profile-dir "
       "./rocprof_compute_profiles"},
      {"run_all_profilers", "train --num-steps 20 --enable-all-profiling"},
      {"launch_performance_study", "launch-performance-study"},
      {"compare_versions", "compare", versions},
      {"roofline_analysis", "roofline"},
      {"performance_dashboard", "dashboard"},
      {"regression_tester", "gate"},
      {"report_generator", "report"},
  };
  names.insert(names.end(), std::begin(others), std::end(others));
  return names;
}

void append_words(std::vector<std::string>& words, std::string_view text) {
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) words.push_back(word);
}

}  // namespace

std::span<const WorkshopName> workshop_names() {
  static const std::vector<WorkshopName> names = made_names();
  return names;
}

namespace {

// "torchrun --nproc-per-node 2 micro_benchmarking_pytorch.py --network resnet50": its own flags up
// to the first word that is a name of ours, and that one's.
std::vector<std::string> torchrun_command(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto words = workshop_command(std::filesystem::path(arguments[i]).filename().string(),
                                  arguments.subspan(i + 1));
    if (!words) continue;
    // Its lines have no word for GPUs that are fewer than ranks.
    append_words(*words, "--ranks-per-gpu 0");
    // All ranks are on this machine, as they are for these two.
    for (const std::string& flag : arguments.first(i))
      if (flag != "--standalone" && flag != "--nnodes=1") words->push_back(flag);
    return *words;
  }
  throw UsageError(
      "this torchrun starts what is named like the workshop's programs, such as "
      "micro_benchmarking_pytorch.py; PyTorch's own starts ridge by torchrun --no-python");
}

// "rocprofv3 --stats --kernel-trace -- python3 tiny_llama_v3.py --num-steps 5": the command that is
// profiled, with the words before it as one flag.
std::vector<std::string> rocm_command(std::string_view tool,
                                      std::span<const std::string> arguments) {
  std::vector<std::string> call{std::string(tool)};
  call.insert(call.end(), arguments.begin(), arguments.end());
  const std::span<const std::string> words(call);
  const std::size_t begin = parse_rocm_call(words).program;
  auto program = words.subspan(begin);
  if (!program.empty() && (program[0] == "python" || program[0] == "python3"))
    program = program.subspan(1);
  std::string name;
  std::optional<std::vector<std::string>> command;
  if (!program.empty()) {
    name = std::filesystem::path(program[0]).filename().string();
    const auto rest = program.subspan(1);
    if (name == "ridge")
      command.emplace(rest.begin(), rest.end());
    else if (!is_rocm_profiler(name))
      command = workshop_command(name, rest);
  }
  const std::string_view starts = command && !command->empty() ? command->front() : "";
  if (starts != "train" && starts != "bench")
    throw UsageError(
        "this {} profiles ridge train and ridge bench, which the workshop calls tiny_llama_v1.py "
        "and micro_benchmarking_pytorch.py, and not {}",
        tool, name.empty() ? "nothing" : shown(name));
  command->push_back(rocm_flag_of(words.first(begin)));
  return *command;
}

}  // namespace

std::optional<std::vector<std::string>> workshop_command(std::string_view program,
                                                         std::span<const std::string> arguments) {
  if (program == "torchrun") return torchrun_command(arguments);
  if (is_rocm_profiler(program)) return rocm_command(program, arguments);
  for (const std::string_view end : {".py", ".sh"})
    if (program.ends_with(end)) program.remove_suffix(end.size());
  const auto names = workshop_names();
  const auto found = std::ranges::find(names, program, &WorkshopName::name);
  if (found == names.end()) return std::nullopt;
  std::vector<std::string> words;
  append_words(words, found->command);
  if (arguments.empty() || arguments.front().starts_with('-')) append_words(words, found->alone);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace ridge
