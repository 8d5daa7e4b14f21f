#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#if defined(__HIP__)
struct ihipStream_t;
#else
struct CUstream_st;
#endif

namespace ridge::gpu {

#if defined(__HIP__)
using Stream = ihipStream_t*;
#else
using Stream = CUstream_st*;
#endif

class Blas;            // gpu/blas.h
class Dnn;             // gpu/dnn.h
class RotationTables;  // gpu/rotations.h

// What all kernels of one device share: the stream that they enqueue to, and what the card has.
struct Context {
  Stream stream = nullptr;
  int multiprocessors = 0;
  int compute_capability = 0;        // 90 for 9.0
  std::size_t shared_per_block = 0;  // bytes that a block can be granted
  std::size_t l2_bytes = 0;
  bool deterministic = false;  // sums in a fixed order, even where that is slower
  std::shared_ptr<Blas> blas;
  std::shared_ptr<Dnn> dnn;
  std::shared_ptr<RotationTables> rotations;
};

std::shared_ptr<RotationTables> make_rotation_tables();

// Throws OutOfMemoryError or DeviceError if `status`, a cudaError_t or hipError_t, is no success;
// `what` was being done.
void check(int status, std::string_view what);

}  // namespace ridge::gpu
