#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <new>

namespace ridge::simt {
namespace {

// The fiber that is about to begin: makecontext() passes on no pointers.
Fiber* beginning = nullptr;

constexpr std::size_t guard_bytes = 4096;

}  // namespace

Fiber::Fiber() {
  // What grows beyond the stack must not reach another's.
  void* const memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  stack_ = reinterpret_cast<std::uintptr_t>(memory) + guard_bytes;
}

Fiber::~Fiber() {
  munmap(reinterpret_cast<void*>(stack_ - guard_bytes), guard_bytes + stack_bytes);
}

void Fiber::start(void (*body)()) {
  body_ = body;
  if (has_begun_) return;  // it waits in loop()
  getcontext(&context_);
  context_.uc_stack.ss_sp = reinterpret_cast<void*>(stack_);
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::loop, 0);
}

// A context is entered by a system call once; from then on a jump does, which is far faster.
void Fiber::resume() {
  if (_setjmp(resumer_) != 0) return;
  if (has_begun_) _longjmp(here_, 1);
  has_begun_ = true;
  beginning = this;
  setcontext(&context_);
}

void Fiber::pause() {
  if (_setjmp(here_) == 0) _longjmp(resumer_, 1);
}

void Fiber::loop() {
  Fiber* const self = beginning;
  for (;;) {
    self->body_();
    self->pause();
  }
}

}  // namespace ridge::simt
