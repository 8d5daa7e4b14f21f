#pragma once

// The text of a training run, in the layout of the workshop.

#include <cstddef>
#include <string>

#include "ridge/cli/terminal.h"
#include "ridge/session/record.h"

namespace ridge {

// Banner, configuration, model, data, device and what will be profiled.
void print_header(Terminal& terminal, const Session& session);

void print_flops(Terminal& terminal, const StepCost& cost);

// Passes that were asked for in vain, how kernels were chosen, if they were timed, and what the
// device does without.
void print_kernel_choices(Terminal& terminal, const Session& session);

// `peak_bytes` is the most tensors held during the step.
std::string step_line(const RunOptions& options, const StepReport& report, std::size_t peak_bytes);
// What became of the loss scale in a step that changed it, or could not use it; else empty.
std::string loss_scale_line(const StepReport& report);
std::string validation_line(const WorkloadInfo& workload, const Validation& validation);

void print_summary(Terminal& terminal, const Record& record, const Summary& summary);

}  // namespace ridge
