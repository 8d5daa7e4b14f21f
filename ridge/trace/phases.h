#pragma once

// The parts of a training step: loading data, forward, backward, the optimizer.

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/trace/device_work.h"

namespace ridge::trace {

enum class Phase : std::uint8_t { loading, forward, backward, optimizer, graphs, unknown };

std::string phase_name(Phase phase);  // as in JSON: "forward"

struct PhaseUse {
  Phase phase = Phase::unknown;
  double busy_us = 0;  // some of its work ran
  std::uint64_t kernels = 0;
  std::int64_t peak_allocated = 0;  // bytes on a card while the host was in it; 0 without memory
};

// By what stands around the launch of each piece of work: an annotation of PyTorch's optimizer or
// data loader or one called forward, backward or optimizer, or autograd's engine; all else that an
// operator or call launched is forward. Whole captured graphs are a part of their own, and so is
// what the trace has no launch of. Empty if there is but one part.
std::vector<PhaseUse> phase_uses(const Trace& trace, const Work& work, const HostNesting& nesting);

}  // namespace ridge::trace
