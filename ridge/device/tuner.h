#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace ridge {

// Chooses which kernels multiply matrices.
enum class Products : std::uint8_t {
  vendor,  // the vendor's library: oneDNN, cuBLASLt
  packed,  // we ourselves, by the plan that a model of costs likes best
  tuned,   // whichever the tuner finds faster; without a tuner the same as packed
};

// Decides which of several candidates for the same work is the fastest here.
class Tuner {
 public:
  virtual ~Tuner() = default;

  // The choice, less than `candidates`, which is at least 1. `key` describes the work and the
  // candidates. run(i) does the work once by candidate i; it is called only if the choice for
  // `key` is not known yet. Where times do not differ clearly, the earlier candidate is chosen. A
  // candidate whose run throws NoSuchCandidate is none; where all are none, the first is chosen.
  virtual std::size_t choose(std::string_view key, std::size_t candidates,
                             const std::function<void(std::size_t)>& run) = 0;
  struct NoSuchCandidate : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  // To tell users what was chosen: "attention, 16 x 512, 16/8 heads of 64" and "cuDNN 9.14.0".
  virtual void tell(std::string_view /*work*/, std::string_view /*choice*/) {}
};

// What kernels are prepared with.
struct KernelChoice {
  Products products = Products::vendor;
  Tuner* tuner = nullptr;  // outlives the preparation; null if nothing is to be timed
  // Whether there are forward passes alone: weights stay what they are between launches, and no
  // gradient depends on which side of 0 an activation was rounded to.
  bool inference = false;
  // Whether products of f32 operands may round these to 19 bits first, where the device multiplies
  // such much faster.
  bool tf32 = false;
  // Whether products of f32 operands may be computed of operands split into bf16, to the same
  // accuracy, where the tuner finds that faster.
  bool split_bf16 = false;
  // Whether attention may round like tf32 by scaling f32 operands to f16, which has tf32's 11 bits.
  bool scaled = false;
};

}  // namespace ridge
