#pragma once

// The work of the cards, each piece with the call that launched it and the step it belongs to.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/trace/host_nesting.h"
#include "ridge/trace/intervals.h"
#include "ridge/trace/trace.h"

namespace ridge::trace {

enum class WorkClass : std::uint8_t { compute, communication, copy };
const char* name_of(WorkClass work);  // as in JSON: "compute"

// By the names that libraries give their kernels: NCCL and RCCL, NVSHMEM, and the all-reduces of
// serving engines. Operators of the host likewise (c10d, gloo, mpi).
bool is_communication(std::string_view name);

// Whatever a trace tells of a row's collective; null if nothing.
const CollectiveFact* collective_of(const Trace& trace, Row row);

struct DeviceWork {
  Row row;
  Row call = no_row;  // that launched it; a graph's launch for all its kernels
  WorkClass work = WorkClass::compute;
  std::int64_t step = -1;  // of the step in which it was launched
};

struct Step {
  std::int64_t number;
  Interval host;  // its annotation on the host
};

// The number of the step whose annotation a time of the host lies in, or of the last that began
// before it; -1 if there is none. The steps stand in the order of time.
std::int64_t step_at(const std::vector<Step>& steps, std::int64_t time_ns);

struct Work {
  std::vector<DeviceWork> device;  // in the order in which they began
  std::vector<Step> steps;         // in the order of time
  bool of_host = false;  // nothing ran on a card: the operators of the host stand in `device`

  std::size_t work_without_call = 0;
};

Work work_of(const Trace& trace, const HostNesting& nesting);

// How a stretch of time was spent, us. Whatever overlaps is counted once in each line.
struct TimeUse {
  double span = 0;     // from the first begin to the last end
  double busy = 0;     // something ran
  double compute = 0;  // a kernel ran that is no communication
  double communication = 0;
  double exposed_communication = 0;  // and no kernel computed
  double copy = 0;                   // a copy or a fill ran
  double idle = 0;                   // span - busy
  std::uint64_t kernels = 0;         // without copies and fills
};

struct StepUse {
  std::int64_t number;
  TimeUse use;
};

// The time of all, and that of each step: from the begin of its first work to that of the next
// step's, or to the end of its own last if that is later or if there is no next.
TimeUse time_use(const Trace& trace, const Work& work);
std::vector<StepUse> time_use_of_steps(const Trace& trace, const Work& work);

}  // namespace ridge::trace
