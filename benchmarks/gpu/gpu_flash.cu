// Flash attention on the GPU: every result checked against attention in double precision on reduced
// sizes, then timed, in turns with cuDNN's where that is installed. Prints one table each;
// peers/flash_attention.py times PyTorch's at the same shapes. Exits with 1 when a check fails.
//   gpu_flash [check [longest sequence] | time [longest sequence]]

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/device_memory.h"
#include "benchmarks/gpu/random_bits.h"
#include "ridge/gpu/device/card.h"
#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/vendor/dnn.h"

namespace {

using ridge::gpu::FlashBackward;
using ridge::gpu::FlashForward;
using ridge::gpu::FlashGradients;
using ridge::gpu::FlashOperands;
using ridge::gpu::FlashShape;
using Half = __nv_bfloat16;

__global__ void fill_normal(Half* x, std::size_t size, unsigned seed, float sigma) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const std::uint64_t z = random_bits(i, seed);
    const float u = (static_cast<unsigned>(z) + 1.0F) * 0x1p-32F, v = (z >> 32) * 0x1p-32F;
    x[i] = __float2bfloat16(sigma * sqrtf(-2 * logf(u)) * cospif(2 * v));
  }
}

// The kernel that runs where nothing is timed: of those that take the shape, the one that is
// expected to be the fastest.
template <class Kernel>
Kernel expected(std::initializer_list<Kernel> kernels, const FlashShape& shape,
                bool deterministic) {
  const ridge::gpu::Card card{.compute_capability = 90};
  const auto rank = [&](Kernel kernel) {
    return flash_sm90_supports(kernel, shape, deterministic)
               ? flash_sm90_expectation(kernel, shape, card.crossovers())
               : -1;
  };
  return std::max(kernels, [&](Kernel a, Kernel b) { return rank(a) < rank(b); });
}

FlashForward forward_kernel(const FlashShape& shape) {
  using enum FlashForward;
  return expected({one_tile, whole_heads, whole_tiles, two_warpgroups, three_warpgroups}, shape,
                  true);
}

FlashBackward backward_kernel(const FlashShape& shape, bool deterministic) {
  using enum FlashBackward;
  return expected({one_tile, separate, summed}, shape, deterministic);
}

// One problem: a packed row of q, k, v (and of their gradients) for every position.
struct Problem {
  FlashShape shape;
  std::int64_t stride;
  Buffer<Half> qkv, y, dy, dqkv;
  Buffer<float> lse;
  Buffer<unsigned char> workspace;

  Problem(const FlashShape& s, unsigned seed)
      : shape(s),
        stride((s.n_heads + 2 * s.n_kv_heads) * s.head_dim),
        qkv(s.batch * s.seq * stride),
        y(s.batch * s.seq * s.n_heads * s.head_dim),
        dy(y.size()),
        dqkv(qkv.size()),
        lse(s.batch * s.n_heads * s.seq),
        workspace(std::max(flash_sm90_workspace(backward_kernel(s, false), s),
                           flash_sm90_workspace(backward_kernel(s, true), s))) {
    fill_normal<<<1024, 256>>>(qkv.get(), qkv.size(), 2 * seed, 1);
    fill_normal<<<1024, 256>>>(dy.get(), dy.size(), 2 * seed + 1, 1);
  }
  FlashOperands operands() const {
    const Half* q = qkv.get();
    const Half* k = q + shape.n_heads * shape.head_dim;
    return {q, k, k + shape.n_kv_heads * shape.head_dim, stride, stride, stride};
  }
  FlashGradients gradients(const float* rotation = nullptr) const {
    Half* q = dqkv.get();
    Half* k = q + shape.n_heads * shape.head_dim;
    return {q, k, k + shape.n_kv_heads * shape.head_dim, stride, stride, stride, rotation};
  }
  void forward() const {
    flash_sm90_forward(forward_kernel(shape), shape, operands(), y.get(), lse.get(), nullptr);
  }
  void backward(bool deterministic = false, const float* rotation = nullptr) const {
    flash_sm90_backward(backward_kernel(shape, deterministic), shape, operands(), y.get(),
                        lse.get(), dy.get(), gradients(rotation), workspace.get(), nullptr);
  }
  std::string name() const {
    char text[96];
    std::snprintf(text, sizeof text, "B%lld S%-5lld H%lld/%lld d%-3lld %s",
                  static_cast<long long>(shape.batch), static_cast<long long>(shape.seq),
                  static_cast<long long>(shape.n_heads), static_cast<long long>(shape.n_kv_heads),
                  static_cast<long long>(shape.head_dim), shape.causal ? "causal" : "full  ");
    return text;
  }
};

