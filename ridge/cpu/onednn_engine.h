#pragma once

// What all of our uses of oneDNN share. Only the files that call the library include it.

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "ridge/base/dtype.h"

namespace ridge {

// Runs oneDNN on the calling thread alone, and leaves the caller's OpenMP setting as it was.
class SingleThreaded {
 public:
  SingleThreaded() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~SingleThreaded() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int before_;
};

const dnnl::engine& cpu_engine();

inline dnnl::memory::data_type onednn_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::s8:
      return dnnl::memory::data_type::s8;
    case DType::i32:
      return dnnl::memory::data_type::s32;
    default:
      return dnnl::memory::data_type::f32;
  }
}

inline dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
}

}  // namespace ridge
