#pragma once

#include <memory>
#include <string>
#include <vector>

namespace ridge::gpu {

// The vendor's compiler as a library, which turns a kernel's source into machine code while the
// program runs. It needs no GPU.
class RuntimeCompiler {
 public:
  // DeviceError, with the remedy, if the library is not there.
  RuntimeCompiler();
  ~RuntimeCompiler();

  std::string version() const;  // "NVRTC 13.0"

  // `code` is in the dialect of runtime_rtc.h, and may include "ridge/gpu/device/runtime.h",
  // which that stands for, and "ridge/gpu/kernels/activation.h"; `architecture` as target() has it.
  // DeviceError with the first line of what the compiler says if it refuses.
  std::vector<char> compile(const std::string& name, const std::string& code,
                            const std::string& architecture) const;

  // The name of a device's architecture: "sm_90" for 90.
  static std::string target(int compute_capability);
  // All that decides what comes out, beside the version: flags, headers and code.
  static std::string input(const std::string& code, const std::string& architecture);

 private:
  struct Library;
  std::unique_ptr<const Library> library_;
};

}  // namespace ridge::gpu
