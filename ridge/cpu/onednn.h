#pragma once

#include <cstdint>
#include <memory>

#include "ridge/base/dtype.h"
#include "ridge/cpu/thread_pool.h"

namespace ridge {

// A batch of products C[m, n] = A[m, k] B[k, n] of dense row-major matrices, where A is stored as
// [k, m] if trans_a and B as [n, k] if trans_b.
struct GemmShape {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  DType in = DType::f32, out = DType::f32;
};

// Products by oneDNN, each library call on one thread: we cut C into tiles whose boundaries depend
// on the shape alone and share them out ourselves, so the result has the same bits on any number of
// threads (the library splits k by the number of threads it finds).
class Gemm {
 public:
  explicit Gemm(const GemmShape& shape);  // DeviceError if the library has no such product
  ~Gemm();
  Gemm(Gemm&&) noexcept;

  // Overwrites c.
  void run(ThreadPool& pool, const void* a, const void* b, void* c) const;

  // Whether this CPU multiplies bf16 operands (in: bf16) natively.
  static bool supports_bf16();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
