// Products of bf16 on a GPU of sm90: our own and the vendor's library's fastest, checked against
// each other, then timed in turns on operands that are not in the cache; and the feed-forward's
// products with the gate behind them. Exits with 1 when a check fails.
//   gpu_products [check | time]

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/gpu/random_bits.h"
#include "ridge/gpu/sm90/product/products.h"
#include "ridge/gpu/vendor/blas.h"

namespace {

using ridge::DType;
using ridge::gpu::GateProduct;
using ridge::gpu::GradBuffers;
using ridge::gpu::ProductPtr;
using ridge::gpu::ProductShape;
using Half = __nv_bfloat16;

constexpr GradBuffers grad_buffers[] = {GradBuffers::more_ahead, GradBuffers::more_stages};
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
    poison();
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  ~Buffer() { cudaFree(data_); }
  void poison() const { check(cudaMemset(data_, 0xff, bytes_), "cudaMemset"); }  // NaN
  template <class T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

__global__ void fill_uniform(Half* x, std::size_t size, unsigned seed, float range) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const std::uint64_t z = random_bits(i, seed);
    x[i] = __float2bfloat16(range * (2 * (static_cast<unsigned>(z) * 0x1p-32F) - 1));
  }
}

Buffer random_matrix(std::int64_t elements, unsigned seed, float range = 1) {
  Buffer buffer(static_cast<std::size_t>(elements) * 2);
  fill_uniform<<<1024, 256>>>(buffer.get<Half>(), static_cast<std::size_t>(elements), seed, range);
  return buffer;
}

// sums += (|x - y|^2, |y|^2, values that are not finite)
template <class T>
__global__ void compare(const T* x, const float* y, std::size_t size, double* sums) {
  double difference = 0, norm = 0, bad = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const double d = static_cast<double>(static_cast<float>(x[i])) - y[i];
    if (!isfinite(d))
      bad += 1;
    else
      difference += d * d;
    norm += static_cast<double>(y[i]) * y[i];
  }
  atomicAdd(sums, difference);
  atomicAdd(sums + 1, norm);
  atomicAdd(sums + 2, bad);
}

// |x - y| / |y|, or infinity if anything is not finite.
template <class T>
double distance(const Buffer& x, const Buffer& y) {
  Buffer sums(3 * sizeof(double));
  check(cudaMemset(sums.get(), 0, sums.bytes()), "cudaMemset");
  compare<<<256, 256>>>(x.get<T>(), y.get<float>(), y.bytes() / sizeof(float), sums.get<double>());
  double host[3];
  check(cudaMemcpy(host, sums.get(), sizeof host, cudaMemcpyDefault), "a check");
  return host[2] > 0 ? INFINITY : std::sqrt(host[0] / host[1]);
}

ridge::gpu::Blas& blas() {
  static const auto library = ridge::gpu::make_blas();
  return *library;
}
void* workspace() {
  static const Buffer buffer(workspace_bytes);
  return buffer.get();
}
int multiprocessors() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "the device");
  return count;
}

struct Operands {
  Buffer a, b, c;
  Operands(const ProductShape& s, unsigned seed)
      : a(random_matrix(s.m * s.k, seed)),
        b(random_matrix(s.k * s.n, seed + 1)),
        c(static_cast<std::size_t>(s.m * s.n) * (s.out == DType::f32 ? 4 : 2)) {}
};

void run(const ProductShape& s, const Operands& o) {
  ridge::gpu::sm90::product(s, o.a.get(), o.b.get(), o.c.get(), {}, multiprocessors(), nullptr);
}

bool report(const std::string& what, double error, double limit) {
  const bool good = error < limit;
  if (!good) std::printf("%s: error %.2e, more than %.0e\n", what.c_str(), error, limit);
  return good;
}

