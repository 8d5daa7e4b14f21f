#include "ridge/base/error.h"
#include "ridge/gpu/device/links.h"

namespace ridge::gpu {

std::shared_ptr<Links> link_by_nccl(Communicator&) {
  throw DeviceError(
      "--device hip: ranks on GPUs of their own need RCCL, which Ridge does not use yet; use one "
      "GPU (--ranks 1), or --device cpu");
}

bool allows_row_copies() { return false; }

}  // namespace ridge::gpu