struct View {
  const Half* data;
  std::int64_t stride, head_dim;
  __device__ double at(std::int64_t row, int head, int column) const {
    return __bfloat162float(data[row * stride + head * head_dim + column]);
  }
};

struct Reference {
  FlashShape shape;
  View q, k, v, dy;
  double *p, *ds;  // [batch, n_heads, seq, seq]
  double *y, *lse;
  double *dq, *dk, *dv;  // [batch * seq, heads * head_dim]
};

// One warp a query.
__global__ void reference_rows(Reference r) {
  const std::int64_t seq = r.shape.seq, heads = r.shape.n_heads, dim = r.shape.head_dim;
  const std::int64_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= r.shape.batch * heads * seq) return;
  const int lane = threadIdx.x % 32, i = row % seq, h = row / seq % heads;
  const std::int64_t base = row / seq / heads * seq;
  const int kv = h / (heads / r.shape.n_kv_heads);
  const int end = r.shape.causal ? i + 1 : seq;
  double* p = r.p + row * seq;
  double* ds = r.ds + row * seq;
  const auto all = [](double x, auto combine) {
    for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(~0U, x, mask));
    return x;
  };
  const auto plus = [](double a, double b) { return a + b; };
  double top = -INFINITY, sum = 0;
  for (int j = lane; j < end; j += 32) {
    double s = 0, dp = 0;
    for (int c = 0; c < dim; ++c) {
      s += r.q.at(base + i, h, c) * r.k.at(base + j, kv, c);
      dp += r.dy.at(base + i, h, c) * r.v.at(base + j, kv, c);
    }
    p[j] = s * r.shape.scale;
    ds[j] = dp;
    top = fmax(top, p[j]);
  }
  top = all(top, [](double a, double b) { return fmax(a, b); });
  for (int j = lane; j < end; j += 32) sum += exp(p[j] - top);
  sum = all(sum, plus);
  double delta = 0;
  for (int j = lane; j < end; j += 32) {
    p[j] = exp(p[j] - top) / sum;
    delta += p[j] * ds[j];
  }
  delta = all(delta, plus);
  for (int j = lane; j < end; j += 32) ds[j] = p[j] * (ds[j] - delta) * r.shape.scale;
  for (int j = end + lane; j < seq; j += 32) p[j] = ds[j] = 0;
  __syncwarp();
  if (lane == 0) r.lse[row] = top + log(sum);
  for (int c = lane; c < dim; c += 32) {
    double y = 0, dq = 0;
    for (int j = 0; j < end; ++j) {
      y += p[j] * r.v.at(base + j, kv, c);
      dq += ds[j] * r.k.at(base + j, kv, c);
    }
    r.y[((base + i) * heads + h) * dim + c] = y;
    r.dq[((base + i) * heads + h) * dim + c] = dq;
  }
}

// One warp a key.
__global__ void reference_columns(Reference r) {
  const std::int64_t seq = r.shape.seq, heads = r.shape.n_heads, kv_heads = r.shape.n_kv_heads;
  const std::int64_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= r.shape.batch * kv_heads * seq) return;
  const int lane = threadIdx.x % 32, j = row % seq, kv = row / seq % kv_heads;
  const std::int64_t b = row / seq / kv_heads, dim = r.shape.head_dim, group = heads / kv_heads;
  for (int c = lane; c < dim; c += 32) {
    double dk = 0, dv = 0;
    for (int h = kv * group; h < (kv + 1) * group; ++h)
      for (int i = 0; i < seq; ++i) {
        const std::int64_t at = ((b * heads + h) * seq + i) * seq + j;
        dk += r.ds[at] * r.q.at(b * seq + i, h, c);
        dv += r.p[at] * r.dy.at(b * seq + i, h, c);
      }
    r.dk[((b * seq + j) * kv_heads + kv) * dim + c] = dk;
    r.dv[((b * seq + j) * kv_heads + kv) * dim + c] = dv;
  }
}

