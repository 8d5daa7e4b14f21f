#include "ridge/analyze/ceilings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "tests/base/temporary_cache.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Ceilings machine() {
  return {.measured_at = "2026-01-31T12:00:00Z",
          .host = "host",
          .hardware = "A \"processor\"",
          .threads = 8,
          .compute = {{"scalar", ProductKind::f32, 5e9, 40e9},
                      {"wide", ProductKind::f32, 100e9, 700e9},
                      {"dots", ProductKind::bf16, 200e9, 1500e9}},
          .bandwidth = {{"L1", 32 << 10, 1, 250e9, 2000e9},
                        {"L2", 1 << 20, 2, 100e9, 700e9},
                        {"L3", 16 << 20, 8, 50e9, 300e9},
                        {"memory", 0, 1, 20e9, 60e9}},
          .links = {{.ranks = 2, .bytes_per_second = 3e9, .message_seconds = 40e-6},
                    {.ranks = 4, .bytes_per_second = 2e9, .message_seconds = 90e-6}}};
}

TEST(Roof, OfOneThreadAndOfAllIsWhatWasMeasured) {
  const Roof one = roof_of(machine(), 1), all = roof_of(machine(), 8);
  EXPECT_EQ(one.flops(ProductKind::f32), 100e9);
  EXPECT_EQ(one.flops(ProductKind::bf16), 200e9);
  EXPECT_EQ(one.levels[2], (Roof::Level{"L3", 16 << 20, 50e9}));
  EXPECT_EQ(all.flops(ProductKind::f32), 700e9);
  EXPECT_EQ(all.flops(ProductKind::bf16), 1500e9);
  EXPECT_EQ(all.levels[0], (Roof::Level{"L1", 8 * (32 << 10), 2000e9}));
  EXPECT_EQ(all.levels[1], (Roof::Level{"L2", 4 * (1 << 20), 700e9}));
  EXPECT_EQ(all.levels[3], (Roof::Level{"memory", 0, 60e9}));
  EXPECT_EQ(roof_of(machine(), 16).flops(ProductKind::f32), 700e9);
}

TEST(Roof, OfSomeThreadsIsTheirsAndNeverMoreThanAll) {
  const Roof roof = roof_of(machine(), 4);
  EXPECT_EQ(roof.flops(ProductKind::f32), 400e9);
  EXPECT_EQ(roof.levels[2].bytes_per_second, 200e9);
  EXPECT_EQ(roof.memory().bytes_per_second, 60e9);
  EXPECT_EQ(roof.levels[1].capacity, 2u << 20);
}

TEST(Roof, ALevelHoldsWorkingSetsUpToItsCapacity) {
  const Roof roof = roof_of(machine(), 1);
  EXPECT_EQ(roof.level_of(0).name, "L1");
  EXPECT_EQ(roof.level_of(32 << 10).name, "L1");
  EXPECT_EQ(roof.level_of((32 << 10) + 1).name, "L2");
  EXPECT_EQ(roof.level_of(17 << 20).name, "memory");
  EXPECT_EQ(roof.level_of(std::numeric_limits<std::uint64_t>::max()).name, "memory");
}

TEST(Roof, WithoutBf16InstructionsBf16IsComputedInF32) {
  Ceilings ceilings = machine();
  ceilings.compute.pop_back();
  EXPECT_EQ(roof_of(ceilings, 1).flops(ProductKind::bf16), 100e9);
}

TEST(Roof, SixProductsOfTilesMakeOneOfF32) {
  Ceilings ceilings = machine();
  EXPECT_EQ(roof_of(ceilings, 1).flops(ProductKind::bf16x6), 100e9) << "that of f32";
  ceilings.compute.push_back({"AMX BF16", ProductKind::bf16, 3000e9, 3000e9});
  EXPECT_EQ(roof_of(ceilings, 1).flops(ProductKind::bf16x6), 500e9);
}

TEST(Roof, NoLevelIsSlowerThanAFartherOne) {
  Ceilings ceilings = machine();
  ceilings.bandwidth[1].one_core = 10e9;
  EXPECT_EQ(roof_of(ceilings, 1).levels[1].bytes_per_second, 50e9);
}

TEST(Roof, NeedsCompleteCeilings) {
  Ceilings no_compute = machine(), no_bandwidth = machine();
  no_compute.compute.clear();
  no_bandwidth.bandwidth.clear();
  EXPECT_THROW(roof_of(no_compute, 1), FormatError);
  EXPECT_THROW(roof_of(no_bandwidth, 1), FormatError);
}

