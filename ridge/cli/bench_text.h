#pragma once

// The text of a benchmark, in the layout of the workshop.

#include <string>
#include <string_view>

#include "ridge/cli/bench_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/device/device.h"
#include "ridge/session/record.h"

namespace ridge {

std::string upper_case(std::string_view text);

// What will run; without what a table varies: "batch size", "precision", "compile mode" or nothing.
void print_configuration(Terminal& terminal, const BenchRequest& request, const Device& device,
                         std::string_view varied = "");

std::string bench_summary_text(const Record& record, const Summary& summary, bool on_gpu);

}  // namespace ridge
