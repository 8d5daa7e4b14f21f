#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "ridge/gpu/device/card.h"

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
struct ihipStream_t;
#else
struct CUstream_st;
#endif

namespace ridge::gpu {

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
using Stream = ihipStream_t*;
#else
using Stream = CUstream_st*;
#endif

class Blas;            // gpu/vendor/blas.h
class Dnn;             // gpu/vendor/dnn.h
class Links;           // gpu/device/links.h
class RotationTables;  // gpu/kernels/attention/rotations.h

// What all kernels of one device share: the stream that they enqueue to, and what the card has.
struct Context {
  Stream stream = nullptr;
  Card card = {};
  bool deterministic = false;  // sums in a fixed order, even where that is slower
  std::shared_ptr<Blas> blas;
  std::shared_ptr<Dnn> dnn;
  std::shared_ptr<RotationTables> rotations;
  std::shared_ptr<Links> links;  // to the other ranks; null for a device alone
};

std::shared_ptr<RotationTables> make_rotation_tables();

// Throws OutOfMemoryError or DeviceError if `status`, a cudaError_t or hipError_t, is no success;
// `what` was being done.
void check(int status, std::string_view what);

}  // namespace ridge::gpu
