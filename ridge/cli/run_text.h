#pragma once

// The text of a training run, in the layout of the workshop.

#include <cstddef>
#include <string>

#include "ridge/cli/terminal.h"
#include "ridge/device/device.h"
#include "ridge/session/options.h"
#include "ridge/session/summary.h"

namespace ridge {

// Banner, configuration, model, data, device and what will be profiled.
void print_header(Terminal& terminal, const TrainOptions& options, const std::string& data,
                  const Device& device);

void print_flops(Terminal& terminal, const StepCost& cost);

// `peak_bytes` is the most tensors held during the step.
std::string step_line(const TrainOptions& options, const StepReport& report,
                      std::size_t peak_bytes);
// What became of the loss scale in a step that changed it, or could not use it; else empty.
std::string loss_scale_line(const StepReport& report);
std::string validation_line(const ValidationLoss& validation);

void print_summary(Terminal& terminal, const TrainOptions& options, const RunRecord& record,
                   const PerformanceSummary& summary);

}  // namespace ridge
