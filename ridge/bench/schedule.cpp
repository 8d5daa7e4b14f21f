#include "ridge/bench/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/bench/calibration.h"

namespace ridge {
namespace {

constexpr std::string_view channels_last_pass = "channels-last";
constexpr std::string_view gpu_pass = "residual-bottlenecks";

constexpr std::string_view inference_passes[] = {
    "fold-batch-norm",  "unread-rows", channels_last_pass, "common-subexpressions",
    "conv-epilogues",   gpu_pass,      "norm-activations", "squeeze-excitation",
    "linear-epilogues", "pointwise",   "dead-nodes",
};
constexpr std::string_view training_passes[] = {
    "unread-rows",  channels_last_pass,     "batch-norm-epilogues", "common-subexpressions",
    "f32-products", "batch-norm-gradients", "conv-epilogues",       "linear-epilogues",
    "pointwise",    "fuse-optimizer",       "rounded-weights",      "dead-nodes",
};

bool is_wanted(std::string_view name, bool channels_last) {
  return name != channels_last_pass || channels_last;
}

}  // namespace

std::span<const CompileMode> compile_modes() {
  static constexpr CompileMode table[] = {
      {"none", "operator by operator, in memory that comes and goes", {}, {}},
      {.name = "default",
       .description = "folded and fused operators, weights prepared once, memory planned",
       .inference_passes = inference_passes,
       .training_passes = training_passes,
       .frozen = true,
       .planned = true},
      {.name = "reduce-overhead",
       .description = "and the whole pass captured and replayed, where a GPU can",
       .inference_passes = inference_passes,
       .training_passes = training_passes,
       .frozen = true,
       .planned = true,
       .captured = true},
      {.name = "max-autotune",
       .description = "and each kernel the one that measures fastest",
       .inference_passes = inference_passes,
       .training_passes = training_passes,
       .frozen = true,
       .planned = true,
       .captured = true,
       .tuned = true},
  };
  return table;
}

const CompileMode& compile_mode(std::string_view name) {
  const auto found = std::ranges::find(compile_modes(), name, &CompileMode::name);
  if (found != compile_modes().end()) return *found;
  std::vector<std::string_view> names;
  for (const CompileMode& mode : compile_modes()) names.push_back(mode.name);
  throw UsageError("there is no compile mode '{}': choose one of {}", name, fmt::join(names, ", "));
}

CompileMode mode_of(const BenchOptions& options) {
  CompileMode mode = compile_mode(options.compile);
  if (options.dtype != int8_dtype || mode.compiles()) return mode;
  const CompileMode& least = compile_mode("default");
  mode.inference_passes = least.inference_passes;
  mode.frozen = least.frozen;
  return mode;
}

void rewrite_for_inference(Graph& graph, const CompileMode& mode, bool channels_last, bool on_gpu) {
  for (const std::string_view name : mode.inference_passes)
    if (is_wanted(name, channels_last) && (name != gpu_pass || on_gpu)) pass_named(name).run(graph);
}

void rewrite_for_training(Graph& graph, Stage stage, const CompileMode& mode, bool channels_last) {
  for (const std::string_view name : mode.training_passes)
    if (const Pass& pass = pass_named(name); pass.stage == stage && is_wanted(name, channels_last))
      pass.run(graph);
}

Execution execution_of(const CompileMode& mode) {
  return {.planned = mode.planned,
          .captured = mode.captured,
          .concurrent = mode.captured,
          .kernels = {.products = mode.tuned ? Products::tuned : Products::vendor}};
}

}  // namespace ridge
