#include "ridge/gpu/device/faults.h"

#include <cuda_runtime_api.h>

#include "ridge/base/error.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

std::string_view remedy_of(int status) {
  switch (status) {
    // A kernel's fault. The process cannot use the card any more, others can.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
      return "a kernel went wrong, after which this process cannot use the card: start it again; "
             "with CUDA_LAUNCH_BLOCKING=1 and --disable-pass planned-memory the message names the "
             "operator";
    case cudaErrorLaunchTimeout:
      return "a kernel ran longer than the system lets it: start again on a card that drives no "
             "screen, or with a smaller batch";
    // The card's fault.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
      return "the card itself failed: it must be reset (nvidia-smi -r) or replaced, and the "
             "process "
             "started again; nvidia-smi -q and the kernel's log (Xid) say more";
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      return "another process has the card to itself, or it must be reset: see nvidia-smi";
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
    case cudaErrorOperatingSystem:
    case cudaErrorInitializationError:
    case cudaErrorStartupFailure:
      return "the card or its driver does not answer: see nvidia-smi and the kernel's log (Xid); "
             "the card may have to be reset, or the machine restarted";
    // The system's fault.
    case cudaErrorSystemDriverMismatch:
      return "the driver was updated while the old one was loaded: restart the machine";
    case cudaErrorSystemNotReady:
      return "the service of the cards' connections does not run: start nvidia-fabricmanager";
    case cudaErrorCompatNotSupportedOnDevice:
      return "the compatibility libraries of CUDA do not support this card: update the driver";
    case cudaErrorStubLibrary:
      return "the libcuda.so that was found is the toolkit's stub: take it off the library path";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
    case cudaErrorMpsClientTerminated:
      return "the service that shares the card among processes refused: see "
             "nvidia-cuda-mps-control";
    case cudaErrorNoKernelImageForDevice:
      return "this build has no code for this card: ridge doctor says for which it has";
    default:
      return {};
  }
}

void check_cards(int status, int count, int driver, int runtime) {
  if (status == cudaErrorInsufficientDriver && driver == 0)
    throw DeviceError("--device cuda: no NVIDIA driver is installed; use --device cpu");
  if (status == cudaErrorInsufficientDriver)
    throw DeviceError(
        "--device cuda: the driver supports CUDA {}.{}, but Ridge was built with {}.{}; update the "
        "driver or use --device cpu",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    throw DeviceError(
        "--device cuda: the driver shows no GPU (see nvidia-smi and CUDA_VISIBLE_DEVICES); use "
        "--device cpu");
  check(status, "looking for GPUs");
}

}  // namespace ridge::gpu
