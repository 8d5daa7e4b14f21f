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

  // The same in two parts, where some outputs are needed soon and others late: launch_first() gives
  // all but the late_outputs(), and launch_rest() gives these, from what the first part left in the
  // workspace alone. Work that needs none of them may run between the two.
  virtual void launch_first(const Launch& call) const { launch(call); }
  virtual void launch_rest(const Launch&) const {}
  virtual std::span<const std::size_t> late_outputs() const { return {}; }
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

// A kernel in two parts, from a callable for each.
template <class First, class Rest>
KernelPtr make_kernel(First first, Rest rest, std::size_t late_output) {
  class TwoPartKernel final : public Kernel {
   public:
    TwoPartKernel(First f, Rest r, std::size_t late)
        : first_(std::move(f)), rest_(std::move(r)), late_(late) {}
    void launch(const Launch& call) const override {
      first_(call);
      rest_(call);
    }
    void launch_first(const Launch& call) const override { first_(call); }
    void launch_rest(const Launch& call) const override { rest_(call); }
    std::span<const std::size_t> late_outputs() const override { return {&late_, 1}; }

   private:
    First first_;
    Rest rest_;
    std::size_t late_;
  };
  return std::make_unique<TwoPartKernel>(std::move(first), std::move(rest), late_output);
}

}  // namespace ridge
