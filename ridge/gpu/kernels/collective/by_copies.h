#pragma once

// Collectives without kernels that wait for other ranks: engines copy rows between cards
// (gpu/device/links.h), and kernels add what has come.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/collective/part_sums.h"
#include "ridge/gpu/kernels/collective/parts_by_rank.h"

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
  // There is none for a message of so few bytes that kernels send it faster.
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

// Tensors of one operator that may be summed over the ranks as if they were one tensor.
class OneMessage {
 public:
  explicit OneMessage(Types tensors);
  // All from the beginning of the first to the end of the last, if they have one dtype and each
  // lies behind the one before, as a plan places them. Between them nothing else can lie.
  std::optional<Summand> of(std::span<void* const> tensors) const;
  bool has_one_dtype() const { return has_one_dtype_; }

 private:
  DType dtype_;
  bool has_one_dtype_ = true;
  std::vector<std::size_t> tensor_bytes_;
};

// AllReduce: tensors that make one message, which is cut into a row for each rank.
class SumsByCopies {
 public:
  // Adds what it needs to the workspace.
  SumsByCopies(GpuPrepare& prepare, std::int64_t ranks, float factor);
  // False, and nothing is done, where it has to be done in another way.
  bool launch(const Launch& call) const;
  const OneMessage& message() const { return message_; }

 private:
  const Context& gpu_;
  float factor_;
  OneMessage message_;
  std::size_t bytes_ = 0, row_bytes_ = 0;
  std::optional<WayByCopies> way_;
};

// ReduceScatter and AllGather. The parts of a long tensor are rows as they lie. Those of short ones
// are packed into rows first, because each message has its price: rows that are long together go by
// copies, too, and shorter ones in one message to each rank.
class PartsInRows {
 public:
  PartsInRows(const Context& gpu, Types whole, std::int64_t ranks);

  // Room for rows; 0 if none are needed.
  std::size_t workspace_to_sum() const { return long_bytes_ + 2 * packed_bytes(); }
  std::size_t workspace_to_gather() const { return packed_bytes(); }
  // They return the tensors that have to go in another way, in an order that is the same on all
  // ranks.
  std::span<const std::size_t> sum(const Launch& call, float factor) const;
  // Each rank's own parts are in their places already.
  std::span<const std::size_t> gather(const Launch& call) const;

 private:
  // The index is the one among the operands. A long tensor's place is where the rows that come for
  // it begin in the workspace, that of a packed one where its part begins in each row.
  struct Tensor {
    std::size_t index, place;
  };
  // The ways that are open at a call.
  struct Ways {
    RowCopies* copies = nullptr;
    bool packs = false;
  };
  void pack(std::size_t index);
  std::size_t longest_part(std::size_t index) const;  // in bytes
  std::size_t bytes(const Tensor& tensor) const;
  std::size_t row_bytes(const Tensor& tensor) const;
  std::size_t packed_bytes() const;  // of the rows of all ranks
  // Takes a rank's part of a packed tensor from its place in this to its place in the rank's row.
  Copy to_row(const Tensor& tensor, int rank, const void* whole, std::byte* rows) const;
  Ways ways(std::span<const Stretch> stretches) const;
  std::span<const std::size_t> left_by(const Ways& ways) const;

  const Context& gpu_;
  std::int64_t ranks_;
  PartsByRank tensors_;
  std::vector<Tensor> long_, packed_;
  bool packed_by_copies_ = false;
  std::size_t long_bytes_ = 0, packed_row_bytes_ = 0;
  // Indices among the operands: those that are not packed, and the short ones of these.
  std::vector<std::size_t> unpacked_, short_unpacked_;
  std::optional<WayByCopies> way_;
};

}  // namespace ridge::gpu