float to_float(float x) { return x; }
float to_float(Half x) { return __bfloat162float(x); }

// ||ours - theirs|| / ||theirs|| of `columns` columns of a matrix; NaN if anything is not finite.
template <class T>
double distance(const std::vector<T>& ours, std::int64_t offset, std::int64_t stride,
                const std::vector<double>& theirs, std::int64_t columns) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const double x = to_float(ours[offset + i / columns * stride + i % columns]);
    difference += (x - theirs[i]) * (x - theirs[i]);
    norm += theirs[i] * theirs[i];
  }
  // With a single key dq and dk are zero, and what comes of it is rounding, of about 1 an element.
  return std::sqrt(difference / std::max(norm, 1e-6 * static_cast<double>(theirs.size())));
}

// The worse of the distances of dq and dk when they are to be turned back by a table of angles.
double check_rotation(const Problem& problem, bool deterministic, std::vector<double> dq,
                      std::vector<double> dk) {
  const std::int64_t d = problem.shape.head_dim, seq = problem.shape.seq;
  std::vector<float> table;
  for (std::int64_t i = 0; i < seq * d / 2; ++i) {
    const double angle =
        0.1 * static_cast<double>(i / (d / 2)) / static_cast<double>(1 + i % (d / 2));
    table.push_back(static_cast<float>(std::cos(angle)));
    table.push_back(static_cast<float>(std::sin(angle)));
  }
  const auto turn = [&](std::vector<double>& x, std::int64_t columns) {
    for (std::size_t i = 0; i < x.size(); i += 2) {
      const float* angle = &table[i / columns % seq * d + i % d];
      const double a = x[i], b = x[i + 1];
      x[i] = a * angle[0] + b * angle[1];
      x[i + 1] = b * angle[0] - a * angle[1];
    }
  };
  const std::int64_t q_columns = problem.shape.n_heads * d,
                     k_columns = problem.shape.n_kv_heads * d;
  turn(dq, q_columns);
  turn(dk, k_columns);
  const Buffer<float> rotation(table.size());
  check(cudaMemcpy(rotation.get(), table.data(), table.size() * sizeof(float), cudaMemcpyDefault),
        "copy");
  check(cudaMemset(problem.dqkv.get(), 0xff, problem.dqkv.size() * sizeof(Half)), "cudaMemset");
  problem.backward(deterministic, rotation.get());
  check(cudaDeviceSynchronize(), problem.name().c_str());
  const std::vector<Half> gradients = problem.dqkv.host();
  return std::max(distance(gradients, 0, problem.stride, dq, q_columns),
                  distance(gradients, q_columns, problem.stride, dk, k_columns));
}

