#pragma once

#include <vector>

#include "ridge/gpu/device/context.h"

struct CUgraph_st;

namespace ridge::gpu {

// A place in memory at which a captured step waits until it has this value.
struct CapturedWait {
  unsigned long long address = 0;
  unsigned int value = 0;

  friend bool operator==(const CapturedWait&, const CapturedWait&) = default;
};

// A stream of its own, to capture from what then goes into a capture that is under way elsewhere.
// NCCL knows a capture by the number of its graph, and Ridge captures into one graph many times
// over: to NCCL the second of them would be the first, which has ended.
class AsideCapture {
 public:
  AsideCapture();
  ~AsideCapture();  // what was captured must not run any more
  AsideCapture(const AsideCapture&) = delete;
  AsideCapture& operator=(const AsideCapture&) = delete;

  static bool is_capturing(Stream stream);

  // Calls f(stream), and makes what that enqueues the next part of the capture of `into`.
  template <class F>
  void capture(Stream into, const F& f) {
    begin();
    try {
      f(stream_);
    } catch (...) {
      drop();
      throw;
    }
    add_to(into);
  }

  // Ends what waits in memory now, whatever for, so that a step goes on to its next wait.
  void end_waits() noexcept;

 private:
  void begin();
  void drop() noexcept;
  void add_to(Stream into);

  Stream stream_ = nullptr;
  std::vector<CUgraph_st*> kept_;  // they own what their nodes, copied elsewhere, still use
  std::vector<CapturedWait> waits_;
};

}  // namespace ridge::gpu
