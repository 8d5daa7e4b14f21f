#pragma once

// What ranks of a run have to say to each other in the recorded steps, and what it costs.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/device/communicator.h"
#include "ridge/dist/arrivals.h"
#include "ridge/profile/recording.h"

namespace ridge {

// Of one rank. On a device that runs by itself communication is what the library between the cards
// runs there, and copies to and from the host for it; it is hidden while a kernel of the model
// runs. On a CPU it is the operators that wait for others, and nothing is hidden.
struct CommunicationReport {
  struct Collective {
    std::string op;          // "all_reduce"
    std::int64_t calls = 0;  // in all steps, of launches
    std::int64_t bytes = 0;  // that this rank sent in all of them
    std::int64_t ns = 0;     // that they took
    // What a link would have to carry in each direction for that, in bytes a second: NCCL's bus
    // bandwidth (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
    double bus_bandwidth() const {
      return ns > 0 ? static_cast<double>(bytes) / static_cast<double>(ns) * 1e9 : 0;
    }
  };
  std::int64_t steps = 0;
  std::int64_t step_ns = 0;             // of all steps
  std::int64_t communication_ns = 0;    // in which it communicated
  std::int64_t hidden_ns = 0;           // of that, while it also computed
  std::vector<Collective> collectives;  // by operator
  // Each run of one, in the order in which all ranks have them, since 1970.
  std::vector<CollectiveRun> runs;

  // Of the time in which it communicated; HolisticTraceAnalysis calls it the overlap of
  // communication and computation.
  double hidden_fraction() const;
};

// Empty where a device is alone. `recording` is on its device's clock (device_time()).
std::optional<CommunicationReport> communication_report(const Recording& recording);

// All ranks of a run beside each other.
struct RanksReport {
  struct OfRank {
    std::int64_t step_ns = 0, communication_ns = 0, hidden_ns = 0;  // of all steps
    std::uint64_t peak_bytes = 0;
  };
  std::int64_t steps = 0;
  Arrivals arrivals;
  std::vector<OfRank> ranks;
};

RanksReport compare_ranks(std::span<const CommunicationReport> reports,
                          std::span<const std::uint64_t> peak_bytes);
// The same over all ranks of a run, which all call it and all get it.
RanksReport compare_ranks(const CommunicationReport& own, std::uint64_t peak_bytes,
                          Communicator& communicator);

std::string communication_text(const CommunicationReport& report);
std::string ranks_text(const RanksReport& report);
std::string communication_json(const CommunicationReport& report, const RanksReport& ranks);

}  // namespace ridge
