#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ridge/base/error.h"

namespace ridge::gpu {

// A library, Blas or Dnn, or what stands in for it where it turns out not to be there when it is
// first asked: opening one takes time and memory, which who needs none need not spend.
template <class Library>
class WithStandIn {
 public:
  WithStandIn(std::shared_ptr<Library> library, std::shared_ptr<Library> stand_in)
      : library_(std::move(library)), stand_in_(std::move(stand_in)) {}

  Library* operator->() const {
    if (!chosen_) {
      try {
        library_->version();
        chosen_ = library_.get();
      } catch (const DeviceError& error) {
        refusal_ = error.what();
        chosen_ = stand_in_.get();
      }
    }
    return chosen_;
  }

  // Why the library is not used; empty while it is, and until it is asked.
  const std::string& refusal() const { return refusal_; }

 private:
  std::shared_ptr<Library> library_, stand_in_;
  mutable Library* chosen_ = nullptr;
  mutable std::string refusal_;
};

}  // namespace ridge::gpu