TEST(Ceilings, TheBetterOfTwoMeasurementsIsKept) {
  Ceilings newer = machine(), older = machine();
  newer.measured_at = "later";
  newer.compute[1].all_cores = 600e9;
  newer.bandwidth[3].one_core = 25e9;
  const Ceilings best = best_of(newer, older);
  EXPECT_EQ(best.measured_at, "later");
  EXPECT_EQ(best.compute[1].all_cores, 700e9);
  EXPECT_EQ(best.bandwidth[3].one_core, 25e9);
  older.hardware = "another";
  EXPECT_EQ(best_of(newer, older).compute[1].all_cores, 600e9);
}

TEST(Ceilings, TheBestOfEachLinkIsKept) {
  Ceilings newer = machine();
  newer.links = {{.ranks = 3, .bytes_per_second = 1e9, .message_seconds = 70e-6},
                 {.ranks = 4, .bytes_per_second = 1e9, .message_seconds = 80e-6}};
  const std::vector<LinkCeiling> best = best_of(newer, machine()).links;
  ASSERT_EQ(best.size(), 3);
  EXPECT_EQ(best[0].ranks, 2);
  EXPECT_EQ(best[0].bytes_per_second, 3e9);
  EXPECT_EQ(best[1].ranks, 3);
  EXPECT_EQ(best[2].bytes_per_second, 2e9);
  EXPECT_EQ(best[2].message_seconds, 80e-6);
}

TEST(Roof, KnowsTheLinkOfAsManyRanksAlone) {
  const Roof roof = roof_of(machine(), 1);
  ASSERT_NE(roof.link_of(4), nullptr);
  EXPECT_EQ(roof.link_of(4)->bytes_per_second, 2e9);
  EXPECT_EQ(roof.link_of(3), nullptr);
}

TEST(Ceilings, TextHasEveryCeilingAndTheVendors) {
  Ceilings with_vendor = machine();
  with_vendor.vendor = {.flops_per_second = 2e12, .bytes_per_second = 80e9};
  const std::string text = ceilings_text(with_vendor);
  for (const char* expected :
       {"f32 wide", "100.0 GFLOP/s", "bf16 dots", "1500.0 GFLOP/s", "8 cores", "L2", "1.00 MiB",
        "60.0 GB/s", "2000.0 GFLOP/s", "80.0 GB/s", "2 ranks, each sends", "3.0 GB/s",
        "4 ranks, a message", "90.0 µs"})
    EXPECT_THAT(text, HasSubstr(expected));
}

// As measure_device_ceilings() gives them.
Ceilings card() {
  return {.measured_at = "2026-02-01T12:00:00Z",
          .host = "host",
          .device = "cuda",
          .kind = DeviceKind::gpu,
          .hardware = "A card",
          .compute = {{"multiply-add", ProductKind::f32, 0, 50e12},
                      {"product", ProductKind::tf32, 0, 400e12}},
          .bandwidth = {{"L2", 50 << 20, 1, 0, 5000e9, {{"read", 5000e9}, {"copy", 4000e9}}},
                        {"memory", 0, 1, 0, 3000e9, {{"read", 3000e9}}}},
          .launch_seconds = 3e-6,
          .captured_seconds = 1e-6,
          .note = "its clock fell"};
}

TEST(Roof, OfAGpuIsThatOfAllOfIt) {
  const Roof roof = roof_of(card(), 1);
  EXPECT_EQ(roof.device, "cuda");
  EXPECT_EQ(roof.kind, DeviceKind::gpu);
  EXPECT_EQ(roof.hardware, "A card");
  EXPECT_EQ(roof.flops(ProductKind::f32), 50e12);
  EXPECT_EQ(roof.flops(ProductKind::tf32), 400e12);
  EXPECT_EQ(roof.flops(ProductKind::bf16), 50e12) << "in f32, as far as is known";
  EXPECT_EQ(roof.fastest_flops(), 400e12);
  EXPECT_EQ(roof.level_of(1 << 20).bytes_per_second, 5000e9);
  EXPECT_EQ(roof.memory().bytes_per_second, 3000e9);
  EXPECT_EQ(roof.launch_seconds, 3e-6);
  EXPECT_EQ(roof.captured_seconds, 1e-6);
  EXPECT_EQ(roof_of(machine(), 1).launch_seconds, cpu_launch_seconds);
}

