#include "ridge/cli/workshop_names.h"

#include <algorithm>
#include <sstream>

namespace ridge {
namespace {

constexpr WorkshopName names[] = {
    {"tiny_llama_v1", "train --version v1"},
    {"tiny_llama_v2", "train --version v2"},
    {"tiny_llama_v3", "train --version v3"},
    {"tiny_llama_v4", "train --version v4"},
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
     "train --num-steps 20 --enable-pytorch-profiler --profile-memory --profile-dir "
     "./rocprof_sys_profiles"},
    {"run_rocprof_compute",
     "train --num-steps 20 --profile-operators --counters --profile-dir "
     "./rocprof_compute_profiles"},
    {"run_all_profilers", "train --num-steps 20 --enable-all-profiling"},
    {"launch_performance_study", "launch-performance-study"},
    {"compare_versions", "compare", "v1 v2 v3 v4"},
    {"roofline_analysis", "roofline"},
    {"performance_dashboard", "dashboard"},
    {"regression_tester", "gate"},
    {"report_generator", "report"},
};

void append_words(std::vector<std::string>& words, std::string_view text) {
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) words.push_back(word);
}

}  // namespace

std::span<const WorkshopName> workshop_names() { return names; }

std::optional<std::vector<std::string>> workshop_command(std::string_view program,
                                                         std::span<const std::string> arguments) {
  for (const std::string_view end : {".py", ".sh"})
    if (program.ends_with(end)) program.remove_suffix(end.size());
  const auto* const found = std::ranges::find(names, program, &WorkshopName::name);
  if (found == std::end(names)) return std::nullopt;
  std::vector<std::string> words;
  append_words(words, found->command);
  if (arguments.empty() || arguments.front().starts_with('-')) append_words(words, found->alone);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace ridge
