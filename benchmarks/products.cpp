// How fast a dense layer's three products run, by oneDNN, by our default plan, and by the best of
// all plans: y = x W^T ("nt"), dx = dy W ("nn") and dW = dy^T x ("tn"). The plans follow each other
// in turn, so that whatever else the machine does strikes all alike; printed is the best of all
// rounds (or of as many as a second holds) in GFLOP/s.
//
//   products [f32|bf16] [threads] [rounds]

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "benchmarks/exit_status.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/gemm.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

struct Layer {
  std::int64_t tokens, out, in;
};

constexpr Layer layers[] = {{1024, 256, 256},  {1024, 512, 256}, {1024, 256, 512},
                            {1024, 1000, 256}, {1024, 512, 512}, {1024, 2048, 512},
                            {1024, 512, 2048}, {4096, 512, 512}, {4096, 2048, 512},
                            {4096, 512, 2048}, {4096, 1024, 512}};

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

  void fill(DType dtype) const {
    dispatch_floating(dtype, [this]<class T>() {
      for (std::size_t i = 0; i < bytes_ / sizeof(T); ++i)
        store(static_cast<T*>(data_) + i, static_cast<float>(i % 7) - 3.0f);
    });
  }

 private:
  CpuDevice& device_;
  std::size_t bytes_;
  void* data_;
};

void measure(CpuDevice& device, const GemmShape& s, int rounds) {
  std::vector<GemmPlan> plans = gemm_plans(s);
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
    for (const Layer& layer : layers)
      for (const GemmShape& shape : products_of(layer, dtype)) measure(device, shape, rounds);
  });
}
