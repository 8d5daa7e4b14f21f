#pragma once

#include <optional>

namespace ridge {

// How long the processors of this machine and this process have worked, in seconds.
struct ProcessorUse {
  double wall = 0;             // since some moment in the past
  double own = 0;              // of this process
  std::optional<double> busy;  // of all of the machine; none if the system does not tell

  static ProcessorUse now();
};

// Returns how many processors others kept busy between two moments, on average: 0.5 is half of one.
// None if the system does not tell, or if there was too little time to count its ticks.
std::optional<double> busy_processors_of_others(const ProcessorUse& begin, const ProcessorUse& end);

// As many or fewer are the system's own work, and no other program's.
inline constexpr double quiet_processors = 0.1;

}  // namespace ridge
