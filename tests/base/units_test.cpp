#include "ridge/base/units.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>

namespace ridge {
namespace {

TEST(Units, BytesAreInTheLargestUnitThatTheyFill) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  for (std::size_t i = 0; i < std::size(units); ++i) {
    const std::uint64_t unit = std::uint64_t{1} << (10 * (i + 1));
    EXPECT_EQ(format_bytes(unit), fmt::format("1.00 {}", units[i]));
    EXPECT_EQ(format_bytes(1023 * unit), fmt::format("1023.00 {}", units[i]));
  }
  EXPECT_EQ(format_bytes(std::uint64_t{1} << 60), "1024.00 PiB") << "the last unit";
}

TEST(Units, ACountHasACommaBeforeEveryThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(999'999), "999,999");
  EXPECT_EQ(format_count(1'000'000), "1,000,000");
  EXPECT_EQ(format_count(-999), "-999");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(-123'456), "-123,456");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Units, APrefixStandsForAThousandOfTheOneBefore) {
  EXPECT_EQ(format_si(0), "0 ");
  EXPECT_EQ(format_si(0.5), "0.5 ");
  EXPECT_EQ(format_si(16.1e9), "16.1 G");
  constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T", "P"};
  double unit = 1;
  for (const std::string_view prefix : prefixes) {
    EXPECT_EQ(format_si(unit), fmt::format("1 {}", prefix));
    EXPECT_EQ(format_si(999 * unit), fmt::format("999 {}", prefix));
    EXPECT_EQ(format_si(-999 * unit), fmt::format("-999 {}", prefix));
    unit *= 1000;
  }
  EXPECT_EQ(format_si(1e18), "1000 P") << "the last prefix";
}

TEST(Units, ADurationIsInTheUnitsThatItFills) {
  EXPECT_EQ(format_duration(0), "0.0 µs");
  EXPECT_EQ(format_duration(999.9e-6), "999.9 µs");
  EXPECT_EQ(format_duration(1e-3), "1.00 ms");
  EXPECT_EQ(format_duration(0.99999), "999.99 ms");
  EXPECT_EQ(format_duration(1), "1.0 s");
  EXPECT_EQ(format_duration(59.9), "59.9 s");
  EXPECT_EQ(format_duration(60), "1 m 00 s");
  EXPECT_EQ(format_duration(192), "3 m 12 s");
  EXPECT_EQ(format_duration(59 * 60 + 59), "59 m 59 s");
  EXPECT_EQ(format_duration(59 * 60 + 59.5), "1 h 00 m") << "no 60 seconds";
  EXPECT_EQ(format_duration(3600), "1 h 00 m");
  EXPECT_EQ(format_duration(3600 + 60), "1 h 01 m");
  EXPECT_EQ(format_duration(2 * 3600 - 1), "1 h 59 m");
  EXPECT_EQ(format_duration(2 * 3600), "2 h 00 m");
  EXPECT_EQ(format_duration(100 * 3600 + 59 * 60), "100 h 59 m");
}

TEST(Units, ALossHasFourDigitsAndNoNegativeNan) {
  EXPECT_EQ(format_loss(6.97864), "6.9786");
  EXPECT_EQ(format_loss(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(format_loss(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Units, PercentAndMegabytes) {
  EXPECT_EQ(format_percent(0.1234), "12.3 %");
  EXPECT_EQ(format_percent(1), "100.0 %");
  EXPECT_EQ(format_megabytes(124'513'472), "124.5 MB");
  EXPECT_EQ(format_megabytes(124'513'472, 2), "124.51 MB");
}

}  // namespace
}  // namespace ridge
