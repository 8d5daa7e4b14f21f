#include "ridge/cpu/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ridge {

bool may_use_amx() {
#if defined(__x86_64__)
  static const bool may = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    constexpr unsigned amx_bf16_bit = 1u << 22, amx_tile_bit = 1u << 24;
    if ((d & amx_bf16_bit) == 0 || (d & amx_tile_bit) == 0) return false;
    constexpr int request_permission = 0x1023, tile_data = 18;
    return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return may;
#else
  return false;
#endif
}

}  // namespace ridge
