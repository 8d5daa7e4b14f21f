// The functions that code compiled with -fsanitize=thread,bounds calls, in place of those of the
// sanitizers' own libraries, which are not linked.

#include "tests/simt/hooks.h"

#include <cstdint>

namespace {

using ridge::simt::Access;
using ridge::simt::touch;

}  // namespace

#define RIDGE_HOOKS(bytes)                                                                     \
  void __tsan_read##bytes(void* p) { touch(p, bytes, bytes, Access::read); }                   \
  void __tsan_write##bytes(void* p) { touch(p, bytes, bytes, Access::write); }                 \
  void __tsan_unaligned_read##bytes(void* p) { touch(p, bytes, 1, Access::read); }             \
  void __tsan_unaligned_write##bytes(void* p) { touch(p, bytes, 1, Access::write); }           \
  void __tsan_volatile_read##bytes(void* p) { touch(p, bytes, bytes, Access::volatile_read); } \
  void __tsan_volatile_write##bytes(void* p) { touch(p, bytes, bytes, Access::write); }

extern "C" {

RIDGE_HOOKS(1)
RIDGE_HOOKS(2)
RIDGE_HOOKS(4)
RIDGE_HOOKS(8)
RIDGE_HOOKS(16)

void __tsan_read_range(void* p, std::size_t bytes) { touch(p, bytes, 1, Access::read); }
void __tsan_write_range(void* p, std::size_t bytes) { touch(p, bytes, 1, Access::write); }
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Atomic operations of the host, which counts its shared pointers: only one thread runs.
unsigned __tsan_atomic32_fetch_add(volatile unsigned* p, unsigned more, int) {
  const unsigned before = *p;
  *p = before + more;
  return before;
}
unsigned __tsan_atomic32_fetch_sub(volatile unsigned* p, unsigned less, int) {
  const unsigned before = *p;
  *p = before - less;
  return before;
}
unsigned __tsan_atomic32_load(const volatile unsigned* p, int) { return *p; }
int __tsan_atomic32_compare_exchange_weak(volatile unsigned* p, unsigned* expected, unsigned next,
                                          int, int) {
  if (*p != *expected) {
    *expected = *p;
    return 0;
  }
  *p = next;
  return 1;
}

void __ubsan_handle_out_of_bounds(void*, std::uintptr_t index) {
  ridge::simt::fail_at_index(index);
}

}  // extern "C"
