#include "ridge/study/utc.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

std::string span_of(std::string_view text) {
  const std::optional<UtcSpan> span = utc_from(text);
  return span ? utc_text(span->begin) + " " + utc_text(span->end) : "none";
}

TEST(Utc, IsWrittenAndReadBack) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(-1), "1969-12-31T23:59:59Z");
  EXPECT_EQ(utc_text(1'709'210'096), "2024-02-29T12:34:56Z");
  for (const std::int64_t time : {0L, -1L, 86'399L, 1'709'210'096L, 4'102'444'800L}) {
    const auto span = utc_from(utc_text(time));
    ASSERT_TRUE(span);
    EXPECT_EQ(span->begin, time);
    EXPECT_EQ(span->end, time + 1);
  }
}

TEST(Utc, NamesSpansOfAnyLength) {
  EXPECT_EQ(span_of("2026"), "2026-01-01T00:00:00Z 2027-01-01T00:00:00Z");
  EXPECT_EQ(span_of("2026-12"), "2026-12-01T00:00:00Z 2027-01-01T00:00:00Z");
  EXPECT_EQ(span_of("2024-02-29"), "2024-02-29T00:00:00Z 2024-03-01T00:00:00Z");
  EXPECT_EQ(span_of("2026-01-31T23"), "2026-01-31T23:00:00Z 2026-02-01T00:00:00Z");
  EXPECT_EQ(span_of("2026-01-31 23:59"), "2026-01-31T23:59:00Z 2026-02-01T00:00:00Z");
  EXPECT_EQ(span_of("2026-01-31T12:30Z"), "2026-01-31T12:30:00Z 2026-01-31T12:31:00Z");
}

TEST(Utc, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "26", "yesterday", "2026-", "2026-1", "2026-13", "2026-00", "2026-02-29", "2026-01-31T",
        "2026-01-31T24", "2026-01-31T12:60", "2026Z", "2026-01-31Z", "2026-01-31T12:00:00+01",
        "2026-01-31T12:00:00Zz", "0000-01-01"})
    EXPECT_EQ(span_of(text), "none") << text;
}

}  // namespace
}  // namespace ridge
