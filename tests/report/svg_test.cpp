#include "ridge/report/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SvgScale, RunsFromPixelToPixel) {
  const SvgScale up{0, 10, 300, 100}, decades{1, 100, 0, 50, true};
  EXPECT_DOUBLE_EQ(up(0), 300);
  EXPECT_DOUBLE_EQ(up(2.5), 250);
  EXPECT_DOUBLE_EQ(decades(10), 25);
}

TEST(Svg, EscapesWhatItIsGivenAndKeepsItsRulesToItself) {
  constexpr SvgRule rules[] = {{".bar", "fill:#111", "fill:#eee"}, {".plain", "fill:#222"}};
  Svg svg("test", 100, 50, "a < b", rules);
  svg.text(1, 2, Svg::Anchor::end, "<b>&", "title", -40);
  svg.rect("bar", 0, 0, 1, 1, "x > y");
  const std::string text = std::move(svg).finish();
  for (const char* part :
       {"class=\"ridge-test\" viewBox=\"0 0 100 50\"", "aria-label=\"a &lt; b\"",
        ">&lt;b&gt;&amp;</text>", "transform=\"rotate(-40 1.0 2.0)\"", "<title>x &gt; y</title>",
        ".ridge-test .bar{fill:#111}\n", ".ridge-test .bar{fill:#eee}\n", "</svg>\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const std::string dark = text.substr(text.find("@media"));
  EXPECT_THAT(dark, HasSubstr(".bar{fill:#eee}"));
  EXPECT_THAT(dark, Not(HasSubstr(".plain"))) << "which looks the same on dark";
}

}  // namespace
}  // namespace ridge
