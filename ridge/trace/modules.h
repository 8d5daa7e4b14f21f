#pragma once

// The modules of a network, as a trace with Python's calls has them (with_stack=True).

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/trace/device_work.h"

namespace ridge::trace {

struct ModuleUse {
  std::string name;       // "Linear_0": the class, and which of its kind
  std::size_t depth = 0;  // of the modules around it
  std::uint64_t calls = 0;
  double host_us = 0;    // within its calls
  double device_us = 0;  // of the work launched within its calls
  std::uint64_t kernels = 0;
};

// Each module before those within it, in the order of their first calls. What is launched going
// backward stands in no call of a module.
std::vector<ModuleUse> module_uses(const Trace& trace, const Work& work);

}  // namespace ridge::trace
