#pragma once

#include <memory>
#include <string>

struct nvtxDomainRegistration_st;
struct nvtxStringRegistration_st;

namespace ridge::gpu {

// Named ranges of the host's time, nested, for a profiler that listens to this process from outside
// (NVIDIA's tools extension, NVTX, version 3), in a domain called "ridge".
class NvtxDomain {
 public:
  // Null if no tool listens: then nothing was opened, and nothing costs time.
  static std::unique_ptr<NvtxDomain> open();

  explicit NvtxDomain(nvtxDomainRegistration_st* domain) : domain_(domain) {}
  ~NvtxDomain();
  NvtxDomain(const NvtxDomain&) = delete;
  NvtxDomain& operator=(const NvtxDomain&) = delete;

  // A name that is used often.
  using Name = nvtxStringRegistration_st*;
  Name registered(const std::string& name) const;

  void begin(Name name) const;
  void begin(const std::string& name) const;
  void end() const;

 private:
  nvtxDomainRegistration_st* domain_;
};

}  // namespace ridge::gpu
