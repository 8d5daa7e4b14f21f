#include "ridge/cli/interrupt.h"

#include <array>
#include <csignal>
#include <cstddef>

namespace ridge {
namespace {

// The one thing a signal handler may touch.
volatile std::sig_atomic_t noted = 0;

void note(int signal) { noted = signal; }

// The handler's own: within kernels that oneDNN generates the stack pointer may hold the address of
// data instead (ridge/base/thread_pool.cpp). Several times what a frame takes with AVX-512 and AMX.
constexpr std::size_t stack_bytes = std::size_t{64} << 10;
alignas(16) std::array<std::byte, stack_bytes> handler_stack;

}  // namespace

void note_interrupts() {
  noted = 0;
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  if ((stack.ss_flags & SS_DISABLE) != 0)  // else it is a sanitizer's
    stack = {.ss_sp = handler_stack.data(), .ss_flags = 0, .ss_size = handler_stack.size()};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART | SA_ONSTACK);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupt_noted() { return noted; }

}  // namespace ridge
