#pragma once

// The text of a benchmark, in the layout of the workshop.

#include <optional>
#include <string>
#include <string_view>

#include "ridge/cli/bench_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/device/device.h"
#include "ridge/session/record.h"

namespace ridge {

// What a line of one rank of several begins with: "[GPU 1] "; nothing where there is one alone.
std::string rank_label(const Device& device, std::size_t rank);

// Above and below the title of a part.
inline constexpr std::string_view bench_rule = "========================================";

// What will run; of what a table varies all values in place of the one.
void print_configuration(Terminal& terminal, const BenchRequest& request, const Device& device);

// What a sample costs, where the user asks for it.
struct BenchCosts {
  std::optional<double> price_per_hour;  // of the machine, in any currency
  bool energy = false;                   // asked for
  double watts = 0;                      // that the card took on the average; 0: it does not tell
};
// Joules of one sample; 0 where the power is not known.
double joules_per_sample(const BenchCosts& costs, const Record& record, const Summary& summary);

std::string bench_summary_text(const Record& record, const Summary& summary, bool on_gpu,
                               const BenchCosts& costs = {});

}  // namespace ridge
