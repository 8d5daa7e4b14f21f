#include "ridge/gpu/kernels/collective/by_copies.h"

#include <algorithm>
#include <utility>

#include "ridge/gpu/device/target.h"
#include "ridge/gpu/kernels/collective/part_sums.h"
#include "ridge/gpu/kernels/collective/rows_of_ranks.h"

namespace ridge::gpu {
namespace {

constexpr std::size_t least_bytes = std::size_t{4} << 20;
constexpr std::size_t row_alignment = 16;  // of what kernels read at once
// Of a rank's part of a tensor. To copy more twice would take longer than a message of its own.
constexpr std::size_t most_packed_bytes = std::size_t{1} << 20;

std::size_t aligned(std::size_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

// Whether so many bytes make a row for each rank.
bool makes_rows(std::size_t bytes, std::int64_t ranks) {
  return bytes % (row_alignment * static_cast<std::size_t>(ranks)) == 0;
}

// What all ranks have of this rank's row, which lies in its place among `rows`, and where the sum
// goes.
PartOfAll row_of_all(const Links& links, DType dtype, const void* rows, const void* room,
                     std::size_t row_bytes, void* sum) {
  const std::size_t before = row_bytes * static_cast<std::size_t>(links.rank());
  return {.dtype = dtype,
          .n = static_cast<std::int64_t>(row_bytes / size_of(dtype)),
          .own = static_cast<const std::byte*>(rows) + before,
          .others = room,
          .stride = static_cast<std::int64_t>(row_bytes),
          .sum = sum};
}

RankOfAll rank_of_all(const Links& links) {
  return {.rank = links.rank(), .ranks = links.count(), .has_own_row = true};
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
  const std::size_t own_row = row_bytes_ * static_cast<std::size_t>(gpu_.links->rank());
  const PartOfAll part = row_of_all(*gpu_.links, message->dtype, all, call.workspace, row_bytes_,
                                    static_cast<std::byte*>(all) + own_row);
  sum_over_ranks(gpu_, {&part, 1}, rank_of_all(*gpu_.links), factor_);
  copies->gather(gpu_.stream, all, row_bytes_);
  return true;
}

PartsInRows::PartsInRows(const Context& gpu, Types whole, std::int64_t ranks)
    : gpu_(gpu), ranks_(ranks), tensors_(whole, ranks) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const TensorType& type = whole[i];
    if (const WayByCopies way(gpu, type.bytes());
        way.exists() && type.numel() % ranks == 0 && makes_rows(type.bytes(), ranks)) {
      way_.emplace(way);
      long_.push_back({i, long_bytes_});
      long_bytes_ += aligned(type.bytes());
      unpacked_.push_back(i);
    } else {
      pack(i);
    }
  }
  if (const WayByCopies way(gpu, packed_bytes()); way.exists()) {
    way_.emplace(way);
    packed_by_copies_ = true;
    return;
  }
  packed_row_bytes_ = 0;
  for (const Tensor& tensor : std::exchange(packed_, {})) {
    if (longest_part(tensor.index) <= most_packed_bytes)
      pack(tensor.index);
    else
      short_unpacked_.push_back(tensor.index);
  }
  if (packed_.size() == 1) {
    short_unpacked_.push_back(packed_.front().index);
    packed_.clear();
    packed_row_bytes_ = 0;
  }
  unpacked_.insert(unpacked_.end(), short_unpacked_.begin(), short_unpacked_.end());
}

void PartsInRows::pack(std::size_t index) {
  packed_.push_back({index, packed_row_bytes_});
  packed_row_bytes_ += aligned(longest_part(index));
}

std::size_t PartsInRows::longest_part(std::size_t index) const {
  return static_cast<std::size_t>(tensors_.bytes_of(index, tensors_.part(index, 0)));
}

std::size_t PartsInRows::bytes(const Tensor& tensor) const {
  return static_cast<std::size_t>(tensors_.elements(tensor.index)) *
         size_of(tensors_.dtype(tensor.index));
}

std::size_t PartsInRows::row_bytes(const Tensor& tensor) const {
  return bytes(tensor) / static_cast<std::size_t>(ranks_);
}

std::size_t PartsInRows::packed_bytes() const {
  return packed_row_bytes_ * static_cast<std::size_t>(ranks_);
}

Copy PartsInRows::to_row(const Tensor& tensor, int rank, const void* whole, std::byte* rows) const {
  const Part part = tensors_.part(tensor.index, rank);
  return {.n = tensors_.bytes_of(tensor.index, part),
          .from = tensors_.at(tensor.index, const_cast<void*>(whole), part),
          .to = rows + packed_row_bytes_ * static_cast<std::size_t>(rank) + tensor.place};
}

PartsInRows::Ways PartsInRows::ways(std::span<const Stretch> stretches) const {
  RowCopies* const copies = way_ ? way_->to(stretches) : nullptr;
  return {copies, !packed_.empty() && (copies != nullptr || !packed_by_copies_)};
}

std::span<const std::size_t> PartsInRows::left_by(const Ways& ways) const {
  if (ways.copies) return short_unpacked_;
  return ways.packs ? unpacked_ : tensors_.all();
}

std::span<const std::size_t> PartsInRows::sum(const Launch& call, float factor) const {
  auto* const workspace = static_cast<std::byte*>(call.workspace);
  std::byte* const rows = workspace + long_bytes_;
  std::byte* const rows_that_come = rows + packed_bytes();
  std::vector<Stretch> stretches;
  for (const Tensor& tensor : long_)
    stretches.push_back({call.inputs[tensor.index], workspace + tensor.place, bytes(tensor)});
  if (packed_by_copies_) stretches.push_back({rows, rows_that_come, packed_bytes()});
  const Ways open = ways(stretches);

  const RankOfAll own = rank_of_all(*gpu_.links);
  std::vector<PartOfAll> parts;
  if (open.copies)
    for (const Tensor& tensor : long_) {
      const void* const x = call.inputs[tensor.index];
      open.copies->exchange(gpu_.stream, x, workspace + tensor.place, row_bytes(tensor));
      parts.push_back(row_of_all(*gpu_.links, tensors_.dtype(tensor.index), x,
                                 workspace + tensor.place, row_bytes(tensor),
                                 call.outputs[tensor.index]));
    }
  if (open.packs) {
    std::vector<Copy> packing;
    for (const Tensor& tensor : packed_) {
      const void* const x = call.inputs[tensor.index];
      for (int rank = 0; rank < own.ranks; ++rank)
        if (rank != own.rank) packing.push_back(to_row(tensor, rank, x, rows));
      const Part part = tensors_.part(tensor.index, own.rank);
      parts.push_back({.dtype = tensors_.dtype(tensor.index),
                       .n = part.count,
                       .own = tensors_.at(tensor.index, const_cast<void*>(x), part),
                       .others = rows_that_come + tensor.place,
                       .stride = static_cast<std::int64_t>(packed_row_bytes_),
                       .sum = call.outputs[tensor.index]});
    }
    copy(gpu_, packing);
    if (packed_by_copies_)
      open.copies->exchange(gpu_.stream, rows, rows_that_come, packed_row_bytes_);
    else
      exchange_rows(*gpu_.links, gpu_.stream, rows, rows_that_come, packed_row_bytes_);
  }
  sum_over_ranks(gpu_, parts, own, factor);
  return left_by(open);
}

std::span<const std::size_t> PartsInRows::gather(const Launch& call) const {
  auto* const rows = static_cast<std::byte*>(call.workspace);
  std::vector<Stretch> stretches;
  for (const Tensor& tensor : long_)
    stretches.push_back({call.outputs[tensor.index], call.outputs[tensor.index], bytes(tensor)});
  if (packed_by_copies_) stretches.push_back({rows, rows, packed_bytes()});
  const Ways open = ways(stretches);

  const RankOfAll own = rank_of_all(*gpu_.links);
  std::vector<Copy> unpacking;
  if (open.packs) {
    std::vector<Copy> packing;
    for (const Tensor& tensor : packed_)
      for (int rank = 0; rank < own.ranks; ++rank) {
        const Copy one = to_row(tensor, rank, call.outputs[tensor.index], rows);
        if (rank == own.rank)
          packing.push_back(one);
        else
          unpacking.push_back({.n = one.n, .from = one.to, .to = const_cast<void*>(one.from)});
      }
    copy(gpu_, packing);
    if (packed_by_copies_)
      open.copies->gather(gpu_.stream, rows, packed_row_bytes_);
    else
      gather_rows(*gpu_.links, gpu_.stream, rows, packed_row_bytes_);
  }
  if (open.copies)
    for (const Tensor& tensor : long_)
      open.copies->gather(gpu_.stream, call.outputs[tensor.index], row_bytes(tensor));
  copy(gpu_, unpacking);
  return left_by(open);
}

}  // namespace ridge::gpu
