#include "ridge/ops/collective.h"

#include <algorithm>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// One operand, and where its elements are among all that go together.
struct Part {
  DType dtype;
  std::int64_t elements, first;
};

template <class T>
void widen(ThreadPool& pool, const void* from, std::int64_t n, float* to) {
  const T* const x = static_cast<const T*>(from);
  parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = load(&x[i]);
  });
}

template <class T>
void narrow(ThreadPool& pool, const float* from, std::int64_t n, float factor, void* to) {
  T* const y = static_cast<T*>(to);
  parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) store(&y[i], from[i] * factor);
  });
}

}  // namespace

// A tensor in f32 is summed where it is. Others are gathered in the workspace first: a message for
// each would take longer, and sums in 16 bits would round once for each rank.
KernelPtr AllReduce::cpu(CpuPrepare& prepare) const {
  if (ranks == 1) return nullptr;
  Communicator* const communicator = prepare.communicator;
  const int there = communicator ? communicator->count() : 1;
  if (communicator && there != ranks)
    throw UsageError("{} over {} ranks on a device that is one of {}", name, ranks, there);
  std::vector<Part> parts;
  std::int64_t elements = 0;
  for (const TensorType& type : prepare.in) {
    parts.push_back({type.dtype, type.numel(), elements});
    elements += type.numel();
  }
  const bool gathers = parts.size() > 1 || parts[0].dtype != DType::f32;
  if (gathers) prepare.workspace = static_cast<std::size_t>(elements) * sizeof(float);
  const float factor = mean ? 1.0f / static_cast<float>(ranks) : 1.0f;
  return make_kernel([&pool = prepare.pool, communicator, there, ranks = ranks,
                      parts = std::move(parts), elements, gathers, factor](const Launch& call) {
    // Plans prepare the kernels of a rank on a device alone.
    if (!communicator)
      throw UsageError("{} over {} ranks on a device that is one of {}", name, ranks, there);
    float* const sums = gathers ? static_cast<float*>(call.workspace) : call.out<float>(0);
    if (gathers)
      for (std::size_t i = 0; i < parts.size(); ++i)
        dispatch_floating(parts[i].dtype, [&]<class T>() {
          widen<T>(pool, call.outputs[i], parts[i].elements, sums + parts[i].first);
        });
    communicator->all_reduce({sums, static_cast<std::size_t>(elements)});
    if (!gathers && factor == 1.0f) return;
    for (std::size_t i = 0; i < parts.size(); ++i)
      dispatch_floating(parts[i].dtype, [&]<class T>() {
        narrow<T>(pool, sums + parts[i].first, parts[i].elements, factor, call.outputs[i]);
      });
  });
}

}  // namespace ridge
