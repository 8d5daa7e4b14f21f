#include "ridge/dist/rank.h"

#include <charconv>
#include <cstdlib>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"

namespace ridge {
namespace {

// It started this process if both of its variables are set.
struct Launcher {
  std::string_view name;
  std::string_view index, count, on_host, index_on_host;  // variables
};

// Those that run inside others come first. Slurm's number of processes is that of the step:
// SLURM_NTASKS is set in a batch script too, which is one process.
constexpr Launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"},
};

constexpr int most_ranks = 1'000'000;

int number_of(const std::string& text, std::string_view variable, int least, int most) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || stop != end || number < least || number > most)
    throw UsageError("the environment variable {} is '{}': it must be a number from {} to {}",
                     variable, printable(text), least, most);
  return number;
}

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* const value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::optional<Rank> rank_from(const Environment& environment) {
  for (const Launcher& launcher : launchers) {
    const std::optional<std::string> index = environment(launcher.index),
                                     count = environment(launcher.count);
    if (!index || !count) continue;
    Rank rank{.launcher = launcher.name};
    rank.count = number_of(*count, launcher.count, 1, most_ranks);
    rank.index = number_of(*index, launcher.index, 0, rank.count - 1);
    // One that does not say has started all of them here.
    const std::optional<std::string> on_host = environment(launcher.on_host);
    rank.on_host = on_host ? number_of(*on_host, launcher.on_host, 1, rank.count) : rank.count;
    const std::optional<std::string> index_on_host = environment(launcher.index_on_host);
    rank.index_on_host =
        index_on_host ? number_of(*index_on_host, launcher.index_on_host, 0, rank.on_host - 1)
                      : rank.index % rank.on_host;
    return rank;
  }
  return std::nullopt;
}

}  // namespace ridge
