#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "ridge/profile/process_list.h"
#include "ridge/profile/system_reader.h"
#include "ridge/profile/system_samples.h"

namespace ridge {

// Samples what the machine does in a thread of its own, from its making to stop(). The thread takes
// no more than about a twentieth of a processor: where one sample takes long, the next comes later.
class SystemSampler {
 public:
  struct Config {
    std::chrono::milliseconds interval{20};
    // Processes that descend from this one are the program's, itself included; all others are
    // others.
    std::int64_t family = 0;
    // The program is what descends from `family`, and not this process: see SystemSources.
    bool follows_family = false;
    // Room for samples. When it is full every second one is dropped and the interval doubled.
    std::size_t max_bytes = std::size_t{32} << 20;
    std::filesystem::path root = "/";
  };

  explicit SystemSampler(const Config& config);
  ~SystemSampler();
  SystemSampler(const SystemSampler&) = delete;
  SystemSampler& operator=(const SystemSampler&) = delete;

  // What was sampled, on the clock of now_ns(), with a last sample of now.
  SystemSamples stop();
  static std::int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
  }

 private:
  void run();
  void sample(bool with_slow);
  void halve();

  Config config_;
  SystemReader reader_;
  std::vector<ProcessText> processes_at_begin_;
  SystemSamples samples_;  // of the thread, until it ends
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ridge
