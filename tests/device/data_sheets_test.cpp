#include "ridge/device/data_sheets.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

std::string sheet_for(std::string_view hardware) {
  const DataSheet* const sheet = data_sheet_of(hardware);
  return sheet ? sheet->name : "none";
}

TEST(DataSheets, AreFoundByTheNamesOfHardware) {
  EXPECT_EQ(sheet_for("NVIDIA H100 80GB HBM3"), "H100 80GB HBM3");
  EXPECT_EQ(sheet_for("NVIDIA H200"), "H200");
  EXPECT_EQ(sheet_for("NVIDIA H200 NVL"), "H200 NVL");
  EXPECT_EQ(sheet_for("NVIDIA A100-SXM4-80GB"), "A100 SXM4 80GB");
  EXPECT_EQ(sheet_for("NVIDIA L40S"), "L40S");
  EXPECT_EQ(sheet_for("NVIDIA L4"), "L4");
  EXPECT_EQ(sheet_for("AMD EPYC 7763 64-Core Processor"), "EPYC 7763");
  EXPECT_EQ(sheet_for("Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz"), "Xeon Platinum 8358");
  EXPECT_EQ(sheet_for("AMD EPYC"), "none");
}

TEST(DataSheets, NameTheirSourceAndNoLessForLessPrecision) {
  for (const DataSheet& sheet : data_sheets()) {
    EXPECT_FALSE(sheet.source.empty()) << sheet.name;
    EXPECT_GT(sheet.f32, 0) << sheet.name;
    EXPECT_GT(sheet.bytes_per_second, 0) << sheet.name;
    for (const ProductKind kind : {ProductKind::tf32, ProductKind::bf16, ProductKind::f16})
      EXPECT_GE(sheet.flops(kind, 1 << 20), sheet.f32) << sheet.name;
  }
}

TEST(DataSheets, CountTheThreadsOfProcessors) {
  const DataSheet& processor = *data_sheet_of("AMD EPYC 7763 64-Core Processor");
  EXPECT_DOUBLE_EQ(processor.flops(ProductKind::f32, 32), processor.f32 / 2);
  EXPECT_DOUBLE_EQ(processor.flops(ProductKind::f32, 128), processor.f32);
  const DataSheet& tiles = *data_sheet_of("Intel(R) Xeon(R) Platinum 8480+");
  EXPECT_GT(tiles.flops(ProductKind::bf16, 56), 10 * tiles.f32) << "by AMX";
  const DataSheet& card = *data_sheet_of("NVIDIA L4");
  EXPECT_DOUBLE_EQ(card.flops(ProductKind::bf16, 1), card.bf16);
}

}  // namespace
}  // namespace ridge
