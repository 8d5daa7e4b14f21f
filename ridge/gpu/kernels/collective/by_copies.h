#pragma once

// Collectives without kernels that wait for other ranks: engines copy rows between cards
// (gpu/device/links.h), and kernels add what has come.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

// So many bytes with a row for each rank, and those that come from other ranks.
struct Stretch {
  const void* rows = nullptr;
  const void* room = nullptr;
  std::size_t bytes = 0;
};

// The way by copies as one kernel has it, or has not.
class WayByCopies {
 public:
  // For messages of so many bytes in all: shorter ones are faster by kernels.
  WayByCopies(const Context& gpu, std::size_t bytes);

  // Whether there may be such a way. What a plan asks of a card alone, a run has on several.
  bool exists() const { return exists_; }
  // Null where it cannot be gone now: it has to be captured, and on all ranks the stretches have to
  // lie at the same places in memory that copies reach. They are the same at each call.
  RowCopies* to(std::span<const Stretch> stretches) const;

 private:
  const Context& gpu_;
  bool exists_;
  // Asked once, since one rank alone may capture a step again.
  mutable std::optional<bool> is_reached_;
};

// AllReduce: tensors of one dtype, which lie one after another, are cut into a row for each rank.
class SumsByCopies {
 public:
  // Adds what it needs to the workspace.
  SumsByCopies(GpuPrepare& prepare, std::int64_t ranks, float factor);
  // False, and nothing is done, where it has to be done in another way.
  bool launch(const Launch& call) const;

 private:
  const void* rows(const Launch& call) const;

  const Context& gpu_;
  DType dtype_;
  float factor_;
  std::vector<std::size_t> tensor_bytes_;
  std::size_t bytes_ = 0, row_bytes_ = 0;
  std::optional<WayByCopies> way_;
};

// ReduceScatter and AllGather: the rows of each tensor are its parts.
class PartsByCopies {
 public:
  PartsByCopies(const Context& gpu, Types whole, std::int64_t ranks);

  // Room for the rows of all tensors that are summed; 0 if nothing goes this way.
  std::size_t workspace() const;
  // False, and nothing is done, where it has to be done in another way.
  bool sum(const Launch& call, float factor) const;
  bool gather(std::span<void* const> y) const;

 private:
  struct Tensor {
    DType dtype;
    std::size_t bytes, place;  // and where it lies in the workspace
  };
  std::size_t row_bytes(const Tensor& tensor) const;

  const Context& gpu_;
  std::int64_t ranks_;
  std::vector<Tensor> tensors_;
  std::size_t bytes_ = 0;
  std::optional<WayByCopies> way_;
};

}  // namespace ridge::gpu
