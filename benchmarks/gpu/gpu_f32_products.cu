// Products of f32 on a GPU of sm90: by the vector units, which the vendor's library uses, and by
// tensor cores from operands split into bf16 (ridge/gpu/kernels/product/split_bf16.h). How far both
// are from sums in double precision, and how fast they are, the making of the split included.
//   gpu_f32_products [errors | time]

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "benchmarks/gpu/device_memory.h"
#include "benchmarks/gpu/random_bits.h"
#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/vendor/blas.h"

namespace {

using ridge::gpu::Context;
using ridge::gpu::Product;
using ridge::gpu::ProductPtr;
using ridge::gpu::ProductShape;

// What the numbers of [rows, inner] are: normal; uniform in (0, 1); normal, each row, or each place
// of the inner dimension, times a power of two of up to 20, or 10, either way.
enum class Kind { normal, positive, scaled_rows, scaled_terms };

__device__ float uniform(std::uint64_t place, unsigned seed) {
  return (static_cast<float>(random_bits(place, seed) >> 40) + 0.5f) * 0x1p-24f;
}
__device__ float power_of_two(std::uint64_t place, unsigned seed, int most) {
  return exp2f(floorf(uniform(place, seed) * static_cast<float>(2 * most + 1)) -
               static_cast<float>(most));
}

__global__ void fill(float* x, std::int64_t size, std::int64_t inner, Kind kind, unsigned seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const auto place = static_cast<std::uint64_t>(i);
  const float u = uniform(2 * place, seed), v = uniform(2 * place + 1, seed);
  float value = kind == Kind::positive ? u : sqrtf(-2 * logf(u)) * cospif(2 * v);
  if (kind == Kind::scaled_rows) value *= power_of_two(place / inner, seed + 100, 20);
  if (kind == Kind::scaled_terms) value *= power_of_two(place % inner, seed + 200, 10);
  x[i] = value;
}

Buffer<float> matrix(std::int64_t rows, std::int64_t inner, Kind kind, unsigned seed) {
  Buffer<float> x(rows * inner);
  fill<<<static_cast<unsigned>((rows * inner + 255) / 256), 256>>>(x.get(), rows * inner, inner,
                                                                   kind, seed);
  return x;
}

// c = a b^T of the first rows of a, and the same of magnitudes.
__global__ void reference(const float* a, const float* b, std::int64_t n, std::int64_t k, double* c,
                          double* magnitude) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t i = blockIdx.y;
  if (j >= n) return;
  double sum = 0, size = 0;
  for (std::int64_t term = 0; term < k; ++term) {
    const double product = static_cast<double>(a[i * k + term]) * b[j * k + term];
    sum += product;
    size += fabs(product);
  }
  c[i * n + j] = sum;
  magnitude[i * n + j] = size;
}

Context context() {
  Context gpu{.card = {.compute_capability = 90}};
  check(cudaDeviceGetAttribute(&gpu.card.multiprocessors, cudaDevAttrMultiProcessorCount, 0),
        "the device");
  gpu.blas = ridge::gpu::make_blas();
  return gpu;
}

struct Errors {
  double worst = 0, rms = 0, bias = 0;
};

// In units of 2^-24 of the sum of the terms' magnitudes.
Errors errors_of(const Buffer<float>& c, const std::vector<double>& expected,
                 const std::vector<double>& magnitude) {
  const std::vector<float> actual = c.host();
  Errors errors;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = (actual[i] - expected[i]) / magnitude[i] * 0x1p24;
    errors.worst = std::max(errors.worst, std::isfinite(error) ? std::abs(error) : INFINITY);
    errors.rms += error * error;
    errors.bias += expected[i] < 0 ? -error : error;
  }
  const auto count = static_cast<double>(expected.size());
  return {errors.worst, std::sqrt(errors.rms / count), errors.bias / count};
}

