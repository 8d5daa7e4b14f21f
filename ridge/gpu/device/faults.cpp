#include "ridge/gpu/device/faults.h"

#include <fmt/format.h>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

void check(int status, std::string_view what) {
  const auto error = static_cast<api::Status>(status);
  if (error == api::success) return;
  // An error that leaves the card usable must not be found by the next check.
  api::ignore(api::get_last_error());
  if (error == api::memory_allocation) {
    std::size_t free = 0, total = 0;
    api::ignore(api::mem_get_info(&free, &total));
    throw OutOfMemoryError(
        "the GPU has {} left of {}, which is not enough for {}: use a smaller batch or model",
        format_bytes(free), format_bytes(total), what);
  }
  const std::string_view remedy = remedy_of(status);
  throw DeviceError("the GPU failed in {}: {} ({}){}{}", what, api::get_error_string(error),
                    api::get_error_name(error), remedy.empty() ? "" : "; ", remedy);
}

}  // namespace ridge::gpu
