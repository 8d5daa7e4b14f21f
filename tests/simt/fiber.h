#pragma once

// Threads of control that pass it to each other by hand: what the threads of a block run on.

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace ridge::simt {

// One such thread, on a stack of its own. All fibers belong to one thread of the system.
class Fiber {
 public:
  static constexpr std::size_t stack_bytes = std::size_t{256} << 10;

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // What it does from the next resume() on, once.
  void start(void (*body)());
  // Runs it until it pauses or its body is done.
  void resume();
  // Called by the fiber that runs: returns at its next resume().
  void pause();
  // Forgets where it paused; what its stack holds is not destroyed.
  void abandon() { has_begun_ = false; }

  bool has_on_stack(std::uintptr_t address) const { return address - stack_ < stack_bytes; }

 private:
  static void loop();

  std::uintptr_t stack_;
  bool has_begun_ = false;
  void (*body_)() = nullptr;
  jmp_buf here_, resumer_;
  ucontext_t context_;
};

}  // namespace ridge::simt
