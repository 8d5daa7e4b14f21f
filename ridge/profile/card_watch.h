#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/gpu/vendor/nvml.h"

namespace ridge {

// Samples the clocks and the power of a device's card while something is recorded. Of a device
// that is no card, or where the driver does not tell, there are no samples: the rest of a profile
// is worth having without.
class CardWatch {
 public:
  // From now on.
  explicit CardWatch(const Device& device,
                     std::chrono::milliseconds interval = std::chrono::milliseconds(20));
  std::optional<CardState> latest();  // none of a device that is no card
  std::vector<CardState> stop();

 private:
  std::unique_ptr<gpu::Nvml> nvml_;
  std::unique_ptr<gpu::CardSampler> sampler_;
};

}  // namespace ridge
