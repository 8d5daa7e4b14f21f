// A driver of CUDA 12.4, as far as the runtime asks before it finds it too old: its version, and
// functions by name, all of which say that they support nothing.

#include <dlfcn.h>

namespace {

constexpr int success = 0, invalid_value = 1, not_supported = 801;  // of CUresult

int refuse() { return not_supported; }

}  // namespace

extern "C" {

int cuInit(unsigned) { return success; }

int cuDriverGetVersion(int* version) {
  *version = 12040;
  return success;
}

int cuGetProcAddress(const char* name, void** function, int, unsigned long long) {
  *function = ::dlsym(RTLD_DEFAULT, name);
  if (!*function) *function = reinterpret_cast<void*>(refuse);
  return success;
}

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                        int* status) {
  if (status) *status = success;
  return cuGetProcAddress(name, function, version, flags);
}

int cuGetExportTable(const void**, const void*) { return invalid_value; }
}