bool check_shape(const FlashShape& shape, unsigned seed) {
  Problem problem(shape, seed);
  const std::int64_t rows = shape.batch * shape.seq, d = shape.head_dim;
  const std::int64_t q_columns = shape.n_heads * d, kv_columns = shape.n_kv_heads * d;
  Buffer<double> p(shape.batch * shape.n_heads * shape.seq * shape.seq), ds(p.size()),
      y(rows * q_columns), lse(problem.lse.size()), dq(y.size()), dk(rows * kv_columns),
      dv(dk.size());
  const FlashOperands operands = problem.operands();
  const auto view = [&](const void* data, std::int64_t stride) {
    return View{static_cast<const Half*>(data), stride, d};
  };
  const Reference reference{shape,
                            view(operands.q, operands.q_stride),
                            view(operands.k, operands.k_stride),
                            view(operands.v, operands.v_stride),
                            view(problem.dy.get(), q_columns),
                            p.get(),
                            ds.get(),
                            y.get(),
                            lse.get(),
                            dq.get(),
                            dk.get(),
                            dv.get()};
  const auto blocks = [](std::int64_t warps) { return static_cast<unsigned>((warps + 3) / 4); };
  reference_rows<<<blocks(rows * shape.n_heads), 128>>>(reference);
  reference_columns<<<blocks(rows * shape.n_kv_heads), 128>>>(reference);
  problem.forward();
  problem.backward();
  check(cudaDeviceSynchronize(), problem.name().c_str());
  const std::vector<Half> gradients = problem.dqkv.host();
  const double errors[] = {
      distance(problem.y.host(), 0, q_columns, y.host(), q_columns),
      distance(problem.lse.host(), 0, shape.seq, lse.host(), shape.seq),
      distance(gradients, 0, problem.stride, dq.host(), q_columns),
      distance(gradients, q_columns, problem.stride, dk.host(), kv_columns),
      distance(gradients, q_columns + kv_columns, problem.stride, dv.host(), kv_columns)};
  // The deterministic gradients: as good, and the same bits every time.
  bool same = true;
  std::vector<Half> first;
  for (int run = 0; run < 3; ++run) {
    check(cudaMemset(problem.dqkv.get(), 0xff, problem.dqkv.size() * sizeof(Half)), "cudaMemset");
    problem.backward(true);
    check(cudaDeviceSynchronize(), problem.name().c_str());
    const std::vector<Half> again = problem.dqkv.host();
    if (run == 0) first = again;
    same = same && std::memcmp(again.data(), first.data(), again.size() * sizeof(Half)) == 0;
  }
  const double fixed = distance(first, 0, problem.stride, dq.host(), q_columns);
  const double turned = std::max(check_rotation(problem, false, dq.host(), dk.host()),
                                 check_rotation(problem, true, dq.host(), dk.host()));
  bool good = same && fixed < 1e-2 && turned < 1e-2;
  for (const double error : errors) good = good && error < 1e-2;
  std::printf(
      "%-34s y %.1e lse %.1e dq %.1e dk %.1e dv %.1e | fixed order: dq %.1e %s | turned %.1e  %s\n",
      problem.name().c_str(), errors[0], errors[1], errors[2], errors[3], errors[4], fixed,
      same ? "same bits" : "BITS DIFFER", turned, good ? "ok" : "WRONG");
  return good;
}

