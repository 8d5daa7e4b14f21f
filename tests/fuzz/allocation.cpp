#include "tests/fuzz/allocation.h"

#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace ridge {
namespace {

// The hooks take no context, so what they count has to be global.
constexpr auto unlimited = std::numeric_limits<std::int64_t>::max();
std::int64_t grown = 0;
std::int64_t limit = unlimited;

void on_malloc(const volatile void*, std::size_t bytes) {
  grown += static_cast<std::int64_t>(bytes);
  if (grown <= limit) return;
  std::fprintf(stderr, "the heap grew by %lld bytes, of %lld allowed\n",
               static_cast<long long>(grown), static_cast<long long>(limit));
  limit = unlimited;  // for what reports this
  std::abort();
}

void on_free(const volatile void* memory) {
  if (memory == nullptr) return;
  grown -=
      static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}

}  // namespace

AllocationLimit::AllocationLimit(std::size_t bytes) {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  if (installed == 0) std::abort();
  grown = 0;
  limit = static_cast<std::int64_t>(bytes);
}

AllocationLimit::~AllocationLimit() { limit = unlimited; }

}  // namespace ridge
