#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/cpu/prepare.h"

namespace ridge {

// The way to the others that a kernel has.
class OtherRanks {
 public:
  // UsageError if the device is one of another number of ranks, more than one.
  OtherRanks(const CpuPrepare& prepare, std::string_view name, std::int64_t ranks)
      : communicator_(prepare.communicator), name_(name), ranks_(ranks) {
    if (ranks > 1 && communicator_ && communicator_->count() != ranks)
      refuse(communicator_->count());
  }
  // UsageError on a device alone, where plans prepare the kernels of a rank.
  Communicator& operator*() const {
    if (!communicator_) refuse(1);
    return *communicator_;
  }

  std::int64_t ranks() const { return ranks_; }

 private:
  [[noreturn]] void refuse(int there) const {
    throw UsageError("{} over {} ranks on a device that is one of {}", name_, ranks_, there);
  }

  Communicator* communicator_;
  std::string_view name_;
  std::int64_t ranks_;
};

}  // namespace ridge
