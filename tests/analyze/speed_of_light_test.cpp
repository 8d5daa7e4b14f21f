#include "ridge/analyze/speed_of_light.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/silu.h"
#include "tests/base/message_of.h"
#include "tests/device/processor_limits.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double product_flops = 2.0 * 256 * 256 * 256, product_bytes = 3 * 4.0 * 256 * 256,
                 silu_bytes = 2 * 4.0 * 256 * 256;

// A product, whose operands memory alone holds, and a SiLU, which the cache does, in two steps: 1
// ms and 100 us of each.
struct HandMade {
  Graph graph;
  Recording recording;
  Roof roof;

  explicit HandMade(DeviceKind kind = DeviceKind::cpu) {
    const Value a =
        graph.input("a", {kind == DeviceKind::gpu ? DType::bf16 : DType::f32, {256, 256}});
    graph.keep(silu(matmul(a, a)), "y");
    recording.graph = &graph;
    recording.device_kind = kind;
    recording.processor = testing::sm90_limits;
    std::int64_t now = 0;
    for (std::int32_t step = 1; step <= 2; ++step) {
      const std::int64_t begin = now;
      for (const auto& [node, ns] : {std::pair{0, 1'000'000}, std::pair{1, 100'000}}) {
        recording.nodes.push_back({static_cast<NodeId>(node), step, now, now + ns});
        now += ns;
      }
      recording.phases.push_back({Phase::forward, step, begin, now});
      recording.steps.push_back({step, begin, now, 0.0});
    }
    roof = {.device = kind == DeviceKind::gpu ? "cuda" : "cpu",
            .kind = kind,
            .hardware = "made",
            .threads = 1,
            .peaks = {{ProductKind::f32, 100e9}, {ProductKind::bf16, 200e9}},
            .levels = {{"L2", 600'000, 100e9}, {"memory", 0, 10e9}},
            .launch_seconds = 1e-6};
    if (kind == DeviceKind::gpu) roof.levels[0].capacity = 300'000;
  }

  SpeedOfLight light(const CountedNodes& counted = {}, std::string_view vendor = "GenuineIntel",
                     const std::string& fault = "") const {
    return speed_of_light(recording, analyze_bottlenecks(recording, roof), counted, vendor, fault);
  }
};

TEST(SpeedOfLight, FollowsFromCostsWhereNothingIsCounted) {
  const SpeedOfLight light = HandMade().light();
  EXPECT_THAT(light.units, ElementsAre("FMA", "L2", "memory"));
  EXPECT_FALSE(light.counts());
  ASSERT_EQ(light.operators.size(), 2U);
  const LightRow &product = light.operators[0], &activation = light.operators[1];
  EXPECT_EQ(product.name, "matmul");
  EXPECT_DOUBLE_EQ(product.seconds, 1e-3);
  EXPECT_DOUBLE_EQ(product.flops, product_flops);
  EXPECT_NEAR(product.units.at("FMA").part, product_flops / 100e9 / 1e-3, 1e-12);
  EXPECT_NEAR(product.units.at("memory").part, product_bytes / 10e9 / 1e-3, 1e-12);
  // What comes from memory passes through the cache.
  EXPECT_DOUBLE_EQ(product.levels.at("L2").bytes, product_bytes);
  EXPECT_DOUBLE_EQ(product.levels.at("memory").bytes, product_bytes);
  EXPECT_EQ(product.limit, "latency") << "a third of the peak";
  EXPECT_DOUBLE_EQ(activation.levels.at("L2").bytes, silu_bytes);
  EXPECT_EQ(activation.levels.count("memory"), 1U);
  EXPECT_DOUBLE_EQ(activation.levels.at("memory").bytes, 0);
  EXPECT_DOUBLE_EQ(light.all.levels.at("L2").bytes, product_bytes + silu_bytes);
  EXPECT_DOUBLE_EQ(light.all.seconds, 1.1e-3);
}

// Counts of a run of a node, by a processor whose makers count other things under one name.
TEST(SpeedOfLight, TakesWhatACpuCounted) {
  const CountedNodes counted{.metrics = {{"cache misses", "", "cache misses"},
                                         {"flops", "", "flops"},
                                         {"cycles", "", "cycles"}},
                             .nodes = {{.id = 0, .values = {140'000, 70e6, 3e6}}}};
  const SpeedOfLight intel = HandMade().light(counted, "GenuineIntel");
  const LightRow& product = intel.operators[0];
  EXPECT_TRUE(product.units.at("memory").counted);
  EXPECT_DOUBLE_EQ(product.levels.at("memory").bytes, 64 * 140'000);
  EXPECT_NEAR(product.units.at("memory").part, 0.896, 1e-9);
  EXPECT_NEAR(product.units.at("FMA").part, 0.7, 1e-9);
  EXPECT_EQ(product.limit, "memory");
  EXPECT_FALSE(product.units.at("L2").counted);
  EXPECT_FALSE(intel.operators[1].units.at("memory").counted) << "no run of it was counted";
  const SpeedOfLight amd = HandMade().light(counted, "AuthenticAMD");
  EXPECT_FALSE(amd.operators[0].units.at("memory").counted) << "they are the second cache's misses";
  EXPECT_DOUBLE_EQ(amd.operators[0].levels.at("L3").bytes, 64 * 140'000);
}

Activity kernel_of(NodeId node, std::uint32_t name, std::int64_t begin, std::int64_t end) {
  return {.kind = Activity::Kind::kernel,
          .name = name,
          .node = node,
          .begin_ns = begin,
          .end_ns = end,
          .grid = {1000, 1, 1},
          .block = {256, 1, 1},
          .registers = 168};
}

// Made numbers: on a card this has never run.
TEST(SpeedOfLight, TakesWhatACardCountedForOperatorsAndFamiliesOfKernels) {
  HandMade h(DeviceKind::gpu);
  h.recording.activity_names = {"void gemm<float>(int)", "void split_k<3>(int)", "silu_rows"};
  for (std::int64_t begin : {0, 1'100'000}) {
    h.recording.activities.push_back(kernel_of(0, 0, begin, begin + 750'000));
    h.recording.activities.push_back(kernel_of(0, 1, begin + 750'000, begin + 1'000'000));
    h.recording.activities.push_back(kernel_of(1, 2, begin + 1'000'000, begin + 1'100'000));
  }
  const std::string active = ".avg.pct_of_peak_sustained_active";
  const CountedNodes counted{
      .metrics = {{"DRAM read", "B", "dram__bytes_read.sum"},
                  {"DRAM written", "B", "dram__bytes_write.sum"},
                  {"tensor cores", "%", "sm__pipe_tensor_cycles_active" + active},
                  {"ALU", "%", "sm__inst_executed_pipe_alu" + active},
                  {"occupancy", "%", "sm__warps_active" + active},
                  {"L1", "%", "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"},
                  {"L1 bytes", "B", "l1tex__t_bytes.sum"},
                  {"hits", "%", "lts__t_sector_hit_rate.pct"}},
      .nodes = {{.id = 0, .values = {3e6, 1e6, 66, 20, 12, 40, 9e6, 55}},
                {.id = 1, .values = {5e5, 1e5, 0, 10, 50, 80, 1e6, 55}}}};
  const SpeedOfLight light = h.light(counted);
  EXPECT_THAT(light.units, ElementsAre("tensor", "FMA", "ALU", "L1", "L2", "memory"));
  const LightRow& product = light.operators.at(0);
  EXPECT_NEAR(product.units.at("tensor").part, 0.66, 1e-9);
  EXPECT_EQ(product.limit, "tensor");
  EXPECT_DOUBLE_EQ(product.levels.at("memory").bytes, 4e6);
  EXPECT_NEAR(product.units.at("memory").part, 0.4, 1e-9);
  EXPECT_DOUBLE_EQ(product.levels.at("L1").bytes, 9e6);
  EXPECT_NEAR(product.occupancy, 0.12, 1e-9);
  EXPECT_EQ(light.operators.at(1).limit, "L1");
  EXPECT_NEAR(light.all.units.at("ALU").part, (20 * 1 + 10 * 0.1) / 1.1 / 100, 1e-9);
  // A family has its share of its node, by time.
  ASSERT_EQ(light.kernels.size(), 3U);
  EXPECT_EQ(light.kernels[0].name, "gemm");
  EXPECT_DOUBLE_EQ(light.kernels[0].seconds, 0.75e-3);
  EXPECT_DOUBLE_EQ(light.kernels[1].levels.at("memory").bytes, 1e6);
  EXPECT_EQ(light.kernels[1].name, "split_k");
  ASSERT_EQ(light.fits.size(), 3U);
  EXPECT_EQ(light.fits[0].occupancy.limit, OccupancyLimit::registers);
  const std::string text = speed_of_light_text(light);
  for (const char* part :
       {"Operator | ", "Kernels", "66.0 %*", "* counted in hardware",
        "Why no more fit:", "168 registers a thread are 5,376 a warp", "|   registers    |"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(SpeedOfLight, DrawsLevelsOfMemory) {
  const SpeedOfLight light = HandMade().light({}, "", "no hardware counters: made");
  EXPECT_EQ(memory_levels_text(light, light.operators[0]),
            "+----------------+\n|   registers    |\n+----------------+\n"
            "        ||  768.00 KiB a step, 786.4 MB/s: 0.8 % of 100 GB/s\n"
            "+----------------+\n| L2 585.94 KiB  |\n+----------------+\n"
            "        ||  768.00 KiB a step, 786.4 MB/s: 7.9 % of 10 GB/s\n"
            "+----------------+\n|     memory     |\n+----------------+\n");
  EXPECT_THAT(speed_of_light_text(light, 1),
              AllOf(HasSubstr("Nothing is counted"), HasSubstr("no hardware counters: made"),
                    HasSubstr("1 more"), Not(HasSubstr("Why no more fit"))));
}

TEST(SpeedOfLight, ComesBackFromItsFile) {
  HandMade h(DeviceKind::gpu);
  h.recording.activity_names = {"gemm"};
  h.recording.activities = {kernel_of(0, 0, 0, 1'000'000), kernel_of(0, 0, 1'100'000, 2'100'000)};
  const SpeedOfLight light = h.light();
  const std::string json = speed_of_light_json(light);
  const SpeedOfLight again = speed_of_light_from_json(json, "x.json");
  EXPECT_EQ(speed_of_light_json(again), json);
  EXPECT_EQ(speed_of_light_text(again), speed_of_light_text(light));
  EXPECT_THAT(message_of<FormatError>([] { speed_of_light_from_json("{}", "x.json"); }),
              HasSubstr("x.json is not the speed_of_light.json that a profile has"));
  EXPECT_THAT(message_of<FormatError>([] { speed_of_light_from_json("[", "x.json"); }),
              HasSubstr("x.json is not"));
}

TEST(SpeedOfLight, PutsTwoRunsSideBySide) {
  HandMade faster;
  faster.recording.nodes[0].end_ns -= 500'000;
  faster.recording.nodes[2].end_ns -= 500'000;
  const SpeedOfLight before = HandMade().light(), after = faster.light();
  const std::string text = compared_light_text(before, after);
  EXPECT_THAT(text, AllOf(HasSubstr("1.00 ms > 500.0 µs"), HasSubstr("33.6 % > 67.1 %"),
                          HasSubstr("latency > FMA"), Not(HasSubstr("The machines differ"))));
  const auto json = nlohmann::json::parse(compared_light_json(before, after));
  EXPECT_EQ(json["operators"][0]["name"], "matmul");
  EXPECT_EQ(json["operators"][0]["after"]["limit"], "FMA");
  SpeedOfLight alone = after;
  alone.operators.pop_back();
  alone.roof.threads = 2;
  EXPECT_THAT(compared_light_text(before, alone), HasSubstr("The machines differ"));
  EXPECT_TRUE(
      nlohmann::json::parse(compared_light_json(before, alone))["operators"][1]["after"].is_null());
}

TEST(SpeedOfLight, HasAPointForEachLevel) {
  const auto points = points_by_level(HandMade().light(), 5);
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[0].name, "matmul, L2");
  EXPECT_EQ(points[1].name, "matmul, memory");
  EXPECT_NEAR(points[1].intensity(), product_flops / product_bytes, 1e-9);
}

}  // namespace
}  // namespace ridge
