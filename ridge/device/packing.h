#pragma once

#include <cstddef>

#include "ridge/device/kernel.h"

namespace ridge {

// A kernel that reads one of its inputs, such as weights, in an order of its own, and so brings it
// into that order at every launch; unless it is given memory where the packed input can stay. That
// is worth it where nothing changes the input between launches.
class PackingKernel : public Kernel {
 public:
  struct Packed {
    std::size_t input = 0;      // which one
    std::size_t bytes = 0;      // of its packed form, a multiple of 64; 0 if it is read as it is
    std::size_t workspace = 0;  // that a launch wants when it is kept
  };
  virtual Packed packed() const = 0;

  // Packs the input, to `packed`, which all later launches read in the input's place. To be called
  // again whenever the input has changed.
  virtual void pack(const void* input, void* packed) = 0;
};

}  // namespace ridge
