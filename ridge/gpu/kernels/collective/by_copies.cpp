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

OneMessage::OneMessage(Types tensors) : dtype_(tensors[0].dtype) {
  for (const TensorType& type : tensors) {
    tensor_bytes_.push_back(type.bytes());
    has_one_dtype_ = has_one_dtype_ && type.dtype == dtype_;
  }
}

std::optional<Summand> OneMessage::of(std::span<void* const> tensors) const {
  if (!has_one_dtype_) return std::nullopt;
  const auto* const begin = static_cast<const std::byte*>(tensors[0]);
  std::size_t bytes = 0;
  for (std::size_t t = 0; t < tensor_bytes_.size(); ++t) {
    const std::size_t place = aligned(bytes);
    if (tensors[t] != begin + place) return std::nullopt;
    bytes = place + tensor_bytes_[t];
  }
  return Summand{tensors[0], bytes / size_of(dtype_), dtype_};
}

SumsByCopies::SumsByCopies(GpuPrepare& prepare, std::int64_t ranks, float factor)
    : gpu_(prepare.gpu), factor_(factor), message_(prepare.in) {
  for (const TensorType& type : prepare.in) bytes_ += aligned(type.bytes());
  row_bytes_ = bytes_ / static_cast<std::size_t>(ranks);
  if (!message_.has_one_dtype() || !makes_rows(bytes_, ranks)) return;
  way_.emplace(prepare.gpu, bytes_);
  if (way_->exists()) prepare.workspace = std::max(prepare.workspace, bytes_);
}

bool SumsByCopies::launch(const Launch& call) const {
  const std::optional<Summand> message = message_.of(call.outputs);
  void* const all = message ? message->data : nullptr;  // which nothing reaches
  const Stretch stretch{all, call.workspace, bytes_};
  RowCopies* const copies = way_ ? way_->to({&stretch, 1}) : nullptr;
  if (!copies) return false;
  copies->exchange(gpu_.stream, all, call.workspace, row_bytes_);
  const PartOfAll part = row_of_all(*gpu_.links, all, call.workspace, row_bytes_);
  sum_over_ranks(gpu_, message->dtype,
                 static_cast<std::int64_t>(row_bytes_ / size_of(message->dtype)), part, factor_,
                 const_cast<void*>(part.own));
  copies->gather(gpu_.stream, all, row_bytes_);
  return true;
}

PartsByCopies::PartsByCopies(const Context& gpu, Types whole, std::int64_t ranks)
    : gpu_(gpu), ranks_(ranks) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const TensorType& type = whole[i];
    all_.push_back(i);
    if (const WayByCopies way(gpu, type.bytes());
        way.exists() && type.numel() % ranks == 0 && makes_rows(type.bytes(), ranks)) {
      way_.emplace(way);
      tensors_.push_back({i, type.dtype, type.bytes(), bytes_});
      bytes_ += aligned(type.bytes());
    } else {
      others_.push_back(i);
    }
  }
}

std::size_t PartsByCopies::row_bytes(const Tensor& tensor) const {
  return tensor.bytes / static_cast<std::size_t>(ranks_);
}

std::span<const std::size_t> PartsByCopies::sum(const Launch& call, float factor) const {
  const auto room = [&](const Tensor& tensor) {
    return static_cast<std::byte*>(call.workspace) + tensor.place;
  };
  std::vector<Stretch> stretches;
  for (const Tensor& tensor : tensors_)
    stretches.push_back({call.inputs[tensor.index], room(tensor), tensor.bytes});
  RowCopies* const copies = way_ ? way_->to(stretches) : nullptr;
  if (!copies) return all_;
  for (const Tensor& tensor : tensors_) {
    const void* const rows = call.inputs[tensor.index];
    copies->exchange(gpu_.stream, rows, room(tensor), row_bytes(tensor));
    sum_over_ranks(gpu_, tensor.dtype,
                   static_cast<std::int64_t>(row_bytes(tensor) / size_of(tensor.dtype)),
                   row_of_all(*gpu_.links, rows, room(tensor), row_bytes(tensor)), factor,
                   call.outputs[tensor.index]);
  }
  return others_;
}

std::span<const std::size_t> PartsByCopies::gather(std::span<void* const> y) const {
  std::vector<Stretch> stretches;
  for (const Tensor& tensor : tensors_)
    stretches.push_back({y[tensor.index], y[tensor.index], tensor.bytes});
  RowCopies* const copies = way_ ? way_->to(stretches) : nullptr;
  if (!copies) return all_;
  for (const Tensor& tensor : tensors_)
    copies->gather(gpu_.stream, y[tensor.index], row_bytes(tensor));
  return others_;
}

}  // namespace ridge::gpu
