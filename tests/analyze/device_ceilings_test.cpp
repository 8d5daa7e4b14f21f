// That what a device does is what is measured of it: on one whose clock is exact, because it stands
// still between launches.

#include <gtest/gtest.h>

#include <array>
#include <variant>

#include "ridge/analyze/ceilings.h"
#include "ridge/ops/op.h"
#include "tests/dist/ranks.h"

namespace ridge {
namespace {

// Has a clock and no memory: addresses are never used.
class ExactDevice final : public Device {
 public:
  // FLOP/s of products.
  static constexpr double f32 = 50e12, tf32 = 300e12, bf16 = 600e12, split = 100e12;
  static constexpr double launch = 3e-6, captured = 0.75e-6;

  ExactDevice()
      : Device({.name = "cuda",
                .hardware = "an exact card",
                .description = "an exact card, new",
                .total_memory = std::size_t{64} << 30,
                .cache_bytes = std::size_t{40} << 20,
                .target = {.kind = DeviceKind::gpu}}) {}

  std::size_t available_memory() const override { return std::size_t{64} << 30; }
  DeviceTools& tools() override { return tools_; }

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    EXPECT_TRUE(std::holds_alternative<MatMul>(op.variant()));
    // One of the layouts is faster than the others.
    const double slowness = std::get<MatMul>(op.variant()).trans_a ? 1 : 2;
    const double of_f32 = choice.tf32 ? tf32 : choice.split_bf16 ? split : f32;
    const double rate = size_of(in[0].dtype) == 2 ? bf16 : of_f32;
    const auto flops = static_cast<double>(cost(op, in, out).flops);
    return {lasting(slowness * flops / rate), 100};
  }
  KernelPtr capture(std::span<const DeviceWork> works) override {
    return lasting(20e-6 + captured * static_cast<double>(works.size()));
  }

  void mark(std::size_t slot) override { marks_.at(slot) = now_; }
  double seconds_between(std::size_t from, std::size_t to) const override {
    return marks_.at(to) - marks_.at(from);
  }
  void wait(std::size_t) override {}
  void synchronize() override {}
  void* allocate(std::size_t) override {
    ++held;
    return this;
  }
  void deallocate(void*, std::size_t) override { --held; }
  void upload(void*, const void*, std::size_t) override {}
  void download(void*, const void*, std::size_t) override {}
  void download_later(void*, const void*, std::size_t) override {}
  void clear(void*, std::size_t) override {}
  void* allocate_host(std::size_t) override { return nullptr; }
  void deallocate_host(void*) override {}

  int held = 0;

 private:
  KernelPtr lasting(double seconds) {
    return make_kernel([this, seconds](const Launch&) { now_ += seconds; });
  }

  class Tools final : public DeviceTools {
   public:
    explicit Tools(ExactDevice& device) : device_(device) {}
    ProbeKernel probe(Probe what, std::size_t bytes) override {
      const double in_cache = bytes <= device_.info().cache_bytes / 2 ? 2 : 1;
      switch (what) {
        case Probe::nothing:
          return {device_.lasting(launch), 1};
        case Probe::multiply_add:
          return {device_.lasting(1e9 / 60e12), 1e9};
        case Probe::read:
          return {device_.lasting(1e8 / (3e12 * in_cache)), 1e8};
        case Probe::write:
          return {device_.lasting(1e8 / (2e12 * in_cache)), 1e8};
        case Probe::copy:
          return {device_.lasting(1e8 / (2.5e12 * in_cache)), 1e8};
      }
      return {};
    }

   private:
    ExactDevice& device_;
  };

  double now_ = 0;
  std::array<double, 2> marks_{};
  Tools tools_{*this};
};

TEST(DeviceCeilings, AreWhatTheDeviceDoes) {
  ExactDevice device;
  const Ceilings ceilings = measure_device_ceilings(device, std::chrono::milliseconds(1));
  EXPECT_EQ(device.held, 0);
  EXPECT_EQ(ceilings.device, "cuda");
  EXPECT_EQ(ceilings.kind, DeviceKind::gpu);
  EXPECT_EQ(ceilings.hardware, "an exact card");
  const Roof roof = roof_of(ceilings, 1);
  EXPECT_NEAR(roof.flops(ProductKind::f32), 60e12, 1e6)
      << "of multiply-adds, which are faster than products";
  EXPECT_NEAR(roof.flops(ProductKind::bf16x6), ExactDevice::split, 1e6);
  EXPECT_NEAR(roof.flops(ProductKind::tf32), ExactDevice::tf32, 1e6);
  EXPECT_NEAR(roof.flops(ProductKind::bf16), ExactDevice::bf16, 1e6);
  EXPECT_NEAR(roof.flops(ProductKind::f16), ExactDevice::bf16, 1e6);
  ASSERT_EQ(ceilings.bandwidth.size(), 2u);
  EXPECT_EQ(ceilings.bandwidth[0].bytes, std::size_t{40} << 20);
  for (const auto& [level, times] : {std::pair{0u, 2.0}, std::pair{1u, 1.0}}) {
    const BandwidthCeiling& ceiling = ceilings.bandwidth[level];
    EXPECT_NEAR(ceiling.all_cores, 3e12 * times, 1e6);
    ASSERT_EQ(ceiling.accesses.size(), 3u);
    EXPECT_EQ(ceiling.accesses[1].name, "write");
    EXPECT_NEAR(ceiling.accesses[1].bytes_per_second, 2e12 * times, 1e6);
    EXPECT_NEAR(ceiling.accesses[2].bytes_per_second, 2.5e12 * times, 1e6);
  }
  EXPECT_NEAR(ceilings.launch_seconds, ExactDevice::launch, 1e-12);
  EXPECT_NEAR(ceilings.captured_seconds, ExactDevice::captured, 1e-12);
}

// A sum over ranks that stopped at different times would never end.
TEST(LinkCeiling, IsMeasuredByAllRanksAtOnce) {
  for (const int ranks : {2, 3}) {
    std::vector<LinkCeiling> links(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](Device& device) {
      links[static_cast<std::size_t>(device.rank())] =
          measure_link(device, std::chrono::milliseconds(1 + 20 * device.rank()));
    });
    for (const LinkCeiling& link : links) {
      EXPECT_EQ(link.ranks, ranks);
      EXPECT_GT(link.bytes_per_second, 1e6);
      EXPECT_LT(link.bytes_per_second, 1e12);
      EXPECT_GT(link.message_seconds, 1e-7);
      EXPECT_LT(link.message_seconds, 1);
    }
  }
}

}  // namespace
}  // namespace ridge
