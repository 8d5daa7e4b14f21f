#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>

#include "ridge/gpu/trial.h"

namespace ridge::gpu {
namespace {

constexpr std::size_t repetitions = 8;
// Pairs of bytes make bf16 from -4 to 4 and, in fours, f32 of the same size.
constexpr std::size_t pattern_bytes = std::size_t{1} << 20;

std::vector<std::uint16_t> pattern() {
  std::vector<std::uint16_t> words(pattern_bytes / 2);
  std::uint32_t state = 1;
  for (std::uint16_t& word : words) {
    state = state * 1664525u + 1013904223u;
    const std::uint32_t sign = state >> 31, mantissa = state >> 8 & 0x7F,
                        exponent = state >> 20 & 3;
    word = static_cast<std::uint16_t>(sign << 15 | (125 + exponent) << 7 | mantissa);
  }
  return words;
}

}  // namespace

Trial::Trial(const Context& gpu, const std::vector<std::size_t>& operand_bytes) : gpu_(gpu) {
  const std::size_t all =
      std::accumulate(operand_bytes.begin(), operand_bytes.end(), std::size_t{1});
  const std::size_t sets = std::clamp<std::size_t>(2 * gpu.l2_bytes / all, 1, repetitions);
  const std::vector<std::uint16_t> words = pattern();
  for (std::size_t set = 0; set < sets; ++set) {
    sets_.emplace_back();
    for (const std::size_t bytes : operand_bytes) sets_.back().push_back(filled(words, bytes));
  }
  check(cudaStreamSynchronize(gpu.stream), "an upload");
}

void* Trial::filled(const std::vector<std::uint16_t>& words, std::size_t bytes) const {
  bytes = std::max<std::size_t>(bytes, 64);
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "operands to time kernels with");
  auto* to = static_cast<std::byte*>(memory);
  const std::size_t first = std::min(bytes, pattern_bytes);
  check(cudaMemcpyAsync(to, words.data(), first, cudaMemcpyHostToDevice, gpu_.stream), "an upload");
  for (std::size_t at = first; at < bytes; at *= 2)
    check(cudaMemcpyAsync(to + at, to, std::min(at, bytes - at), cudaMemcpyDeviceToDevice,
                          gpu_.stream),
          "a copy");
  return memory;
}

Trial::~Trial() {
  cudaStreamSynchronize(gpu_.stream);
  for (const Operands& set : sets_)
    for (void* operand : set) cudaFree(operand);
}

void Trial::run(const std::function<void(const Operands&)>& work) const {
  for (std::size_t i = 0; i < repetitions; ++i) work(sets_[i % sets_.size()]);
  check(cudaStreamSynchronize(gpu_.stream), "timing a kernel");
}

}  // namespace ridge::gpu
