#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ridge/device/activity.h"

namespace ridge::gpu {

// A card as NVIDIA's management library (NVML) describes it.
struct CardInfo {
  std::string name;                                 // "NVIDIA ..."
  std::string bus_id;                               // "0000:0a:00.0"
  std::string uuid;                                 // "GPU-8c9e...": of the card, wherever it is
  int capability_major = 0, capability_minor = 0;   // of CUDA
  std::uint64_t memory_total = 0, memory_used = 0;  // bytes
  int max_sm_mhz = 0, max_memory_mhz = 0;
  double power_limit_w = 0;
};

// The driver's view of the cards of this machine: it needs no CUDA context and takes none of a
// card's memory. The library belongs to the driver, so it is opened at run time. What a card does
// not report is 0.
class Nvml {
 public:
  // DeviceError, with what to do about it, if there is no driver or it does not answer.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // "580.159.04"
  int cuda_version() const;            // the newest the driver runs: 13000 for 13.0
  int card_count() const;
  // Cards are numbered in the order of their bus ids, as CUDA does with
  // CUDA_DEVICE_ORDER=PCI_BUS_ID.
  CardInfo info(int card) const;
  CardState state(int card) const;
  // By bus id, as cudaDeviceGetPCIBusId gives it. DeviceError if there is none.
  int card_at(const std::string& bus_id) const;

 private:
  struct Library;
  void* handle(int card) const;

  std::unique_ptr<Library> library_;
};

// Reads a card's state in a thread of its own, at an interval, for counter tracks and to see
// whether clocks dropped. The driver itself renews most values only every 20 ms or more slowly.
class CardSampler {
 public:
  // From now on. At most `max_samples` are kept; then every second one is dropped and the interval
  // doubled.
  CardSampler(const Nvml& nvml, int card,
              std::chrono::milliseconds interval = std::chrono::milliseconds(20),
              std::size_t max_samples = std::size_t{1} << 16);
  ~CardSampler();
  CardSampler(const CardSampler&) = delete;
  CardSampler& operator=(const CardSampler&) = delete;

  CardState latest();             // that was read
  std::vector<CardState> stop();  // and what was read, by time

 private:
  void run();

  const Nvml& nvml_;
  int card_;
  std::chrono::milliseconds interval_;
  std::size_t max_samples_;
  std::vector<CardState> samples_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ridge::gpu
