#include "ridge/profile/card_watch.h"

#include "ridge/base/error.h"

namespace ridge {

CardWatch::CardWatch(const Device& device, std::chrono::milliseconds interval) {
  const std::string card = device.info().bus_id;
  if (card.empty()) return;
  try {
    nvml_ = std::make_unique<gpu::Nvml>();
    sampler_ = std::make_unique<gpu::CardSampler>(*nvml_, nvml_->card_at(card), interval);
  } catch (const DeviceError&) {
    sampler_.reset();
  }
}

std::optional<CardState> CardWatch::latest() {
  return sampler_ ? std::optional(sampler_->latest()) : std::nullopt;
}

std::vector<CardState> CardWatch::stop() {
  return sampler_ ? sampler_->stop() : std::vector<CardState>{};
}

}  // namespace ridge
