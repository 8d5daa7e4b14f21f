#include "ridge/cli/turn_taking.h"

#include <fmt/format.h>

#include "ridge/run/observer.h"

namespace ridge {

TurnTaking progress_on(Terminal& terminal) {
  const auto begin = Clock::now();
  return {
      .progress =
          [&terminal, begin](std::int64_t done, std::int64_t all) {
            const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
            terminal.progress(
                done, all, seconds / static_cast<double>(done) * static_cast<double>(all - done));
          },
      .tuning = [&terminal](
                    std::string_view product,
                    int) { terminal.busy(fmt::format("Timing the kernels for {}...", product)); }};
}

}  // namespace ridge