bool check_product(ProductShape s) {
  const std::string name = to_string(s);
  ProductShape exact = s;
  exact.out = DType::f32;
  exact.alignment = 4;
  const Operands reference(exact, 1);
  blas().products(exact, 1)[0]->run(nullptr, reference.a.get(), reference.b.get(),
                                    reference.c.get(), workspace());
  Operands ours(s, 1);
  bool good = true;
  for (int round = 0; round < 2; ++round) {
    ours.c.poison();
    run(s, ours);
    check(cudaDeviceSynchronize(), name.c_str());
    const double error = s.out == DType::f32 ? distance<float>(ours.c, reference.c)
                                             : distance<Half>(ours.c, reference.c);
    good &= report(name, error, s.out == DType::f32 ? 1e-5 : 3e-3);
  }
  return good;
}

// The feed-forward's operands; the weights have about the size that makes gates of about 1.
struct Gate {
  GateProduct shape;
  Buffer x, weight, packed, y, g, down, dpacked;
  Gate(const GateProduct& s, unsigned seed)
      : shape(s),
        x(random_matrix(s.m * s.k, seed)),
        weight(random_matrix(2 * s.intermediate * s.k, seed + 1,
                             4 / std::sqrt(static_cast<float>(s.k)))),
        packed(random_matrix(2 * s.m * s.intermediate, seed + 2, 4)),
        y(static_cast<std::size_t>(s.m * s.intermediate) * 2),
        g(random_matrix(s.m * s.k, seed + 3)),
        down(random_matrix(s.intermediate * s.k, seed + 4)),
        dpacked(packed.bytes()) {}
};

__global__ void gate_reference(const float* packed, std::int64_t rows, std::int64_t columns,
                               float* y) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const double gate = packed[i / columns * 2 * columns + i % columns];
    y[i] = static_cast<float>(gate / (1 + exp(-gate)) *
                              packed[i / columns * 2 * columns + columns + i % columns]);
  }
}

__global__ void gate_grad_reference(const float* dy, const Half* packed, std::int64_t rows,
                                    std::int64_t columns, float* dpacked, float* y) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t at = i / columns * 2 * columns + i % columns;
    const double gate = static_cast<float>(packed[at]);
    const double up = static_cast<float>(packed[at + columns]), s = 1 / (1 + exp(-gate));
    dpacked[at] = static_cast<float>(dy[i] * up * s * (1 + gate * (1 - s)));
    dpacked[at + columns] = static_cast<float>(dy[i] * gate * s);
    y[i] = static_cast<float>(gate * s * up);
  }
}

bool check_gate(const GateProduct& s) {
  Gate gate(s, 7);
  const auto floats = [](std::int64_t n) { return Buffer(static_cast<std::size_t>(n) * 4); };
  const Buffer packed = floats(2 * s.m * s.intermediate), y = floats(s.m * s.intermediate),
               dy = floats(s.m * s.intermediate), dpacked = floats(2 * s.m * s.intermediate);
  const ProductShape up{
      .m = s.m, .n = 2 * s.intermediate, .k = s.k, .trans_b = true, .in = DType::bf16};
  const ProductShape down{.m = s.m, .n = s.intermediate, .k = s.k, .in = DType::bf16};
  const std::string name = "gate of " + to_string(up);
  bool good = true;
  for (const GradBuffers buffers : grad_buffers)
    for (const auto& [result, in_place] : {std::pair{true, false}, {false, false}, {false, true}}) {
      blas().products(up, 1)[0]->run(nullptr, gate.x.get(), gate.weight.get(), packed.get(),
                                     workspace());
      gate_reference<<<1024, 256>>>(packed.get<float>(), s.m, s.intermediate, y.get<float>());
      gate.packed.poison();
      gate.y.poison();
      ridge::gpu::sm90::swiglu_product(s, gate.x.get(), gate.weight.get(), gate.packed.get(),
                                       gate.y.get(), multiprocessors(), nullptr);
      check(cudaDeviceSynchronize(), name.c_str());
      good &= report(name + ", packed", distance<Half>(gate.packed, packed), 3e-3);
      good &= report(name + ", y", distance<Half>(gate.y, y), 6e-3);
      blas().products(down, 1)[0]->run(nullptr, gate.g.get(), gate.down.get(), dy.get(),
                                       workspace());
      gate_grad_reference<<<1024, 256>>>(dy.get<float>(), gate.packed.get<Half>(), s.m,
                                         s.intermediate, dpacked.get<float>(), y.get<float>());
      gate.dpacked.poison();
      gate.y.poison();
      const Buffer& to = in_place ? gate.packed : gate.dpacked;
      ridge::gpu::sm90::swiglu_grad_product(
          buffers, s, gate.g.get(), gate.down.get(), gate.packed.get(), to.get(),
          result ? gate.y.get() : nullptr, multiprocessors(), nullptr);
      check(cudaDeviceSynchronize(), name.c_str());
      good &= report(name + ", dpacked", distance<Half>(to, dpacked), 3e-3);
      if (result) good &= report(name + ", y again", distance<Half>(gate.y, y), 3e-3);
    }
  return good;
}

