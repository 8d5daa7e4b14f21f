#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ridge/exercise/stage.h"
#include "ridge/session/record.h"

namespace ridge {

// What the parameters of one name had in a run's first step. Layers are taken together: "layers.*".
struct ParameterFacts {
  std::string name;
  std::size_t parameters = 0;  // of that name
  double start = 0;            // root of the mean square of the weights, before the step
  double gradient = 0;         // the norm of the gradient
};

// What a run did.
struct RunFacts {
  Record record;
  Summary summary;
  std::size_t kernels = 0;  // launched in a step
  std::vector<ParameterFacts> parameters;

  std::size_t without_gradient() const;  // parameters whose gradient was 0
};

// Trains as the options, which are resolved, and the defect say, and prints nothing. `done` is
// called after each step, with their number.
RunFacts observe_run(const RunOptions& options, Device& device, const Defect& defect,
                     const std::function<void(std::int64_t done)>& done = {});

// Options of the same model that are quick to check against a reference: one sequence of at most 32
// tokens, for 10 steps.
RunOptions quick_check_of(const RunOptions& options);

}  // namespace ridge
