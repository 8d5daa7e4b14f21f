#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

class RuntimeCompiler;  // gpu/codegen/runtime_compiler.h

// A kernel that was compiled while the program ran, and is loaded.
class GeneratedKernel {
 public:
  // The image stays loaded as long as the process lives. DeviceError if the driver refuses it.
  GeneratedKernel(const std::string& name, const std::vector<char>& image);

  // Enqueues it as launch() of gpu/device/runtime.h. `arguments` has the address of each parameter.
  void launch(const Context& gpu, std::int64_t blocks, int threads, void** arguments) const;

 private:
  void* kernel_ = nullptr;
};

// The generated kernels of this process: each is compiled once, and kept on disk for the next.
// Safe to use from several threads.
class GeneratedKernels {
 public:
  static GeneratedKernels& of_process();

  // The kernel called `name` of this code, compiled now unless it is known; null where kernels
  // cannot be compiled or loaded, or where the environment says RIDGE_GENERATED_KERNELS=off.
  const GeneratedKernel* prepare(const Context& gpu, const std::string& name,
                                 const std::string& code);

  // Why some could not be, each reason once.
  std::vector<std::string> warnings() const;
  struct Counts {
    int compiled = 0, found = 0;  // on disk
  };
  Counts counts() const;

 private:
  GeneratedKernels();
  ~GeneratedKernels();
  std::unique_ptr<GeneratedKernel> make(const std::string& name, const std::string& code,
                                        const std::string& architecture);

  mutable std::mutex mutex_;
  std::unique_ptr<RuntimeCompiler> compiler_;
  bool opened_ = false;
  std::map<std::string, std::unique_ptr<GeneratedKernel>> kernels_;  // by input; null: none
  std::vector<std::string> warnings_;
  Counts counts_;
};

}  // namespace ridge::gpu
