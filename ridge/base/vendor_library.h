#pragma once

#include <string>
#include <vector>

#include "ridge/base/shared_library.h"

namespace ridge {

// Where a library is looked for, and what is said where it is not.
struct LibrarySearch {
  std::string name;                // "cuBLASLt"
  std::vector<std::string> files;  // as SharedLibrary takes them
  std::string missing;             // the error's line: who needs it, and the remedy
};

// A shared library that is opened at first use, with a table of the functions used of it: derive
// from this class and list them as members, which are looked up once.
//
//   struct Lt : VendorLibrary {
//     Lt() : VendorLibrary(search) {}
//     Function<decltype(cublasLtCreate)> create{*this, "cublasLtCreate"};
//   };
class VendorLibrary {
 public:
  std::string path() const { return library_.path(); }  // of the file that was opened

  VendorLibrary(const VendorLibrary&) = delete;
  VendorLibrary& operator=(const VendorLibrary&) = delete;

 protected:
  // DeviceError with search.missing if it is not there.
  explicit VendorLibrary(const LibrarySearch& search);
  ~VendorLibrary() = default;

  // A function of the library, of the type F that its header gives it. DeviceError if the library
  // that was found has none of this name.
  template <class F>
  class Function;
  template <class R, class... Arguments>
  class Function<R(Arguments...)> {
   public:
    Function(const VendorLibrary& library, const char* name)
        : call_(reinterpret_cast<R (*)(Arguments...)>(library.required(name))) {}
    R operator()(Arguments... arguments) const { return call_(arguments...); }

   private:
    R (*call_)(Arguments...);
  };

  // One that not every version of the library has.
  template <class F>
  class OptionalFunction;
  template <class R, class... Arguments>
  class OptionalFunction<R(Arguments...)> {
   public:
    OptionalFunction(const VendorLibrary& library, const char* name)
        : call_(library.library_.function<R(Arguments...)>(name)) {}
    R operator()(Arguments... arguments) const { return call_(arguments...); }
    explicit operator bool() const { return call_ != nullptr; }

   private:
    R (*call_)(Arguments...);
  };

 private:
  void* required(const char* function) const;

  std::string name_;
  SharedLibrary library_;
};

}  // namespace ridge
