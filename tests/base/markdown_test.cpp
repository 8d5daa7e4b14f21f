#include "ridge/base/markdown.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

TEST(Markdown, TakesNoTextForMarkup) {
  EXPECT_EQ(
      markdown_escaped("<img src=x> & *a* _b_ [c](d) `e` | ~~f~~ $g$ \\"),
      "&lt;img src=x> &amp; \\*a\\* \\_b\\_ \\[c\\](d) \\`e\\` \\| \\~\\~f\\~\\~ \\$g\\$ \\\\");
  EXPECT_EQ(markdown_escaped("batch_size very_large _x"), "batch_size very_large \\_x");
  EXPECT_EQ(markdown_escaped("a\n# b\x1b"), "a\\\\x0a# b\\\\x1b") << "no line begins within";
}

TEST(Markdown, HasCodeThatEndsNowhereElse) {
  EXPECT_EQ(markdown_code("a b"), "`a b`");
  EXPECT_EQ(markdown_code("a``b"), "```a``b```");
  EXPECT_EQ(markdown_code("`a"), "`` `a ``");
}

TEST(Markdown, HasParagraphsAndLists) {
  EXPECT_EQ(markdown_paragraphs("Two *of* them:\n- one\n- two_\nAnd more."),
            "Two \\*of\\* them:\n\n- one\n- two\\_\n\nAnd more.");
  EXPECT_EQ(markdown_paragraphs("One line"), "One line");
  EXPECT_EQ(markdown_paragraphs(""), "");
}

TEST(Markdown, HasTables) {
  const TextColumn columns[] = {{.header = "Name", .left = true}, {.header = "ms"}};
  const std::vector<TextRow> rows{{"a|b", "1.5"}};
  EXPECT_EQ(markdown_table(columns, rows), "| Name | ms |\n| --- | ---: |\n| a\\|b | 1.5 |\n");
}

}  // namespace
}  // namespace ridge
