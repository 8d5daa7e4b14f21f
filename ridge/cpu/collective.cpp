#include "ridge/ops/collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/part.h"
#include "ridge/cpu/elementwise.h"
#include "ridge/device/other_ranks.h"

namespace ridge {
namespace {

// One operand, and where its elements are among all that go together.
struct Piece {
  DType dtype;
  std::int64_t elements, first;
};

template <class From, class To>
void convert(ThreadPool& pool, const void* from, std::int64_t n, void* to, float factor = 1.0f) {
  const From* const x = static_cast<const From*>(from);
  To* const y = static_cast<To*>(to);
  parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) store(&y[i], load(&x[i]) * factor);
  });
}

// Several tensors cut into the parts of the ranks, and put together by rank.
class PartsByRank {
 public:
  PartsByRank(std::vector<TensorType> tensors, std::int64_t ranks)
      : tensors_(std::move(tensors)), ranks_(ranks) {}

  std::size_t tensors() const { return tensors_.size(); }
  DType dtype(std::size_t tensor) const { return tensors_[tensor].dtype; }
  Part part(std::size_t tensor, std::int64_t rank) const {
    return part_of(tensors_[tensor].numel(), rank, ranks_);
  }
  // Of all tensors, by rank.
  std::vector<std::int64_t> elements() const {
    return by_rank([](const TensorType&) { return 1; });
  }
  std::vector<std::int64_t> bytes() const {
    return by_rank([](const TensorType& t) { return static_cast<std::int64_t>(size_of(t.dtype)); });
  }
  // f(rank, tensor, part) in the order in which they lie.
  template <class F>
  void for_each(const F& f) const {
    for (std::int64_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t t = 0; t < tensors_.size(); ++t) f(rank, t, part(t, rank));
  }

 private:
  template <class Size>
  std::vector<std::int64_t> by_rank(const Size& size) const {
    std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks_), 0);
    for_each([&](std::int64_t rank, std::size_t t, const Part& part) {
      sums[static_cast<std::size_t>(rank)] += part.count * size(tensors_[t]);
    });
    return sums;
  }

  std::vector<TensorType> tensors_;
  std::int64_t ranks_;
};

