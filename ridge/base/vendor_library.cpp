#include "ridge/base/vendor_library.h"

#include "ridge/base/error.h"

namespace ridge {

VendorLibrary::VendorLibrary(const LibrarySearch& search)
    : name_(search.name), library_(search.files) {
  if (!library_.is_open()) throw DeviceError("{}", search.missing);
}

void* VendorLibrary::required(const char* function) const {
  if (void* found = library_.function<void>(function)) return found;
  throw DeviceError(
      "{} has no {}: it is not the {} that Ridge was built for; ridge doctor says which", path(),
      function, name_);
}

}  // namespace ridge
