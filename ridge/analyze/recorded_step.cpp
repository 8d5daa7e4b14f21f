#include "ridge/analyze/recorded_step.h"

#include "ridge/profile/recorder.h"

namespace ridge {

void record_step(Session& session,
                 const std::function<void(const Recording& host, const Recording& on_device)>& use,
                 int steps) {
  Recorder recorder({.memory = false});
  recorder.attach(session.executor());
  for (int i = 0; i < steps; ++i) {
    recorder.begin_step(session.steps_done() + 1);
    recorder.end_step(session.step().loss);
  }
  recorder.detach(session.executor());
  const Recording& host = recorder.recording();
  if (host.activities.empty())
    use(host, host);
  else
    use(host, device_time(host));
}

}  // namespace ridge
