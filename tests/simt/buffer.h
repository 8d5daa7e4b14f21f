#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/simt/machine.h"

namespace ridge::simt {

// Memory of the device with numbers in it.
template <class T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& values)
      : count_(values.size()), data_(reinterpret_cast<T*>(allocate(values.size() * sizeof(T)))) {
    std::copy(values.begin(), values.end(), data_);
    note_written(data_, bytes());
  }
  Buffer(std::size_t count, T value) : Buffer(std::vector<T>(count, value)) {}
  ~Buffer() { deallocate(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  std::size_t count_;
  T* data_;
};

}  // namespace ridge::simt