template <class T>
const void* at(const void* tensor, std::int64_t element) {
  return static_cast<const T*>(tensor) + element;
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

// A tensor in f32 is summed where it is. Others are gathered in the workspace first: a message for
// each would take longer, and sums in 16 bits would round once for each rank.
KernelPtr AllReduce::cpu(CpuPrepare& prepare) const {
  if (ranks == 1) return nullptr;
  const OtherRanks others(prepare.communicator, name, ranks);
  std::vector<Piece> pieces;
  std::int64_t elements = 0;
  for (const TensorType& type : prepare.in) {
    pieces.push_back({type.dtype, type.numel(), elements});
    elements += type.numel();
  }
  const bool gathers = pieces.size() > 1 || pieces[0].dtype != DType::f32;
  if (gathers) prepare.workspace = static_cast<std::size_t>(elements) * sizeof(float);
  const float factor = mean ? 1.0f / static_cast<float>(ranks) : 1.0f;
  return make_kernel([&pool = prepare.pool, others, pieces = std::move(pieces), elements, gathers,
                      factor](const Launch& call) {
    Communicator& communicator = *others;
    float* const sums = gathers ? static_cast<float*>(call.workspace) : call.out<float>(0);
    if (gathers)
      for (std::size_t i = 0; i < pieces.size(); ++i)
        dispatch_floating(pieces[i].dtype, [&]<class T>() {
          convert<T, float>(pool, call.outputs[i], pieces[i].elements, sums + pieces[i].first);
        });
    communicator.all_reduce({sums, static_cast<std::size_t>(elements)});
    if (!gathers && factor == 1.0f) return;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      dispatch_floating(pieces[i].dtype, [&]<class T>() {
        convert<float, T>(pool, sums + pieces[i].first, pieces[i].elements, call.outputs[i],
                          factor);
      });
  });
}

// All are put together by rank, in f32, and their sums behind them; one tensor in f32 lies so
// already.
KernelPtr ReduceScatter::cpu(CpuPrepare& prepare) const {
  const OtherRanks others(prepare.communicator, name, ranks);
  const PartsByRank parts({prepare.in.begin(), prepare.in.end()}, ranks);
  std::vector<std::int64_t> counts = parts.elements();
  const std::int64_t all = sum_of(counts), own = counts[static_cast<std::size_t>(rank)];
  const bool gathers = parts.tensors() > 1 || parts.dtype(0) != DType::f32;
  if (gathers) prepare.workspace = static_cast<std::size_t>(all + own) * sizeof(float);
  const float factor = mean ? 1.0f / static_cast<float>(ranks) : 1.0f;
  return make_kernel([&pool = prepare.pool, others, parts, counts = std::move(counts), all, own,
                      gathers, factor, rank = rank, ranks = ranks](const Launch& call) {
    float *data = static_cast<float*>(call.workspace), *sums = data + all;
    if (!gathers) {  // which are read alone
      data = const_cast<float*>(call.in<float>(0));
      sums = call.out<float>(0);
    }
    float* to = data;
    if (gathers)
      parts.for_each([&](std::int64_t, std::size_t t, const Part& part) {
        dispatch_floating(parts.dtype(t), [&]<class T>() {
          convert<T, float>(pool, at<T>(call.inputs[t], part.first), part.count, to);
        });
        to += part.count;
      });
    if (ranks == 1)
      std::copy_n(data, own, sums);
    else
      (*others).reduce_scatter({data, static_cast<std::size_t>(all)}, counts,
                               {sums, static_cast<std::size_t>(own)});
    if (!gathers && factor == 1.0f) return;
    for (std::size_t t = 0; t < parts.tensors(); ++t) {
      const std::int64_t count = parts.part(t, rank).count;
      dispatch_floating(parts.dtype(t), [&]<class T>() {
        convert<float, T>(pool, sums, count, call.outputs[t], factor);
      });
      sums += count;
    }
  });
}

// One tensor is put together where it is, several in the workspace.
KernelPtr AllGather::cpu(CpuPrepare& prepare) const {
  const OtherRanks others(prepare.communicator, name, ranks);
  const PartsByRank parts({prepare.out.begin(), prepare.out.end()}, ranks);
  std::vector<std::int64_t> bytes = parts.bytes();
  const auto all = static_cast<std::size_t>(sum_of(bytes));
  const bool together = parts.tensors() > 1 && ranks > 1;
  if (together) prepare.workspace = all;
  std::vector<DType> given;  // of parts
  for (std::size_t i = 0; i < prepare.in.size(); i += operands_each())
    given.push_back(prepare.in[i].dtype);
  return make_kernel([&pool = prepare.pool, others, parts, given = std::move(given),
                      bytes = std::move(bytes), all, together, each = operands_each(), rank = rank,
                      ranks = ranks](const Launch& call) {
    // Where a part lies in its tensor, and how long it is, in bytes.
    const auto place = [&](std::size_t t, const Part& part) {
      const auto size = size_of(parts.dtype(t));
      return std::span(
          static_cast<std::byte*>(call.outputs[t]) + static_cast<std::size_t>(part.first) * size,
          static_cast<std::size_t>(part.count) * size);
    };
    for (std::size_t t = 0; t < parts.tensors(); ++t) {
      const Part part = parts.part(t, rank);
      const auto own = place(t, part);
      const void* const x = call.inputs[each * t];
      if (given[t] != parts.dtype(t))
        dispatch_floating(given[t], [&]<class From>() {
          dispatch_floating(parts.dtype(t), [&]<class To>() {
            convert<From, To>(pool, x, part.count, own.data());
          });
        });
      else if (own.data() != x)
        std::memcpy(own.data(), x, own.size());
    }
    if (ranks == 1) return;
    auto* const data = static_cast<std::byte*>(together ? call.workspace : call.outputs[0]);
    std::byte* at = data;
    if (together)
      parts.for_each([&](std::int64_t r, std::size_t t, const Part& part) {
        const auto there = place(t, part);
        if (r == rank) std::memcpy(at, there.data(), there.size());
        at += there.size();
      });
    (*others).all_gather_parts({data, all}, bytes);
    at = data;
    if (together)
      parts.for_each([&](std::int64_t r, std::size_t t, const Part& part) {
        const auto there = place(t, part);
        if (r != rank) std::memcpy(there.data(), at, there.size());
        at += there.size();
      });
  });
}

}  // namespace ridge
