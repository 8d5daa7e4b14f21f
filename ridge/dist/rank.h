#pragma once

// Which of how many processes this one is, where a launcher started several that belong together.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

// One process of several that a launcher started as one run.
struct Rank {
  int index = 0;                   // from 0
  int count = 1;                   // of all processes of the run
  int on_host = 1;                 // of those on this machine
  int index_on_host = 0;           // from 0, of those
  std::string_view launcher = {};  // "torchrun"
  bool operator==(const Rank&) const = default;
};

// The value of an environment variable; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
Environment process_environment();

// What a launcher left in the environment: torchrun, Open MPI's mpirun, launchers that speak PMI
// (MPICH's and Intel MPI's), or Slurm's srun. Each may run inside those after it, whose variables
// are then of the launcher itself and do not count. Nothing if none of them started this process.
// UsageError, with the variable and its value, for one that makes no sense.
//
// Variables: PyTorch's documentation of torchrun; `ompi_info` and the FAQ of Open MPI; Hydra's
// environment, as MPICH 4.0 sets it; srun(1), "output environment variables".
std::optional<Rank> rank_from(const Environment& environment);

}  // namespace ridge
