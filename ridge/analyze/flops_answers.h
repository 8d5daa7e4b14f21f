#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ridge/profile/recording.h"

namespace ridge {

// What a step computes, by operation: those of all layers together, as "layers.*.attention:
// softmax".
struct WorkOfOperation {
  std::string name;                       // of the module and the operator
  std::string part;                       // as part_of() names it
  std::array<std::int64_t, 3> kernels{};  // of a step, by Phase
  std::array<std::int64_t, 3> flops{};    // likewise
  bool is_product = false;                // of matrices; convolutions too
  bool has_weight = false;                // a product with parameters, or its gradient
  bool in_layers = false;                 // of blocks that repeat

  std::int64_t all_flops() const { return flops[0] + flops[1] + flops[2]; }
  std::int64_t all_kernels() const { return kernels[0] + kernels[1] + kernels[2]; }
};

// Which operations and parts of a model have the FLOPs and the kernels of a step.
struct WorkAnswers {
  std::vector<WorkOfOperation> operations;  // most FLOPs first
  std::int64_t flops = 0, kernels = 0;      // of the step
  std::int64_t layers = 0;                  // blocks that repeat
};

// Of one of the recorded steps. UsageError if there is none.
WorkAnswers work_answers(const Recording& recording);
// A table of the `top` operations, and answers in words.
std::string work_answers_text(const WorkAnswers& answers, std::size_t top = 20);
nlohmann::ordered_json json_of(const WorkAnswers& answers);

}  // namespace ridge
