#pragma once

#include <functional>

#include "ridge/profile/recording.h"
#include "ridge/session/session.h"

namespace ridge {

// Runs one more step of a session, or so many, which are recorded without memory, and hands what
// was seen of them to `use`: on the clock of the host, and on that of the device, which is the same
// on a CPU. To record has a price: a step that is timed is another one.
void record_step(Session& session,
                 const std::function<void(const Recording& host, const Recording& on_device)>& use,
                 int steps = 1);

}  // namespace ridge
