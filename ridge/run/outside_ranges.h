#pragma once

#include <cstdint>
#include <memory>

#include "ridge/run/observer.h"

namespace ridge {

// Names what a run does for a profiler outside of it, such as Nsight Systems: ranges of the host's
// time around steps and, within them, phases and operators with their modules ("layers.0.attention:
// matmul"). A captured step is one launch, which no range can divide: it has a range of its own
// within its step. An observer of the executor that runs the steps.
class OutsideRanges : public Observer {
 public:
  // Null if this build knows no such profiler, or none listens: then nothing costs time.
  static std::unique_ptr<OutsideRanges> open();

  virtual void begin_step(std::int64_t step) = 0;
  virtual void end_step() = 0;
};

}  // namespace ridge
