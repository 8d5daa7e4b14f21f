#include "ridge/gpu/profile/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace ridge::gpu {
namespace {

nvtxEventAttributes_t attributes() {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  return range;
}

}  // namespace

std::unique_ptr<NvtxDomain> NvtxDomain::open() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("ridge");
  return domain ? std::make_unique<NvtxDomain>(domain) : nullptr;
}

NvtxDomain::~NvtxDomain() { nvtxDomainDestroy(domain_); }

NvtxDomain::Name NvtxDomain::registered(const std::string& name) const {
  return nvtxDomainRegisterStringA(domain_, name.c_str());
}

void NvtxDomain::begin(Name name) const {
  nvtxEventAttributes_t range = attributes();
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  range.message.registered = name;
  nvtxDomainRangePushEx(domain_, &range);
}

void NvtxDomain::begin(const std::string& name) const {
  nvtxEventAttributes_t range = attributes();
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain_, &range);
}

void NvtxDomain::end() const { nvtxDomainRangePop(domain_); }

}  // namespace ridge::gpu