TEST(Ceilings, OfAGpuAreThoseOfAllOfItByAccess) {
  const std::string text = ceilings_text(card());
  for (const char* expected :
       {"tf32 product", "400.0 TFLOP/s", "L2, read", "5000.0 GB/s", "L2, copy", "memory, read",
        "launch, captured", "1.0 µs", "Note: its clock fell"})
    EXPECT_THAT(text, HasSubstr(expected));
  EXPECT_THAT(text, Not(HasSubstr("core")));
  Ceilings slower = card();
  slower.bandwidth[0].accesses[1].bytes_per_second = 1;
  slower.launch_seconds = 9e-6;
  const Ceilings best = best_of(slower, card());
  EXPECT_EQ(best.bandwidth[0].accesses[1].bytes_per_second, 4000e9);
  EXPECT_EQ(best.launch_seconds, 3e-6);
}

TEST(MachineFile, ReadsWhatItWrites) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "deep" / "er" / "machine.json";
  const Machine both{{machine(), card()}};
  write_machine_file(path, both);
  const Machine read = read_machine_file(path);
  EXPECT_EQ(machine_json(read), machine_json(both));
  ASSERT_EQ(read.devices.size(), 2u);
  EXPECT_EQ(read.devices[0].hardware, machine().hardware);
  EXPECT_EQ(read.devices[0].compute[2].precision, ProductKind::bf16);
  EXPECT_EQ(read.devices[0].bandwidth[1].sharing, 2);
  EXPECT_EQ(read.devices[1].device, "cuda");
  EXPECT_EQ(read.devices[0].kind, DeviceKind::cpu);
  EXPECT_EQ(read.devices[1].kind, DeviceKind::gpu);
  EXPECT_EQ(read.devices[1].bandwidth[0].accesses[1].name, "copy");
  EXPECT_EQ(read.devices[1].note, "its clock fell");
}

TEST(MachineFile, HoldsEachHardwareOnce) {
  Machine all{{machine()}};
  Ceilings another = card(), newer = card();
  another.hardware = "Another card";
  newer.measured_at = "later";
  all.put(card());
  all.put(another);
  all.put(newer);
  ASSERT_EQ(all.devices.size(), 3u);
  EXPECT_EQ(all.find("cuda", "A card")->measured_at, "later");
  EXPECT_EQ(all.find("cpu", "A card"), nullptr);
  EXPECT_EQ(all.find("cuda", "no card"), nullptr);
  EXPECT_EQ(all.find_like("cuda", "no card")->device, "cuda");
  EXPECT_EQ(all.find_like("tpu", ""), nullptr);
}

TEST(MachineFile, KeepsTheRoofOfAKnownDeviceAlone) {
  const TemporaryCache cache;
  EXPECT_THAT(kept_roof("cuda", "A card", 1).source, HasSubstr("ridge roofline"));
  write_machine_file(default_machine_file(), {{machine(), card()}});
  const KeptRoof kept = kept_roof("cuda", "A card", 1);
  ASSERT_TRUE(kept.roof);
  EXPECT_EQ(kept.roof->flops(ProductKind::tf32), 400e12);
  EXPECT_EQ(kept.source, default_machine_file().string());
  EXPECT_EQ(kept_roof("cpu", machine().hardware, 0).roof->threads, 8);
  EXPECT_FALSE(kept_roof("cuda", "Another card", 1).roof);
  EXPECT_THAT(kept_roof("cuda", "Another card", 1).source, HasSubstr("no Another card"));
  EXPECT_EQ(roof_from_file(default_machine_file(), "cuda", "Another card", 1).hardware, "A card");
  EXPECT_THROW(roof_from_file(default_machine_file(), "tpu", "", 1), FormatError);
  write_text_file(default_machine_file(), "no json");
  EXPECT_THAT(kept_roof("cuda", "A card", 1).source, HasSubstr("holds no machine's ceilings"));
}

TEST(MachineFile, RefusesWhatIsNone) {
  const std::string good = machine_json({{machine()}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string("{}"), std::string("[1]"), std::string("no json"), good.substr(0, 200),
        with("ridge machine ceilings", "other"), with("\"bf16\"", "\"f64\""),
        with("5000000000.0", "-1.0"), with("\"threads\": 8", "\"threads\": 0"),
        with("\"ranks\": 2", "\"ranks\": 1"), with("3000000000.0", "0.0")}) {
    try {
      machine_from_json(text, "the file");
      FAIL() << text;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), HasSubstr("the file"));
    }
  }
  const TemporaryDirectory directory;
  EXPECT_THROW(read_machine_file(directory.path / "missing"), IoError);
  write_text_file(directory.path / "file", "");
  EXPECT_THROW(write_machine_file(directory.path / "file" / "machine.json", {}), IoError);
}

}  // namespace
}  // namespace ridge
