#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/faults.h"

namespace ridge::gpu {

std::string_view remedy_of(int status) {
  switch (status) {
    // A kernel's fault. The process cannot use the card any more, others can.
    case hipErrorIllegalAddress:
    case hipErrorAssert:
    case hipErrorLaunchFailure:
    case hipErrorPriorLaunchFailure:
      return "a kernel went wrong, after which this process cannot use the card: start it again; "
             "with AMD_SERIALIZE_KERNEL=3 and --disable-pass planned-memory the message names the "
             "operator";
    case hipErrorLaunchTimeOut:
      return "a kernel ran longer than the system lets it: start again on a card that drives no "
             "screen, or with a smaller batch";
    // The card's fault.
    case hipErrorECCNotCorrectable:
      return "the card itself failed: it must be reset (rocm-smi --gpureset) or replaced, and the "
             "process started again; the kernel's log (amdgpu) says more";
    case hipErrorUnknown:
    case hipErrorOperatingSystem:
    case hipErrorNotInitialized:
    case hipErrorRuntimeMemory:
    case hipErrorRuntimeOther:
      return "the card or its driver does not answer: see rocminfo and the kernel's log (amdgpu); "
             "the card may have to be reset, or the machine restarted";
    // The build's.
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidDeviceFunction:
      return "this build has no code for this card: configure it with "
             "-DRIDGE_HIP_ARCHITECTURE=..., which rocminfo names";
    default:
      return {};
  }
}

void check_cards(int status, int count, int /*driver*/, int /*runtime*/) {
#if defined(__HIP_PLATFORM_AMD__)
  constexpr auto device = "/dev/kfd";
  if (status != hipSuccess && !std::filesystem::exists(device))
    throw DeviceError(
        "--device hip: no driver of AMD's GPUs is loaded ({} is missing); use --device cpu",
        device);
#endif
  if (status == hipErrorNoDevice || (status == hipSuccess && count == 0))
    throw DeviceError(
        "--device hip: the driver shows no GPU (see rocminfo, HIP_VISIBLE_DEVICES, and whether you "
        "may use /dev/kfd and /dev/dri); use --device cpu");
  check(status, "looking for GPUs");
}

}  // namespace ridge::gpu
