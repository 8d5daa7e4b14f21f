#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/gpu/context.h"

namespace ridge::gpu {

inline std::size_t bytes_of(DType dtype, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

// Operands to time kernels with before there is a run. They hold small numbers that are neither
// zero nor denormal in any dtype: the card is faster on zeros. There are several sets of them, more
// than its cache holds: in a run a kernel finds little of its operands there.
class Trial {
 public:
  using Operands = std::vector<void*>;

  // OutOfMemoryError if they do not fit.
  Trial(const Context& gpu, const std::vector<std::size_t>& operand_bytes);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Enqueues the work several times, so that the launch's own cost is hidden, and waits.
  void run(const std::function<void(const Operands&)>& work) const;

 private:
  void* filled(const std::vector<std::uint16_t>& words, std::size_t bytes) const;

  const Context& gpu_;
  std::vector<Operands> sets_;
};

}  // namespace ridge::gpu
