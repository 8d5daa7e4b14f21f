#pragma once

// The table of candidates for Attention, and for AttentionGrad.

#include "ridge/gpu/kernels/attention/attention_candidates.h"
#if !defined(__HIP__)
#include "ridge/gpu/kernels/attention/attention_scaled.h"
#include "ridge/gpu/kernels/attention/attention_sm90.h"
#endif

namespace ridge::gpu {

template <class Op>
using PrepareAttention = KernelPtr (*)(const AttentionWork<Op>&, GpuPrepare&);

template <class Op>
std::string own_kernels(const AttentionWork<Op>&) {
  return "own kernels";
}

// Our own kernels come first: the library's are taken only where they have been timed.
template <class Op, PrepareAttention<Op> sm90, PrepareAttention<Op> scaled,
          PrepareAttention<Op> portable, PrepareAttention<Op> library>
constexpr Candidate<AttentionWork<Op>> attention_candidates[] = {
#if !defined(__HIP__)
    {.name = own_kernels<Op>,
     .supports =
         [](const AttentionWork<Op>& w) { return sm90_supports(w.op, w.layout, w.prepare); },
     .expectation = [](const AttentionWork<Op>&, const Card&) { return 2; },
     .prepare = sm90},
    {.name = own_kernels<Op>,
     .supports = [](const AttentionWork<Op>& w) { return scaled_supports(w.op, w.prepare); },
     .expectation = [](const AttentionWork<Op>&, const Card&) { return 2; },
     .prepare = scaled},
#endif
    {.name = own_kernels<Op>,
     .supports = [](const AttentionWork<Op>&) { return true; },
     .expectation = [](const AttentionWork<Op>&, const Card&) { return 1; },
     .prepare = portable,
     .fallback = true},
    {.name = [](const AttentionWork<Op>& w) { return version_or_nothing(*w.prepare.gpu.dnn); },
     .supports =
         [](const AttentionWork<Op>& w) { return library_supports_attention(w.op, w.prepare); },
     .expectation = [](const AttentionWork<Op>&, const Card&) { return 0; },
     .prepare = library},
};

}  // namespace ridge::gpu
