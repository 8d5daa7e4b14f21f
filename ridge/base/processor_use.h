#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace ridge {

// How long the processors of this machine and this process have worked, in seconds.
struct ProcessorUse {
  double wall = 0;             // since some moment in the past
  double own = 0;              // of this process
  std::optional<double> busy;  // of all of the machine; none if the system does not tell

  static ProcessorUse now();
};

// What a process of a run of several used of the processors, in seconds: plain data, to be sent.
struct ProcessSeconds {
  std::array<char, 64> host{};  // its name, or the beginning of it
  std::int64_t process = 0;
  double seconds = 0;

  static ProcessSeconds of_this_process(double seconds);
};

// What all processes on the host of one of them used; what a process says twice counts once.
double seconds_on_host(std::span<const ProcessSeconds> all, const ProcessSeconds& mine);

// Returns how many processors others kept busy between two moments, on average: 0.5 is half of one.
// None if the system does not tell, or if there was too little time to count its ticks.
std::optional<double> busy_processors_of_others(const ProcessorUse& begin, const ProcessorUse& end);

// As many or fewer are the system's own work, and no other program's.
inline constexpr double quiet_processors = 0.1;

}  // namespace ridge
