#pragma once

// What the tables of candidates for Attention and for AttentionGrad have in common.

#include "ridge/gpu/kernels/attention/attention_candidates.h"
#if !defined(__HIP__)
#include "ridge/gpu/kernels/attention/attention_scaled.h"
#include "ridge/gpu/kernels/attention/attention_sm90.h"
#endif

namespace ridge::gpu {

template <class Op>
using PrepareAttention = KernelPtr (*)(const AttentionWork<Op>&, GpuPrepare&);

// What is expected of candidates, from the slowest to the fastest. The library's kernels are taken
// only where they have been timed; those on matrix units, which stand in for them, where no kernel
// is written for the card.
enum ExpectedAttention : int { library_kernels, portable_kernels, unit_kernels, flash_kernels };

#if !defined(__HIP__)
// A kernel of flash.h for operands of 16 bits.
template <class Op, auto kernel, PrepareAttention<Op> prepare>
constexpr Candidate<AttentionWork<Op>> flash_attention{
    .name = [](const AttentionWork<Op>&) { return "own kernels, " + std::string(name_of(kernel)); },
    .supports =
        [](const AttentionWork<Op>& w) {
          return sm90_supports(w.op, w.layout, w.prepare) &&
                 flash_sm90_supports(kernel, flash_shape(w.op, w.prepare.in),
                                     w.prepare.gpu.deterministic);
        },
    .expectation = [](const AttentionWork<Op>& w, const Card& card) -> int {
      return flash_kernels +
             flash_sm90_expectation(kernel, flash_shape(w.op, w.prepare.in), card.crossovers());
    },
    .prepare = prepare};

// The same for f32, scaled to f16.
template <class Op, auto kernel, PrepareAttention<Op> prepare>
constexpr Candidate<AttentionWork<Op>> scaled_flash_attention{
    .name = flash_attention<Op, kernel, prepare>.name,
    .supports =
        [](const AttentionWork<Op>& w) {
          return scaled_supports(w.op, w.prepare) &&
                 flash_sm90_supports(kernel, scaled_shape(w.op, w.prepare.in),
                                     w.prepare.gpu.deterministic);
        },
    .expectation = flash_attention<Op, kernel, prepare>.expectation,
    .prepare = prepare};
#endif

// Kernels for all shapes and cards.
template <class Op, PrepareAttention<Op> prepare>
constexpr Candidate<AttentionWork<Op>> portable_attention{
    .name = [](const AttentionWork<Op>&) -> std::string { return "own kernels"; },
    .supports = [](const AttentionWork<Op>&) { return true; },
    .expectation = [](const AttentionWork<Op>&, const Card&) -> int { return portable_kernels; },
    .prepare = prepare,
    .fallback = true};

template <class Op, PrepareAttention<Op> prepare>
constexpr Candidate<AttentionWork<Op>> library_attention{
    .name = [](const AttentionWork<Op>& w) { return w.prepare.gpu.dnn->version(); },
    .supports =
        [](const AttentionWork<Op>& w) { return library_supports_attention(w.op, w.prepare); },
    .expectation = [](const AttentionWork<Op>& w, const Card& card) -> int {
      // On sm90 a library is not opened for this question.
      return !card.is_sm90() && w.prepare.gpu.dnn->is_portable() ? unit_kernels : library_kernels;
    },
    .prepare = prepare};

}  // namespace ridge::gpu
