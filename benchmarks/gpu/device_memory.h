#pragma once

// The GPU's memory for the benchmarks that call kernels by themselves.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

// Ends the program if a call of the CUDA runtime failed.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// So many values, which are NaN until something is written.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t size) : size_(size) {
    check(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
    check(cudaMemset(data_, 0xff, size * sizeof(T)), "cudaMemset");
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { cudaFree(data_); }
  T* get() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> host() const {
    std::vector<T> copy(size_);
    check(cudaMemcpy(copy.data(), data_, size_ * sizeof(T), cudaMemcpyDefault), "a download");
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};
