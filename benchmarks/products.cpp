// How fast a dense layer's three products run, by oneDNN, by our default plan, and by the best of
// all plans, those of split operands among them: y = x W^T ("nt"), dx = dy W ("nn") and dW = dy^T x
// ("tn"). The plans follow each other in turn, so that whatever else the machine does strikes all
// alike; printed is the best of all rounds (or of as many as a second holds) in GFLOP/s.
//
//   products [f32|bf16] [threads] [rounds] [layers] [seed]
//
// Layers are those of the table below or, where a number is given, so many drawn by chance: 1 to
// 16384 tokens, 32 to 8192 columns.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "benchmarks/exit_status.h"
#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/gemm.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/split_gemm.h"

namespace ridge {
namespace {

struct Layer {
  std::int64_t tokens, out, in;
};

constexpr Layer layers[] = {{1024, 256, 256},  {1024, 512, 256}, {1024, 256, 512},
                            {1024, 1000, 256}, {1024, 512, 512}, {1024, 2048, 512},
                            {1024, 512, 2048}, {4096, 512, 512}, {4096, 2048, 512},
                            {4096, 512, 2048}, {4096, 1024, 512}};

// Sizes whose logarithms are uniform, as far as a product takes some 0.1 s at most.
std::vector<Layer> drawn_layers(int count, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](double least, double most) {
    std::uniform_real_distribution<double> power(std::log2(least), std::log2(most));
    return static_cast<std::int64_t>(std::exp2(power(random)));
  };
  std::vector<Layer> drawn;
  while (std::ssize(drawn) < count) {
    const Layer layer{.tokens = draw(1, 16384), .out = draw(32, 8192), .in = draw(32, 8192)};
    if (layer.tokens * layer.out * layer.in < std::int64_t{10'000'000'000}) drawn.push_back(layer);
  }
  return drawn;
}

std::array<GemmShape, 3> products_of(const Layer& l, DType dtype) {
  GemmShape y{.m = l.tokens, .n = l.out, .k = l.in, .trans_b = true};
  GemmShape dx{.m = l.tokens, .n = l.in, .k = l.out};
  GemmShape dw{.m = l.out, .n = l.in, .k = l.tokens, .trans_a = true};
  for (GemmShape* s : {&y, &dx, &dw}) s->in = s->out = dtype;
  return {y, dx, dw};
}

class Memory {
 public:
  Memory(CpuDevice& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(device.allocate(bytes)) {}
  ~Memory() { device_.deallocate(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

  // With numbers of which each bit varies: of small integers the lower parts of a split are 0,
  // which takes less power and more clock.
  void fill(DType dtype) const {
    dispatch_floating(dtype, [this]<class T>() {
      std::vector<float> values(bytes_ / sizeof(T));
      fill_normal(values, 1.0f, 1, 0, 0);
      for (std::size_t i = 0; i < values.size(); ++i) store(static_cast<T*>(data_) + i, values[i]);
    });
  }

 private:
  CpuDevice& device_;
  std::size_t bytes_;
  void* data_;
};

// How many times oneDNN's rate the default plan and the best one have.
struct Worth {
  double by_default = 1, at_best = 1;
};

Worth measure(CpuDevice& device, const GemmShape& s, int rounds) {
  std::vector<GemmPlan> plans = gemm_plans(s);
  for (const GemmPlan& plan : split_gemm_plans(s)) plans.push_back(plan);
  std::vector<GemmPtr> gemms;
  std::size_t workspace_bytes = 1;
  for (const GemmPlan& plan : plans) {
    gemms.push_back(make_gemm(s, plan));
    workspace_bytes = std::max(workspace_bytes, gemms.back()->workspace());
  }
  const auto bytes = [](std::int64_t n, DType d) {
    return static_cast<std::size_t>(n) * size_of(d);
  };
  const Memory a(device, bytes(s.m * s.k, s.in)), b(device, bytes(s.k * s.n, s.in));
  const Memory c(device, bytes(s.m * s.n, s.out)), workspace(device, workspace_bytes);
  a.fill(s.in);
  b.fill(s.in);
  std::vector<double> best(plans.size(), std::numeric_limits<double>::infinity());
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    if (round > 2 && std::chrono::steady_clock::now() - start > std::chrono::seconds(1)) break;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      gemms[i]->run(device.pool(), a.data(), b.data(), c.data(), workspace.data());
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      best[i] = std::min(best[i], time.count());
    }
  }
  const auto rate = [&](std::size_t i) {
    return 2e-9 * static_cast<double>(s.m * s.n * s.k) / best[i];
  };
  const auto vendor =
      static_cast<std::size_t>(std::find(plans.begin(), plans.end(), GemmPlan{}) - plans.begin());
  const auto fastest =
      static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  fmt::print("{:26} {:>8.1f} {:>8.1f} {:16} {:>8.1f} {}\n", to_string(s),
             vendor < plans.size() ? rate(vendor) : 0.0, rate(0), to_string(plans[0]),
             rate(fastest), to_string(plans[fastest]));
  std::fflush(stdout);
  if (vendor == plans.size()) return {};
  return {.by_default = rate(0) / rate(vendor), .at_best = rate(fastest) / rate(vendor)};
}

// "default: faster in 12 of 33, 1.04 times as fast in the geometric mean, 0.80 to 1.60".
void print_summary(std::string_view name, const std::vector<Worth>& worths, double Worth::*which) {
  double sum = 0, least = std::numeric_limits<double>::infinity(), most = 0;
  int faster = 0;
  for (const Worth& worth : worths) {
    const double times = worth.*which;
    sum += std::log(times);
    least = std::min(least, times);
    most = std::max(most, times);
    if (times > 1.02) ++faster;
  }
  fmt::print(
      "{}: faster than oneDNN by 2 % in {} of {}, {:.3f} times as fast in the geometric mean, "
      "{:.2f} to {:.2f}\n",
      name, faster, worths.size(), std::exp(sum / static_cast<double>(worths.size())), least, most);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  using namespace ridge;
  return exit_status_of([&] {
    const DType dtype = argc > 1 && std::string_view(argv[1]) == "bf16" ? DType::bf16 : DType::f32;
    CpuDevice device(argc > 2 ? std::atoi(argv[2]) : available_processors());
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 30;
    fmt::print("{}, {} rounds, GFLOP/s\n{:26} {:>8} {:>8} {:16} {:>8}\n", device.description(),
               rounds, "", "oneDNN", "default", "", "best");
    std::vector<Layer> measured(std::begin(layers), std::end(layers));
    if (argc > 4)
      measured = drawn_layers(std::atoi(argv[4]),
                              argc > 5 ? static_cast<unsigned>(std::atoi(argv[5])) : 1);
    std::vector<Worth> worths;
    for (const Layer& layer : measured)
      for (const GemmShape& shape : products_of(layer, dtype))
        worths.push_back(measure(device, shape, rounds));
    print_summary("default", worths, &Worth::by_default);
    print_summary("best", worths, &Worth::at_best);
  });
}
