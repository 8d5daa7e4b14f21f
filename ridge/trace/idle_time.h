#pragma once

// Why a card had nothing to do.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ridge/trace/device_work.h"

namespace ridge::trace {

enum class IdleCause : std::uint8_t {
  host_late,          // the host had not launched the next work when the last ended
  synchronization,    // the same, because it had waited for the card to run dry
  step_end,           // the same, between two steps
  stream_dependency,  // launched in time; waited for work of another stream
  kernel_boundary,    // launched in time on the same stream: what lies between two kernels
  unknown,            // the trace has no launch of the next work, or nothing that it waited for
};
inline constexpr std::size_t idle_causes = 6;

std::string idle_cause_name(IdleCause cause);      // as in JSON: "host_late"
std::string idle_cause_sentence(IdleCause cause);  // "the host launches too late"

struct IdleStretch {
  Interval time;
  IdleCause cause = IdleCause::unknown;
  Row next = no_row;      // the work that ended it
  Row blocking = no_row;  // the call in which the host had waited
  std::int64_t step = -1;
};

struct IdleTime {
  struct OfCause {
    double us = 0;
    std::uint64_t stretches = 0;
  };
  // What the host did meanwhile, on the thread that launched the next work: "annotation >
  // operator", or one of them. "" stands for time outside of all operators, calls and annotations.
  struct HostShare {
    std::string name;
    double us = 0;
    std::uint64_t stretches = 0;
  };
  std::array<OfCause, idle_causes> by_cause;
  std::vector<HostShare> host;         // most time first
  std::vector<IdleStretch> stretches;  // in the order of time
};

IdleTime idle_time(const Trace& trace, const Work& work, const HostNesting& nesting);

// Whether a call returns only when the card has done what was launched: cudaStreamSynchronize,
// cudaMemcpy, hipFree and their like.
bool is_blocking_call(std::string_view name);

}  // namespace ridge::trace
