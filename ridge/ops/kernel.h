#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ridge {

// The operands of one launch, in the operator's order; dense, and aligned to 64 bytes unless they
// are slices or parts of packed values, which are aligned to their elements.
struct Launch {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;

  template <class T>
  const T* in(std::size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(std::size_t i = 0) const {
    return static_cast<T*>(outputs[i]);
  }
};

// One node's work on one device: prepared once for its exact types, launched many times. A launch
// overwrites its outputs entirely (unless they alias an input), decides nothing and, on an
// asynchronous device, only enqueues.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void launch(const Launch& call) const = 0;
};

using KernelPtr = std::unique_ptr<Kernel>;

// A kernel from a callable of one argument, the Launch.
template <class F>
KernelPtr make_kernel(F function) {
  class FunctionKernel final : public Kernel {
   public:
    explicit FunctionKernel(F f) : function_(std::move(f)) {}
    void launch(const Launch& call) const override { function_(call); }

   private:
    F function_;
  };
  return std::make_unique<FunctionKernel>(std::move(function));
}

}  // namespace ridge
