#include "ridge/ops/collective.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ridge/device/other_ranks.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/collective/by_copies.h"
#include "ridge/gpu/kernels/collective/part_sums.h"
#include "ridge/gpu/kernels/collective/parts_by_rank.h"

namespace ridge {
namespace {

using namespace gpu;

template <class F>
void for_others(const Links& links, const F& f) {
  for (int r = 0; r < links.count(); ++r)
    if (r != links.rank()) f(r);
}

// Gives each rank what the others have of its part of each tensor that is asked for, in rows of the
// workspace, and sums that: result(t) is where the sums of tensor t go. All that the ranks send is
// sent at once.
template <class Result>
void reduce_parts(const Context& gpu, Links& links, const PartsByRank& tensors,
                  std::span<const std::size_t> asked_for, std::span<const void* const> x,
                  void* workspace, float factor, const Result& result) {
  if (asked_for.empty()) return;
  std::vector<Parcel> out, in;
  int row = 0;
  for_others(links, [&](int r) {
    for (const std::size_t t : asked_for) {
      const Part theirs = tensors.part(t, r), own = tensors.part(t, links.rank());
      out.push_back({r, tensors.at(t, const_cast<void*>(x[t]), theirs),
                     static_cast<std::size_t>(tensors.bytes_of(t, theirs))});
      in.push_back(
          {r, static_cast<char*>(workspace) + row * tensors.row_bytes() + tensors.place_in_row(t),
           static_cast<std::size_t>(tensors.bytes_of(t, own))});
    }
    ++row;
  });
  links.exchange(gpu.stream, out, in);
  std::vector<PartOfAll> parts;
  for (const std::size_t t : asked_for) {
    const Part own = tensors.part(t, links.rank());
    parts.push_back({.dtype = tensors.dtype(t),
                     .n = own.count,
                     .own = tensors.at(t, const_cast<void*>(x[t]), own),
                     .others = static_cast<char*>(workspace) + tensors.place_in_row(t),
                     .stride = tensors.row_bytes(),
                     .sum = result(t)});
  }
  sum_over_ranks(gpu, parts, {.rank = links.rank(), .ranks = links.count()}, factor);
}

// Gives all ranks the parts of each tensor that is asked for, which lie in their places already.
void gather_parts(const Context& gpu, Links& links, const PartsByRank& tensors,
                  std::span<const std::size_t> asked_for, std::span<void* const> y) {
  if (asked_for.empty()) return;
  std::vector<Parcel> out, in;
  const auto parcel = [&](int to, std::size_t t, int whose) {
    const Part part = tensors.part(t, whose);
    return Parcel{to, tensors.at(t, y[t], part),
                  static_cast<std::size_t>(tensors.bytes_of(t, part))};
  };
  for_others(links, [&](int r) {
    for (const std::size_t t : asked_for) {
      out.push_back(parcel(r, t, links.rank()));
      in.push_back(parcel(r, t, r));
    }
  });
  links.exchange(gpu.stream, out, in);
}

// Puts each part that this rank has, of a given dtype, into its place in the whole tensor. A part
// is every each-th operand.
void place_own_parts(const Context& gpu, const PartsByRank& tensors, std::int64_t rank,
                     std::span<const DType> given, const Launch& call, std::size_t each) {
  std::vector<Copy> copies;
  std::map<std::pair<DType, DType>, std::vector<Rounding>> roundings;
  for (std::size_t t = 0; t < tensors.count(); ++t) {
    const Part own = tensors.part(t, rank);
    const void* const from = call.inputs[each * t];
    void* const to = tensors.at(t, call.outputs[t], own);
    if (given[t] == tensors.dtype(t))
      copies.push_back({tensors.bytes_of(t, own), from, to});
    else
      roundings[{given[t], tensors.dtype(t)}].push_back({own.count, from, to});
  }
  copy(gpu, copies);
  for (const auto& [dtypes, some] : roundings)
    write_rounded(gpu, dtypes.first, dtypes.second, some);
}

float factor_of(bool mean, std::int64_t ranks) {
  return mean ? 1.0f / static_cast<float>(ranks) : 1.0f;
}

// Whether the transport may sum, in its own order and in the operands' dtype. Two ranks have one
// order; over more, f32 rounds no more than elsewhere, and 16 bits would round at each rank.
bool transport_may_sum(Types in, std::int64_t ranks, bool deterministic) {
  return ranks == 2 || (!deterministic && std::ranges::all_of(in, [](const TensorType& type) {
           return type.dtype == DType::f32;
         }));
}

}  // namespace

KernelPtr AllReduce::gpu(GpuPrepare& prepare) const {
  if (ranks == 1) return nullptr;
  const OtherRanks others(prepare.gpu.links.get(), name, ranks);
  PartsByRank tensors(prepare.in, ranks);
  const bool may_sum = transport_may_sum(prepare.in, ranks, prepare.gpu.deterministic);
  if (!may_sum) prepare.workspace = tensors.workspace();
  SumsByCopies by_copies(prepare, ranks, factor_of(mean, ranks));
  if (may_sum)
    return make_kernel([&gpu = prepare.gpu, others, by_copies = std::move(by_copies),
                        tensors = std::move(tensors), mean = mean](const Launch& call) {
      if (by_copies.launch(call)) return;
      // A call for each tensor would take NCCL longer.
      if (const std::optional<Summand> all = by_copies.message().of(call.outputs))
        return (*others).all_reduce(gpu.stream, {&*all, 1}, mean);
      std::vector<Summand> summands;
      for (std::size_t t = 0; t < tensors.count(); ++t)
        summands.push_back(
            {call.outputs[t], static_cast<std::size_t>(tensors.elements(t)), tensors.dtype(t)});
      (*others).all_reduce(gpu.stream, summands, mean);
    });
  return make_kernel([&gpu = prepare.gpu, others, by_copies = std::move(by_copies),
                      tensors = std::move(tensors),
                      factor = factor_of(mean, ranks)](const Launch& call) {
    if (by_copies.launch(call)) return;
    Links& links = *others;
    reduce_parts(gpu, links, tensors, tensors.all(), call.inputs, call.workspace, factor,
                 [&](std::size_t t) {
                   return tensors.at(t, call.outputs[t], tensors.part(t, links.rank()));
                 });
    gather_parts(gpu, links, tensors, tensors.all(), call.outputs);
  });
}

KernelPtr ReduceScatter::gpu(GpuPrepare& prepare) const {
  const OtherRanks others(prepare.gpu.links.get(), name, ranks);
  PartsByRank tensors(prepare.in, ranks);
  if (ranks == 1)
    return make_kernel([&gpu = prepare.gpu, tensors = std::move(tensors)](const Launch& call) {
      std::vector<Copy> copies;
      for (std::size_t t = 0; t < tensors.count(); ++t)
        copies.push_back(
            {tensors.bytes_of(t, tensors.part(t, 0)), call.inputs[t], call.outputs[t]});
      copy(gpu, copies);
    });
  PartsInRows in_rows(prepare.gpu, prepare.in, ranks);
  prepare.workspace = std::max(tensors.workspace(), in_rows.workspace_to_sum());
  return make_kernel([&gpu = prepare.gpu, others, tensors = std::move(tensors),
                      in_rows = std::move(in_rows),
                      factor = factor_of(mean, ranks)](const Launch& call) {
    Links& links = *others;  // which refuses a device alone
    const std::span<const std::size_t> left = in_rows.sum(call, factor);
    reduce_parts(gpu, links, tensors, left, call.inputs, call.workspace, factor,
                 [&](std::size_t t) { return call.outputs[t]; });
  });
}

KernelPtr AllGather::gpu(GpuPrepare& prepare) const {
  const OtherRanks others(prepare.gpu.links.get(), name, ranks);
  std::vector<DType> given;  // of parts
  for (std::size_t i = 0; i < prepare.in.size(); i += operands_each())
    given.push_back(prepare.in[i].dtype);
  PartsInRows in_rows(prepare.gpu, prepare.out, ranks);
  if (ranks > 1) prepare.workspace = in_rows.workspace_to_gather();
  return make_kernel([&gpu = prepare.gpu, others, given = std::move(given),
                      tensors = PartsByRank(prepare.out, ranks), in_rows = std::move(in_rows),
                      each = operands_each(), rank = rank, ranks = ranks](const Launch& call) {
    place_own_parts(gpu, tensors, rank, given, call, each);
    if (ranks == 1) return;
    Links& links = *others;  // which refuses a device alone
    const std::span<const std::size_t> left = in_rows.gather(call);
    gather_parts(gpu, links, tensors, left, call.outputs);
  });
}

}  // namespace ridge