// Occupies the GPU while the host enqueues what comes after.
__global__ void delay(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

// Median microseconds of each of several works, taken in turns. A work is given the number of the
// operands to take.
using Work = std::function<void(int)>;
std::vector<double> microseconds(const std::vector<Work>& works, int rounds, int copies) {
  constexpr int launches = 6;
  cudaEvent_t begin{}, end{};
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<std::vector<double>> times(works.size());
  for (int round = -1; round < rounds; ++round)
    for (std::size_t w = 0; w < works.size(); ++w) {
      delay<<<1, 1>>>(100'000);
      check(cudaEventRecord(begin), "event");
      for (int i = 0; i < launches; ++i) works[w](i % copies);
      check(cudaEventRecord(end), "event");
      check(cudaEventSynchronize(end), "event");
      float time = 0;
      check(cudaEventElapsedTime(&time, begin, end), "event");
      if (round >= 0) times[w].push_back(time * 1000 / launches);
    }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::vector<double> medians;
  for (std::vector<double>& t : times) {
    std::nth_element(t.begin(), t.begin() + t.size() / 2, t.end());
    medians.push_back(t[t.size() / 2]);
  }
  return medians;
}

constexpr int copies = 3;

// The library's fastest plan.
ProductPtr best_of_library(const ProductShape& s, const std::vector<Operands>& operands) {
  std::vector<ProductPtr> plans = blas().products(s, 8);
  std::vector<Work> works;
  for (const ProductPtr& plan : plans)
    works.emplace_back([&, p = plan.get()](int i) {
      const Operands& o = operands[static_cast<std::size_t>(i)];
      p->run(nullptr, o.a.get(), o.b.get(), o.c.get(), workspace());
    });
  const std::vector<double> times = microseconds(works, 5, copies);
  return std::move(plans[static_cast<std::size_t>(std::min_element(times.begin(), times.end()) -
                                                  times.begin())]);
}

void time_product(const char* name, const ProductShape& s) {
  std::vector<Operands> operands;
  for (unsigned i = 0; i < copies; ++i) operands.emplace_back(s, 10 * i);
  const ProductPtr best = best_of_library(s, operands);
  const auto at = [&](int i) -> const Operands& { return operands[static_cast<std::size_t>(i)]; };
  const std::vector<double> times = microseconds(
      {[&](int i) { best->run(nullptr, at(i).a.get(), at(i).b.get(), at(i).c.get(), workspace()); },
       [&](int i) { run(s, at(i)); }},
      9, copies);
  const double flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  std::printf("%-8s %5ld %5ld %5ld", name, s.m, s.n, s.k);
  for (const double t : times) std::printf(" %8.1f %4.0f", t, flops / t * 1e-6);
  std::printf(" %8.3f\n", times[1] / times[0]);
  std::fflush(stdout);
}

void time_gate(const GateProduct& s) {
  std::vector<Gate> gates;
  for (unsigned i = 0; i < copies; ++i) gates.emplace_back(s, 10 * i);
  const auto at = [&](int i) -> const Gate& { return gates[static_cast<std::size_t>(i)]; };
  const auto forward = [&](int i) {
    const Gate& g = at(i);
    ridge::gpu::sm90::swiglu_product(s, g.x.get(), g.weight.get(), g.packed.get(), g.y.get(),
                                     multiprocessors(), nullptr);
  };
  const auto backward = [&](GradBuffers buffers, bool result) {
    return [&, buffers, result](int i) {
      const Gate& g = at(i);
      ridge::gpu::sm90::swiglu_grad_product(buffers, s, g.g.get(), g.down.get(), g.packed.get(),
                                            g.dpacked.get(), result ? g.y.get() : nullptr,
                                            multiprocessors(), nullptr);
    };
  };
  const std::vector<double> times = microseconds(
      {forward, backward(GradBuffers::more_ahead, false), backward(GradBuffers::more_stages, false),
       backward(GradBuffers::more_ahead, true), backward(GradBuffers::more_stages, true)},
      9, copies);
  std::printf("linear_swiglu %.1f us; linear_swiglu_grad %.1f or %.1f, with result %.1f or %.1f\n",
              times[0], times[1], times[2], times[3], times[4]);
  std::fflush(stdout);
}

ProductShape bf16(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b,
                  DType out = DType::bf16) {
  return {.m = m,
          .n = n,
          .k = k,
          .trans_a = trans_a,
          .trans_b = trans_b,
          .in = DType::bf16,
          .out = out};
}

void time_block(std::int64_t rows, std::int64_t hidden, std::int64_t inner, std::int64_t qkv) {
  std::printf("%-26s %13s %13s %8s\n", "us, TFLOP/s", "library", "own", "part");
  time_product("qkv", bf16(rows, qkv, hidden, false, true));
  time_product("o", bf16(rows, hidden, hidden, false, true));
  time_product("gateup", bf16(rows, 2 * inner, hidden, false, true));
  time_product("down", bf16(rows, hidden, inner, false, true));
  time_product("dqkv", bf16(rows, hidden, qkv, false, false));
  time_product("do", bf16(rows, hidden, hidden, false, false));
  time_product("dgateup", bf16(rows, hidden, 2 * inner, false, false));
  time_product("ddown", bf16(rows, inner, hidden, false, false));
  time_product("wqkv", bf16(qkv, hidden, rows, true, false, DType::f32));
  time_product("wo", bf16(hidden, hidden, rows, true, false, DType::f32));
  time_product("wgateup", bf16(2 * inner, hidden, rows, true, false, DType::f32));
  time_product("wdown", bf16(hidden, inner, rows, true, false, DType::f32));
  time_gate({rows, inner, hidden});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  bool good = true;
  if (only != "time") {
    for (const auto& [trans_a, trans_b] :
         {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
      for (const DType out : {DType::bf16, DType::f32})
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{8, 8, 8},
                                      {128, 128, 64},
                                      {256, 512, 128},
                                      {1000, 1000, 520},
                                      {136, 2056, 1032},
                                      {4104, 3000, 200},
                                      {2048, 1024, 4096}})
          good &= check_product(bf16(m, n, k, trans_a, trans_b, out));
    for (const GateProduct& s :
         {GateProduct{128, 128, 64}, {200, 256, 136}, {1000, 320, 1000}, {4104, 2048, 512}})
      good &= check_gate(s);
    std::printf("checks %s\n", good ? "passed" : "FAILED");
  }
  if (only == "check") return good ? 0 : 1;
  time_block(8192, 1024, 4096, 2048);
  time_block(8192, 2048, 8192, 4096);
  return good ? 0 : 1;
}
