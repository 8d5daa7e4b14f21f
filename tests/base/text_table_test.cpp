#include "ridge/base/text_table.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(TextTable, AlignsNamesLeftAndNumbersRight) {
  const std::vector<TextColumn> columns{{"Operation", true}, {"Calls"}, {"Time"}};
  const std::vector<TextRow> rows{
      {"matmul", "240", "18.7 ms"}, {"µs", "9", "1.5 ms"}, {}, {"all", "", "20.2 ms"}};
  EXPECT_EQ(text_table(columns, rows),
            "Operation | Calls |    Time\n"
            "----------|-------|--------\n"
            "matmul    |   240 | 18.7 ms\n"
            "µs        |     9 |  1.5 ms\n"
            "----------|-------|--------\n"
            "all       |       | 20.2 ms\n");
}

TEST(TextTable, CutsLongNamesAtTheWidthOfTheTerminalNotAtBytes) {
  EXPECT_EQ(shortened("attention", 9), "attention");
  EXPECT_EQ(shortened("attention", 6), "atten…");
  EXPECT_EQ(shortened("äöüäöü", 4), "äöü…");
  EXPECT_EQ(display_width("a😀b"), 4u);
  EXPECT_EQ(shortened("😀😀😀", 5), "😀😀…");
  EXPECT_EQ(display_width("e\u0301"), 1u);
}

TEST(TextTable, OneRowStaysOneLineWhateverItsCellsHold) {
  const std::vector<TextColumn> columns{{"Name", true, 20}, {"N"}};
  const std::string hostile = "a\nb\x1b[31m\t\xff\u202e" + std::string(10000, 'x');
  const std::string text = text_table(columns, std::vector<TextRow>{{hostile, "1"}});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 200u);
  EXPECT_EQ(printable("a\nb\xff\u202e"), "a\\x0ab\uFFFD\\u202e");
}

TEST(TextTable, WrapsSentencesAtSpaces) {
  EXPECT_EQ(wrapped("compute queries and keys at once", 16), "compute queries\nand keys at once");
  EXPECT_EQ(wrapped("compute queries and keys at once", 15, "  "),
            "compute queries\n  and keys at\n  once");
  EXPECT_EQ(wrapped("one\ntwo three", 9), "one\ntwo three");
  EXPECT_EQ(wrapped("a considerably long word", 6), "a\nconsiderably\nlong\nword");
  EXPECT_EQ(wrapped("  ok      two", 40), "  ok      two");
  EXPECT_EQ(wrapped("äöü äöü", 7), "äöü äöü");
  EXPECT_EQ(wrapped("", 7), "");
}

TEST(TextTable, QuotesFieldsOfCsv) { EXPECT_EQ(csv_quoted("a \"b\", c"), "\"a \"\"b\"\", c\""); }

}  // namespace
}  // namespace ridge
