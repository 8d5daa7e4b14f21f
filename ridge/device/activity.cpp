#include "ridge/device/activity.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "ridge/device/occupancy.h"

namespace ridge {
std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

double theoretical_occupancy(const ProcessorLimits& limits, const Activity& kernel) {
  return occupancy_of(limits, kernel).part;
}

}  // namespace ridge
