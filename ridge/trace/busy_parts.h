#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/trace/device_work.h"

namespace ridge::trace {

// The part of a step's time that belongs to a piece of work.
struct BusyPart {
  std::uint32_t work;  // place in Work::device
  std::uint32_t step;  // place among the steps
  double us;
};

// Divides the time in which anything ran: where several pieces of work ran, it belongs to those
// that compute, else to those that communicate, else to copies, in equal parts. Step i lasts from
// bounds[i] to bounds[i + 1], ns.
std::vector<BusyPart> busy_parts(const Trace& trace, const Work& work,
                                 std::span<const std::int64_t> bounds);

}  // namespace ridge::trace
