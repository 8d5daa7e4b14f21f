#pragma once

// What is said, and what is to be done, when the runtime of a GPU reports an error.

#include <string_view>

namespace ridge::gpu {

// What to do after a call returned `status`, a cudaError_t or hipError_t, as a clause without a
// full stop; empty where that is no fault of the card, the system or a kernel.
std::string_view remedy_of(int status);

// Throws DeviceError, which says why no card can be used and what to do, unless one can. `status`
// and `count` are of api::get_device_count(); the versions of CUDA, 13000 for 13.0, are what the
// driver supports (0: there is none) and what Ridge was built with. HIP has no use for them.
void check_cards(int status, int count, int driver, int runtime);

}  // namespace ridge::gpu
