#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace ridge::simt {
namespace {

constexpr std::size_t guard_bytes = 4096;

}  // namespace

Fiber::Fiber(void (*body)()) : has_begun_(false), body_(body) {
  // A stack that grows too far must not reach another.
  void* const memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  stack_ = reinterpret_cast<std::uintptr_t>(memory) + guard_bytes;
}

Fiber::~Fiber() {
  if (stack_ != 0) munmap(reinterpret_cast<void*>(stack_ - guard_bytes), guard_bytes + stack_bytes);
}

void Fiber::pass(Fiber& from, Fiber& to) {
  if (_setjmp(from.here_) == 0) to.enter();
}

// A context is entered by a system call once; from then on by a jump, which is far faster.
void Fiber::enter() {
  if (has_begun_) _longjmp(here_, 1);
  has_begun_ = true;
  getcontext(&context_);
  context_.uc_stack.ss_sp = reinterpret_cast<void*>(stack_);
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, body_, 0);
  setcontext(&context_);
  std::abort();  // it cannot return
}

}  // namespace ridge::simt
