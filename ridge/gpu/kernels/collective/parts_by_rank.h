#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ridge/base/part.h"
#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

// Several tensors that go together, cut into the parts of the ranks.
class PartsByRank {
 public:
  PartsByRank(Types types, std::int64_t ranks) : ranks_(ranks) {
    for (const TensorType& type : types) {
      all_.push_back(tensors_.size());
      tensors_.push_back({type.dtype, type.numel(), row_bytes_});
      row_bytes_ +=
          (bytes_of(tensors_.size() - 1, part(tensors_.size() - 1, 0)) + row_alignment - 1) /
          row_alignment * row_alignment;
    }
  }

  std::size_t count() const { return tensors_.size(); }
  std::span<const std::size_t> all() const { return all_; }
  DType dtype(std::size_t t) const { return tensors_[t].dtype; }
  std::int64_t elements(std::size_t t) const { return tensors_[t].elements; }
  // The first part is the longest.
  Part part(std::size_t t, std::int64_t rank) const {
    return part_of(tensors_[t].elements, rank, ranks_);
  }
  std::int64_t bytes_of(std::size_t t, const Part& part) const {
    return part.count * static_cast<std::int64_t>(size_of(tensors_[t].dtype));
  }
  char* at(std::size_t t, void* tensor, const Part& part) const {
    return static_cast<char*>(tensor) +
           part.first * static_cast<std::int64_t>(size_of(tensors_[t].dtype));
  }

  // A row of the workspace has room for a rank's part of each.
  std::int64_t row_bytes() const { return row_bytes_; }
  std::int64_t place_in_row(std::size_t t) const { return tensors_[t].place; }
  std::size_t workspace() const { return static_cast<std::size_t>((ranks_ - 1) * row_bytes_); }

 private:
  static constexpr std::int64_t row_alignment = 64;

  struct Tensor {
    DType dtype;
    std::int64_t elements, place;
  };
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> all_;
  std::int64_t ranks_, row_bytes_ = 0;
};

}  // namespace ridge::gpu
