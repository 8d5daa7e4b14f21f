#include "ridge/analyze/ceilings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

Ceilings machine() {
  return {.measured_at = "2026-01-31T12:00:00Z",
          .host = "host",
          .hardware = "A \"processor\"",
          .threads = 8,
          .compute = {{"scalar", DType::f32, 5e9, 40e9},
                      {"wide", DType::f32, 100e9, 700e9},
                      {"dots", DType::bf16, 200e9, 1500e9}},
          .bandwidth = {{"L1", 32 << 10, 1, 250e9, 2000e9},
                        {"L2", 1 << 20, 2, 100e9, 700e9},
                        {"L3", 16 << 20, 8, 50e9, 300e9},
                        {"memory", 0, 1, 20e9, 60e9}}};
}

TEST(Roof, OfOneThreadAndOfAllIsWhatWasMeasured) {
  const Roof one = roof_of(machine(), 1), all = roof_of(machine(), 8);
  EXPECT_EQ(one.f32_flops, 100e9);
  EXPECT_EQ(one.bf16_flops, 200e9);
  EXPECT_EQ(one.levels[2], (Roof::Level{"L3", 16 << 20, 50e9}));
  EXPECT_EQ(all.f32_flops, 700e9);
  EXPECT_EQ(all.flops(DType::bf16), 1500e9);
  EXPECT_EQ(all.levels[0], (Roof::Level{"L1", 8 * (32 << 10), 2000e9}));
  EXPECT_EQ(all.levels[1], (Roof::Level{"L2", 4 * (1 << 20), 700e9}));
  EXPECT_EQ(all.levels[3], (Roof::Level{"memory", 0, 60e9}));
  EXPECT_EQ(roof_of(machine(), 16).f32_flops, 700e9);
}

TEST(Roof, OfSomeThreadsIsTheirsAndNeverMoreThanAll) {
  const Roof roof = roof_of(machine(), 4);
  EXPECT_EQ(roof.f32_flops, 400e9);
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
  EXPECT_EQ(roof_of(ceilings, 1).bf16_flops, 100e9);
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

TEST(Ceilings, TextHasEveryCeilingAndTheVendors) {
  const std::string text =
      ceilings_text(machine(), {.flops_per_second = 2e12, .bytes_per_second = 80e9});
  for (const char* expected :
       {"f32 wide", "100.0 GFLOP/s", "bf16 dots", "1500.0 GFLOP/s", "8 cores", "L2", "1.00 MiB",
        "60.0 GB/s", "2000.0 GFLOP/s", "80.0 GB/s"})
    EXPECT_THAT(text, HasSubstr(expected));
}

TEST(MachineFile, ReadsWhatItWrites) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "deep" / "er" / "machine.json";
  write_machine_file(path, machine());
  const Ceilings read = read_machine_file(path);
  EXPECT_EQ(ceilings_json(read), ceilings_json(machine()));
  EXPECT_EQ(read.hardware, machine().hardware);
  EXPECT_EQ(read.compute[2].dtype, DType::bf16);
  EXPECT_EQ(read.bandwidth[1].sharing, 2);
}

TEST(MachineFile, RefusesWhatIsNone) {
  const std::string good = ceilings_json(machine());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string("{}"), std::string("[1]"), std::string("no json"), good.substr(0, 200),
        with("ridge machine ceilings", "other"), with("\"bf16\"", "\"f64\""),
        with("5000000000.0", "-1.0"), with("\"threads\": 8", "\"threads\": 0")}) {
    try {
      ceilings_from_json(text, "the file");
      FAIL() << text;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), HasSubstr("the file"));
    }
  }
  const TemporaryDirectory directory;
  EXPECT_THROW(read_machine_file(directory.path / "missing"), IoError);
  write_text_file(directory.path / "file", "");
  EXPECT_THROW(write_machine_file(directory.path / "file" / "machine.json", machine()), IoError);
}

}  // namespace
}  // namespace ridge
