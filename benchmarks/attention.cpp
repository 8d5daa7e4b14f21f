// The speed of attention and its gradient at the sizes of small language models, with a causal mask
// and the rotary embedding, from operands side by side. Printed are the shortest of the launches,
// in wall-clock time and in the calling thread's processor time, and the FLOPs that the mask leaves
// necessary over it: on one thread over processor time, which other processes disturb less.
//
//   attention [threads] [f32|bf16] [launches]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

struct Seconds {
  double wall = 1e30, processor = 1e30;
};

Seconds now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9};
}

// Numbers between -1 and 1. With such an lse the probabilities of the gradient do not sum to 1,
// which costs the same time.
void fill(void* memory, const TensorType& type) {
  for (std::int64_t i = 0; i < type.numel(); ++i) {
    const auto number = static_cast<std::uint64_t>(i);
    const auto x = static_cast<float>(philox(1, number, 0)[0] * 0x1p-31 - 1.0);
    if (type.dtype == DType::bf16)
      static_cast<BFloat16*>(memory)[i] = BFloat16(x);
    else
      static_cast<float*>(memory)[i] = x;
  }
}

Seconds measure(CpuDevice& device, const Op& op, const std::vector<TensorType>& in, int launches) {
  const std::vector<TensorType> out = infer(op, in);
  const PreparedKernel prepared = device.prepare(op, in, out);
  std::vector<const void*> inputs;
  std::vector<void*> outputs, memory;
  auto allocate = [&](std::size_t bytes) {
    return memory.emplace_back(device.allocate(std::max<std::size_t>(bytes, 1)));
  };
  for (const TensorType& type : in) {
    void* operand = allocate(type.bytes());
    fill(operand, type);
    inputs.push_back(operand);
  }
  for (const TensorType& type : out) outputs.push_back(allocate(type.bytes()));
  const Launch launch{inputs, outputs, allocate(prepared.workspace)};
  Seconds best;
  for (int i = 0; i <= launches; ++i) {
    const Seconds begin = now();
    prepared.kernel->launch(launch);
    const Seconds end = now();
    if (i == 0) continue;  // fills the table of angles
    best.wall = std::min(best.wall, end.wall - begin.wall);
    best.processor = std::min(best.processor, end.processor - begin.processor);
  }
  for (void* block : memory) device.deallocate(block, 0);
  return best;
}

void measure_all(int threads, DType dtype, int launches) {
  CpuDevice device(threads);
  fmt::print("{}, {}, {} launches\n\n", device.description(), name_of(dtype), launches);
  fmt::print("{:>5} {:>5} {:>8} {:>8}   {:<9} {:>9} {:>12} {:>9}\n", "batch", "seq", "heads",
             "head_dim", "", "wall ms", "processor ms", "GFLOP/s");
  struct Size {
    std::int64_t batch, seq, n_heads, n_kv_heads, head_dim;
  };
  for (const Size& s : {Size{8, 128, 8, 4, 32}, Size{1, 128, 8, 4, 32}, Size{8, 128, 8, 4, 64},
                        Size{1, 512, 8, 4, 64}, Size{1, 2048, 8, 4, 64}, Size{1, 1024, 4, 4, 128},
                        Size{1, 1023, 2, 2, 256}}) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    const AttentionHeads heads{s.n_heads, s.n_kv_heads, s.head_dim, scale, true, 10000.0f};
    const TensorType qkv{dtype, {s.batch, s.seq, heads.q_dim() + 2 * heads.kv_dim()}};
    const TensorType y{dtype, {s.batch, s.seq, heads.q_dim()}};
    const TensorType lse{DType::f32, {s.batch, s.n_heads, s.seq}};
    auto print = [&](const Op& op, const std::vector<TensorType>& in, std::string_view direction) {
      const Seconds best = measure(device, op, in, launches);
      const auto flops = static_cast<double>(cost(op, in, infer(op, in)).causal_flops);
      fmt::print("{:>5} {:>5} {:>8} {:>8}   {:<9} {:>9.3f} {:>12.3f} {:>9.1f}\n", s.batch, s.seq,
                 fmt::format("{}/{}", s.n_heads, s.n_kv_heads), s.head_dim, direction,
                 1e3 * best.wall, 1e3 * best.processor,
                 1e-9 * flops / (threads == 1 ? best.processor : best.wall));
    };
    print(Attention{heads}, {qkv}, "forward");
    print(AttentionGrad{heads}, {y, y, lse, qkv}, "backward");
  }
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  const bool bf16 = argc > 2 && std::string_view(argv[2]) == "bf16";
  const int launches = argc > 3 ? std::max(1, std::atoi(argv[3])) : 30;
  ridge::measure_all(threads, bf16 ? ridge::DType::bf16 : ridge::DType::f32, launches);
}