void print_errors(const Context& gpu) {
  constexpr std::int64_t m = 8192, n = 1024, checked = 64;
  std::printf(
      "Errors in 2^-24 of the sum of the terms' magnitudes: worst, root of the mean square, "
      "mean\n%-14s %6s   %-24s   %s\n",
      "numbers", "terms", "from split bf16", "vector units");
  constexpr std::array<const char*, 4> names{"normal", "positive", "rows scaled", "terms scaled"};
  for (const Kind kind : {Kind::normal, Kind::positive, Kind::scaled_rows, Kind::scaled_terms})
    for (const std::int64_t k : {64, 256, 1024, 4096, 16384}) {
      const ProductShape shape{.m = m, .n = n, .k = k, .trans_b = true};
      const Buffer<float> a = matrix(m, k, kind, 1), b = matrix(n, k, kind, 2);
      const Buffer<double> sums(checked * n), magnitudes(checked * n);
      reference<<<dim3((n + 127) / 128, checked), 128>>>(a.get(), b.get(), n, k, sums.get(),
                                                         magnitudes.get());
      const std::vector<double> expected = sums.host(), magnitude = magnitudes.host();
      std::printf("%-14s %6ld", names[static_cast<std::size_t>(kind)], static_cast<long>(k));
      const ProductPtr products[] = {ridge::gpu::split_product_sm90(gpu, shape),
                                     std::move(gpu.blas->products(shape, 1).front())};
      for (const ProductPtr& product : products) {
        const Buffer<float> c(m * n);
        const Buffer<std::byte> workspace(product->workspace() + 1);
        product->run(nullptr, a.get(), b.get(), c.get(), workspace.get());
        const Errors e = errors_of(c, expected, magnitude);
        std::printf("   %7.2f %7.2f %8.2f", e.worst, e.rms, e.bias);
      }
      std::printf("\n");
    }
}

double median_microseconds(const auto& work) {
  constexpr int samples = 9;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "an event");
  check(cudaEventCreate(&end), "an event");
  std::vector<float> times;
  for (int i = -2; i < samples; ++i) {  // two to warm up
    check(cudaEventRecord(begin), "an event");
    work();
    check(cudaEventRecord(end), "an event");
    check(cudaEventSynchronize(end), "timing");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "timing");
    if (i >= 0) times.push_back(milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::ranges::nth_element(times, times.begin() + samples / 2);
  return times[samples / 2] * 1e3;
}

void time_product(const Context& gpu, const char* name, const ProductShape& s) {
  const Buffer<float> a = matrix(s.m, s.k, Kind::normal, 1), b = matrix(s.n, s.k, Kind::normal, 2);
  const Buffer<float> c(s.m * s.n);
  const auto time = [&](const Product& product) {
    const Buffer<std::byte> workspace(product.workspace() + 1);
    return median_microseconds(
        [&] { product.run(nullptr, a.get(), b.get(), c.get(), workspace.get()); });
  };
  const ProductPtr split = ridge::gpu::split_product_sm90(gpu, s);
  double library = INFINITY;
  for (const ProductPtr& plan : gpu.blas->products(s, 4)) library = std::min(library, time(*plan));
  const double ours = time(*split), flops = 2e-6 * static_cast<double>(s.m * s.n * s.k);
  std::printf("%-3s %5ld %5ld %5ld   %8.1f %6.1f   %8.1f %6.1f   %6.3f   %4zu\n", name,
              static_cast<long>(s.m), static_cast<long>(s.n), static_cast<long>(s.k), ours,
              flops / ours, library, flops / library, ours / library, split->workspace() >> 20);
  std::fflush(stdout);
}

// A dense layer's three products.
void time_layer(const Context& gpu, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  time_product(gpu, "y", {.m = tokens, .n = out, .k = in, .trans_b = true});
  time_product(gpu, "dx", {.m = tokens, .n = in, .k = out});
  time_product(gpu, "dW", {.m = out, .n = in, .k = tokens, .trans_a = true});
}

void print_times(const Context& gpu) {
  std::printf("%-3s %5s %5s %5s   %-15s   %-15s   %6s   %s\n", "", "m", "n", "k", "split, us TF/s",
              "library us TF/s", "ratio", "workspace, MiB");
  for (const auto& [out, in] : {std::array<std::int64_t, 2>{2048, 1024},
                                {1024, 1024},
                                {8192, 1024},
                                {1024, 4096},
                                {1000, 1024}})
    time_layer(gpu, 8192, out, in);
  for (const auto& [out, in] :
       {std::array<std::int64_t, 2>{1024, 512}, {512, 512}, {4096, 512}, {512, 2048}})
    time_layer(gpu, 1024, out, in);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const Context gpu = context();
  if (what != "time") print_errors(gpu);
  if (what != "errors") print_times(gpu);
}
