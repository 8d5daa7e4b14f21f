#include "ridge/cli/interrupt.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <vector>

namespace ridge {
namespace {

// Kernels that oneDNN generates use the stack pointer for addresses of data: a handler that ran
// there would write into it.
TEST(Interrupt, LeavesAloneWhatTheStackPointerPointsTo) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "written for x86-64";
#else
  std::vector<std::byte> data(std::size_t{64} << 10);
  note_interrupts();
  long result = SYS_tgkill;
  // The signal arrives as the call returns.
  asm volatile(
      "mov %%rsp, %%rbx\n\t"
      "mov %[top], %%rsp\n\t"
      "syscall\n\t"
      "mov %%rbx, %%rsp"
      : "+a"(result)
      : "D"(::getpid()), "S"(::syscall(SYS_gettid)),
        "d"(SIGINT), [top] "r"(data.data() + data.size())
      : "rbx", "rcx", "r11", "memory");
  ::usleep(1);  // ThreadSanitizer hands signals over at the next call that it knows
  EXPECT_EQ(result, 0);
  EXPECT_EQ(interrupt_noted(), SIGINT);
  EXPECT_EQ(std::ranges::count(data, std::byte{}), std::ssize(data));
  note_interrupts();
  EXPECT_EQ(interrupt_noted(), 0);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
#endif
}

}  // namespace
}  // namespace ridge
