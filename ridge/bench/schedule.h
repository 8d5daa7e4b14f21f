#pragma once

#include <span>
#include <string_view>

#include "ridge/bench/options.h"
#include "ridge/graph/graph.h"
#include "ridge/passes/passes.h"
#include "ridge/run/executor.h"

namespace ridge {

// A compile mode of the vision benchmark: a schedule of a network's one graph. All compute the
// same.
struct CompileMode {
  std::string_view name;         // "reduce-overhead"
  std::string_view description;  // in a line
  // Of a network that is not trained, in the order in which they run; and of one that is.
  std::span<const std::string_view> inference_passes, training_passes;
  bool frozen = false;    // what follows from weights alone is computed once (passes/freeze.h)
  bool planned = false;   // one arena, with every address and launch fixed (Execution::planned)
  bool captured = false;  // and all launches in one, where the device can capture
  bool tuned = false;     // kernels by the tuner, where there are several ways

  bool compiles() const { return !inference_passes.empty(); }
};

// From "none", operator by operator, to "max-autotune"; each has what the one before it has.
std::span<const CompileMode> compile_modes();
// UsageError for a name that is none.
const CompileMode& compile_mode(std::string_view name);

// The mode that the options name. Integers need what compiling does first, folded norms and
// prepared weights: in int8 "none" has the passes and the frozen weights of "default".
CompileMode mode_of(const BenchOptions& options);

// Runs the mode's passes on a forward graph that nobody differentiates; `on_gpu`: with those that
// only there make it faster.
void rewrite_for_inference(Graph& graph, const CompileMode& mode, bool channels_last,
                           bool on_gpu = false);

// Runs the mode's passes of a stage on a graph that is trained: Stage::forward before its gradient
// is appended, Stage::step after.
void rewrite_for_training(Graph& graph, Stage stage, const CompileMode& mode, bool channels_last);

// How the mode runs a graph; the tuner, if it wants one, is set by who has it.
Execution execution_of(const CompileMode& mode);

}  // namespace ridge
