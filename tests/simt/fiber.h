#pragma once

// Threads of control that pass it to each other by hand: what the threads of a block run on.

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace ridge::simt {

// One such thread. All fibers belong to one thread of the system.
class Fiber {
 public:
  static constexpr std::size_t stack_bytes = std::size_t{256} << 10;

  Fiber() = default;  // the one that runs already, on the system's stack
  explicit Fiber(void (*body)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Lets `to` go on where it passed control, or begin; from the fiber that runs. Returns when
  // control is passed back. A body passes control on instead of returning.
  static void pass(Fiber& from, Fiber& to);
  // Lets it begin again; what its stack holds is not destroyed.
  void abandon() { has_begun_ = stack_ == 0; }

  bool has_on_stack(std::uintptr_t address) const { return address - stack_ < stack_bytes; }

 private:
  [[noreturn]] void enter();

  std::uintptr_t stack_ = 0;
  bool has_begun_ = true;
  void (*body_)() = nullptr;
  jmp_buf here_;
  ucontext_t context_;
};

}  // namespace ridge::simt
