#pragma once

// What was around a run: the machine, the program, and how busy and how fast the machine was. It
// decides which runs may be compared, and says why two of them differ.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "ridge/base/processor_use.h"
#include "ridge/device/device.h"
#include "ridge/profile/card_watch.h"
#include "ridge/session/session.h"

namespace ridge {

// {"cpu": "AMD EPYC 9654", "cores": 8, "gpu": "NVIDIA ..", "gpu_uuid": "GPU-...",
// "driver": "580.159.04", "libraries": {"oneDNN": "3.7.0"}}; without the GPU's members where the
// device is none. The same on the same machine, whatever its load and its host's name.
nlohmann::ordered_json machine_json(const Device& device, const RunOptions& options);

// {"version": "0.1.0", "commit": "3c7fe97...", "binary": "9f3a...", "compiler": "gcc 12.2.0"}
nlohmann::ordered_json program_json();

// Kernels that a step launches, accumulation included.
std::int64_t kernels_of_step(const Session& session);

// Watches the machine from its beginning to stop(), at a cost that a run does not feel: a GPU is
// asked five times a second.
class ConditionsWatch {
 public:
  explicit ConditionsWatch(const Device& device);

  // {"load_average": 0.4, "busy_cores_of_others": 0.1, "cpu_mhz": 3700, "gpu": {"sm_mhz": {"min",
  // "max"}, "power_w": 612, "temperature_c": 64, "throttled_by": "its power limit"}}. The load is
  // that of the minute before; what the system does not tell is missing.
  nlohmann::ordered_json stop();

  std::optional<double> power_w() const;  // of the card just now, if there is one that tells it

 private:
  double load_average_ = -1;
  ProcessorUse begin_ = ProcessorUse::now();
  std::unique_ptr<CardWatch> card_;
};

// What a store keeps beside the record of a run (RunDocument::context): all of the above, the shape
// of the input, and the ceilings of the device where they were measured before.
nlohmann::ordered_json context_json(const Session& session, ConditionsWatch& watch);

}  // namespace ridge