// Occupies the GPU while the host enqueues what comes after.
__global__ void delay(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

using Call = std::function<void(const Problem&)>;

// Median microseconds of each call. Calls take turns, so that whatever the card's clocks do falls
// on all; and so do problems, so that none is found in the cache.
std::vector<double> microseconds(const std::vector<std::unique_ptr<Problem>>& problems,
                                 const std::vector<Call>& calls) {
  constexpr int warm_up = 3, runs = 20;
  cudaEvent_t begin{}, end{};
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<std::vector<float>> times(calls.size());
  std::size_t turn = 0;
  for (int run = -warm_up; run < runs; ++run)
    for (std::size_t i = 0; i < calls.size(); ++i) {
      delay<<<1, 1>>>(100'000);
      check(cudaEventRecord(begin), "event");
      calls[i](*problems[turn++ % problems.size()]);
      check(cudaEventRecord(end), "event");
      check(cudaEventSynchronize(end), "event");
      float time = 0;
      check(cudaEventElapsedTime(&time, begin, end), "event");
      if (run >= 0) times[i].push_back(time * 1000);
    }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::vector<double> medians;
  for (std::vector<float>& t : times) {
    std::nth_element(t.begin(), t.begin() + runs / 2, t.end());
    medians.push_back(t[runs / 2]);
  }
  return medians;
}

// Forward, backward and deterministic backward; our time over the library's of the first two.
void time_shape(const FlashShape& shape, ridge::gpu::Dnn* dnn) {
  std::vector<std::unique_ptr<Problem>> problems;
  for (unsigned i = 0; i < 3; ++i) problems.push_back(std::make_unique<Problem>(shape, i));
  std::vector<Call> calls{[](const Problem& p) { p.forward(); },
                          [](const Problem& p) { p.backward(); },
                          [](const Problem& p) { p.backward(true); }};
  const std::size_t own = calls.size();
  std::vector<Buffer<unsigned char>> memory;
  memory.reserve(own);
  const auto room = [&](std::size_t bytes) { return memory.emplace_back(bytes).get(); };
  if (dnn) {
    const FlashOperands operands = problems[0]->operands();
    const auto bf16 = ridge::DType::bf16;
    const std::shared_ptr forward = dnn->attention(bf16, shape, operands);
    calls.push_back([forward, workspace = room(forward->workspace())](const Problem& p) {
      forward->run(nullptr, p.operands(), p.y.get(), p.lse.get(), workspace);
    });
    const std::shared_ptr backward =
        dnn->attention_grad(bf16, shape, operands, problems[0]->gradients(), false);
    calls.push_back([backward, workspace = room(backward->workspace())](const Problem& p) {
      backward->run(nullptr, p.operands(), p.y.get(), p.lse.get(), p.dy.get(), p.gradients(),
                    workspace);
    });
  }
  const std::vector<double> times = microseconds(problems, calls);
  const double flops = 4.0 * shape.batch * shape.n_heads * shape.seq * shape.seq * shape.head_dim /
                       (shape.causal ? 2 : 1);
  std::printf("%-34s", problems[0]->name().c_str());
  for (std::size_t i = 0; i < own; ++i) {
    std::printf(" | %8.1f us %5.0f TF/s", times[i], (i == 0 ? 1 : 2.5) * flops / times[i] * 1e-6);
    if (own + i < times.size())
      std::printf(", cuDNN %8.1f us: %.2f", times[own + i], times[i] / times[own + i]);
  }
  std::printf("\n");
  std::fflush(stdout);
}

FlashShape shape(int batch, int seq, int heads, int kv_heads, int dim, bool causal) {
  return {batch, seq, heads, kv_heads, dim, 1 / std::sqrt(static_cast<float>(dim)), causal};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const int longest = argc > 2 ? std::atoi(argv[2]) : 1003;
  bool good = true;
  if (only != "time")
    for (const int dim : {32, 64, 128})
      for (const bool causal : {true, false})
        for (const int seq : {1, 37, 64, 128, 130, 200, 208, 209, 256, 512, 1003})
          if (seq <= longest)
            good = check_shape(shape(2, seq, 4, seq % 2 == 0 ? 2 : 4, dim, causal), seq) && good;
  // Long enough for dq to be summed over key tiles.
  if (only != "time" && longest > 1000)
    for (const bool causal : {true, false})
      for (const FlashShape& s :
           {shape(1, 1100, 4, 2, 128, causal), shape(1, 2200, 2, 1, 64, causal),
            shape(1, 4200, 2, 2, 32, causal)})
        good = check_shape(s, 7) && good;
  if (only == "check") return good ? 0 : 1;
  const std::shared_ptr<ridge::gpu::Dnn> dnn = ridge::gpu::make_dnn();
  bool there = true;
  try {
    std::printf("Forward | backward | backward in a fixed order; ours, and %s in turns\n",
                dnn->version().c_str());
  } catch (const std::exception& error) {
    std::printf("Forward | backward | backward in a fixed order. %s\n", error.what());
    there = false;
  }
  for (const FlashShape& s : {shape(8, 128, 8, 4, 32, true), shape(8, 128, 8, 4, 64, true),
                              shape(16, 512, 16, 8, 64, true), shape(32, 512, 16, 16, 64, true),
                              shape(16, 1024, 16, 16, 64, true), shape(8, 2048, 16, 16, 64, true),
                              shape(2, 8192, 16, 16, 64, true), shape(2, 8192, 16, 16, 64, false),
                              shape(8, 1024, 16, 8, 128, true), shape(32, 512, 16, 16, 128, true),
                              shape(16, 1024, 16, 16, 128, true), shape(8, 2048, 16, 16, 128, true),
                              shape(2, 8192, 16, 16, 128, true), shape(2, 8192, 16, 16, 128, false),
                              shape(64, 197, 12, 12, 64, false), shape(64, 256, 12, 12, 64, false)})
    if (argc <= 2 || s.seq <= longest) time_shape(s, there ? dnn.get() : nullptr);
  return good ? 0 : 1;
}
