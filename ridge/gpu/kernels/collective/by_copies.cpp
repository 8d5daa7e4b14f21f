#include "ridge/gpu/kernels/collective/by_copies.h"

#include <algorithm>

#include "ridge/gpu/device/target.h"
#include "ridge/gpu/kernels/collective/part_sums.h"

namespace ridge::gpu {
namespace {

constexpr std::size_t least_bytes = std::size_t{4} << 20;
constexpr std::size_t row_alignment = 16;  // of what kernels read at once

std::size_t aligned(std::size_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

// Whether so many bytes make a row for each rank.
bool makes_rows(std::size_t bytes, std::int64_t ranks) {
  return bytes % (row_alignment * static_cast<std::size_t>(ranks)) == 0;
}

// Of what all ranks have of this rank's row, which it has in its place among `rows`.
PartOfAll row_of_all(const Links& links, const void* rows, const void* room,
                     std::size_t row_bytes) {
  const std::size_t before = row_bytes * static_cast<std::size_t>(links.rank());
  return {.own = static_cast<const std::byte*>(rows) + before,
          .others = room,
          .stride = static_cast<std::int64_t>(row_bytes),
          .rank = links.rank(),
          .ranks = links.count(),
          .has_own_row = true};
}

}  // namespace

WayByCopies::WayByCopies(const Context& gpu, std::size_t bytes)
    : gpu_(gpu),
      exists_(bytes >= least_bytes &&
              (gpu.links ? gpu.links->row_copies() != nullptr : allows_row_copies())) {}

RowCopies* WayByCopies::to(std::span<const Stretch> stretches) const {
  RowCopies* const copies = exists_ ? gpu_.links->row_copies() : nullptr;
  if (!copies || !copies->is_captured(gpu_.stream)) return nullptr;
  if (!is_reached_) {
    is_reached_ = true;
    for (const Stretch& one : stretches)
      if (!copies->reach(one.rows, one.room, one.bytes)) is_reached_ = false;
  }
  return *is_reached_ ? copies : nullptr;
}

SumsByCopies::SumsByCopies(GpuPrepare& prepare, std::int64_t ranks, float factor)
    : gpu_(prepare.gpu), dtype_(prepare.in[0].dtype), factor_(factor) {
  bool is_one = true;
  for (const TensorType& type : prepare.in) {
    bytes_ += aligned(type.bytes());
    tensor_bytes_.push_back(type.bytes());
    is_one = is_one && type.dtype == dtype_;
  }
  row_bytes_ = bytes_ / static_cast<std::size_t>(ranks);
  if (!is_one || !makes_rows(bytes_, ranks)) return;
  way_.emplace(prepare.gpu, bytes_);
  if (way_->exists()) prepare.workspace = std::max(prepare.workspace, bytes_);
}

// Where the tensors begin if each lies behind the one before; else null, which nothing reaches.
const void* SumsByCopies::rows(const Launch& call) const {
  const auto* next = static_cast<const std::byte*>(call.outputs[0]);
  for (std::size_t t = 0; t < tensor_bytes_.size(); ++t) {
    if (call.outputs[t] != next) return nullptr;
    next += aligned(tensor_bytes_[t]);
  }
  return call.outputs[0];
}

bool SumsByCopies::launch(const Launch& call) const {
  const Stretch stretch{rows(call), call.workspace, bytes_};
  RowCopies* const copies = way_ ? way_->to({&stretch, 1}) : nullptr;
  if (!copies) return false;
  void* const all = call.outputs[0];
  copies->exchange(gpu_.stream, all, call.workspace, row_bytes_);
  const PartOfAll part = row_of_all(*gpu_.links, all, call.workspace, row_bytes_);
  sum_over_ranks(gpu_, dtype_, static_cast<std::int64_t>(row_bytes_ / size_of(dtype_)), part,
                 factor_, const_cast<void*>(part.own));
  copies->gather(gpu_.stream, all, row_bytes_);
  return true;
}

PartsByCopies::PartsByCopies(const Context& gpu, Types whole, std::int64_t ranks)
    : gpu_(gpu), ranks_(ranks) {
  bool have_rows = true;
  for (const TensorType& type : whole) {
    tensors_.push_back({type.dtype, type.bytes(), bytes_});
    bytes_ += aligned(type.bytes());
    have_rows = have_rows && type.numel() % ranks == 0 && makes_rows(type.bytes(), ranks);
  }
  if (have_rows) way_.emplace(gpu, bytes_);
}

std::size_t PartsByCopies::row_bytes(const Tensor& tensor) const {
  return tensor.bytes / static_cast<std::size_t>(ranks_);
}

std::size_t PartsByCopies::workspace() const { return way_ && way_->exists() ? bytes_ : 0; }

bool PartsByCopies::sum(const Launch& call, float factor) const {
  if (workspace() == 0) return false;
  const auto room = [&](const Tensor& tensor) {
    return static_cast<std::byte*>(call.workspace) + tensor.place;
  };
  std::vector<Stretch> stretches;
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    stretches.push_back({call.inputs[t], room(tensors_[t]), tensors_[t].bytes});
  RowCopies* const copies = way_->to(stretches);
  if (!copies) return false;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const Tensor& tensor = tensors_[t];
    copies->exchange(gpu_.stream, call.inputs[t], room(tensor), row_bytes(tensor));
    sum_over_ranks(gpu_, tensor.dtype,
                   static_cast<std::int64_t>(row_bytes(tensor) / size_of(tensor.dtype)),
                   row_of_all(*gpu_.links, call.inputs[t], room(tensor), row_bytes(tensor)), factor,
                   call.outputs[t]);
  }
  return true;
}

bool PartsByCopies::gather(std::span<void* const> y) const {
  if (!way_) return false;
  std::vector<Stretch> stretches;
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    stretches.push_back({y[t], y[t], tensors_[t].bytes});
  RowCopies* const copies = way_->to(stretches);
  if (!copies) return false;
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    copies->gather(gpu_.stream, y[t], row_bytes(tensors_[t]));
  return true;
}

}  // namespace ridge::gpu
