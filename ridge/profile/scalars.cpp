#include "ridge/profile/scalars.h"

#include <algorithm>

namespace ridge {

std::vector<StepMemory> memory_by_step(const Recording& recording) {
  std::vector<StepMemory> result;
  if (recording.memory.empty() || recording.dropped > 0) return result;
  auto change = recording.memory.begin();
  std::uint64_t live = 0;
  for (const Recording::Step& step : recording.steps) {
    for (; change != recording.memory.end() && change->time_ns <= step.begin_ns; ++change)
      live = change->live;
    std::uint64_t peak = live;
    std::int64_t time = step.begin_ns;
    double byte_ns = 0;
    const auto pass_until = [&](std::int64_t end) {
      byte_ns += static_cast<double>(live) * static_cast<double>(end - time);
      time = end;
    };
    for (; change != recording.memory.end() && change->time_ns < step.end_ns; ++change) {
      pass_until(change->time_ns);
      live = change->live;
      peak = std::max(peak, live);
    }
    pass_until(step.end_ns);
    const auto ns = static_cast<double>(step.end_ns - step.begin_ns);
    result.push_back({.step = step.step, .average = ns > 0 ? byte_ns / ns : 0, .peak = peak});
  }
  return result;
}

std::vector<Scalar> step_scalars(const StepReport& step, std::int64_t samples_per_step,
                                 std::int64_t tokens_per_sample, const StepMemory* memory,
                                 std::optional<double> compute_floor_seconds) {
  const double samples_per_second = static_cast<double>(samples_per_step) / step.seconds;
  std::vector<Scalar> scalars{{"train/loss", step.loss},
                              {"train/learning_rate", step.learning_rate},
                              {"time/step_ms", step.seconds * 1e3},
                              {"throughput/samples_per_second", samples_per_second},
                              {"memory/live_mb", static_cast<double>(step.live_bytes) / 1e6}};
  if (tokens_per_sample > 0)
    scalars.push_back({"throughput/tokens_per_second",
                       samples_per_second * static_cast<double>(tokens_per_sample)});
  if (step.has_phases) {
    scalars.push_back({"time/forward_ms", step.forward_seconds * 1e3});
    scalars.push_back({"time/backward_ms", step.backward_seconds * 1e3});
    scalars.push_back({"time/optimizer_ms", step.optimizer_seconds * 1e3});
  }
  if (step.grad_norm) scalars.push_back({"train/grad_norm", *step.grad_norm});
  if (step.loss_scale) scalars.push_back({"train/loss_scale", *step.loss_scale});
  // The peak was measured at another time than this step, which may have had a faster machine.
  if (compute_floor_seconds)
    scalars.push_back(
        {"throughput/mfu_percent", std::min(100.0, 100 * *compute_floor_seconds / step.seconds)});
  if (memory != nullptr) {
    scalars.push_back({"memory/average_mb", memory->average / 1e6});
    scalars.push_back({"memory/peak_mb", static_cast<double>(memory->peak) / 1e6});
  }
  return scalars;
}

}  // namespace ridge
