#include "ridge/cli/compile_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CompileContext, ReadsADictOfPython) {
  EXPECT_EQ(parse_compile_context("{}").mode, "default");
  EXPECT_EQ(parse_compile_context("{'mode': 'max-autotune'}").mode, "max-autotune");
  EXPECT_EQ(parse_compile_context("{\"mode\":\"reduce-overhead\",}").mode, "reduce-overhead");
  EXPECT_EQ(parse_compile_context(" { 'mode' : None }\n").mode, "default");
  EXPECT_EQ(parse_compile_context("{'mode': 'default', 'mode': 'max-autotune'}").mode,
            "max-autotune")
      << "the last of two, as in Python";
  EXPECT_EQ(parse_compile_context("{'mode': 'max-autotune', 'disable': True}").mode, "none");
  EXPECT_THAT(parse_compile_context("{'mode': 'max-autotune'}").notes, IsEmpty());
  EXPECT_EQ(parse_compile_context(R"({"mode": 'max\-autotune'})").mode, "max-autotune");
}

TEST(CompileContext, SaysWhatArgumentsMeanHere) {
  const CompileContext context = parse_compile_context(
      "{'fullgraph': True, 'dynamic': None, 'backend': 'inductor', "
      "'options': {'triton.cudagraphs': True, 'max_fusion_size': 64, 'deep': {'a': -1.5e3}}}");
  EXPECT_EQ(context.mode, "default");
  EXPECT_THAT(context.notes,
              ElementsAre(HasSubstr("fullgraph: "), HasSubstr("dynamic: "), HasSubstr("backend: "),
                          HasSubstr("triton.cudagraphs, max_fusion_size, deep")));
  EXPECT_THAT(parse_compile_context(R"({'options': {'a"b, True': "it's"}})").notes,
              ElementsAre(HasSubstr("options: a\"b, True belong")))
      << "what stands in quotes stays as it is";
}

std::string refusal(std::string_view text) {
  return message_of<UsageError>([&] { parse_compile_context(text); });
}

TEST(CompileContext, RefusesWhatIsNoneAndWhatItCannotDo) {
  EXPECT_THAT(refusal("max-autotune"), HasSubstr("'max-autotune' is neither in quotes"));
  EXPECT_THAT(refusal("'max-autotune'"), HasSubstr("it is not in braces"));
  for (const char* cut : {"{'mode'", "{'mode': 'default'", "{'mode' 'default'}", "{} {}", ""})
    EXPECT_THAT(refusal(cut), HasSubstr("follow each other")) << cut;
  EXPECT_THAT(refusal("{'mode': 'default"), HasSubstr("lacks its closing quote"));
  EXPECT_THAT(refusal("{mode: 'default'}"), HasSubstr("'mode' is neither in quotes"));
  EXPECT_THAT(refusal("{'mode': default}"), HasSubstr("'default' is neither in quotes"));
  EXPECT_THAT(refusal("{'fullgraph': true}"), HasSubstr("one of True, False and None"));
  EXPECT_THAT(refusal("{'options': ['a']}"), HasSubstr("no argument is a list"));
  EXPECT_THAT(refusal("{1: 2}"), HasSubstr("a key in quotes"));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{'a':";
  EXPECT_THAT(refusal(deep), HasSubstr("a dict this deep"));

  EXPECT_THAT(refusal("{'mode': 'fast'}"), HasSubstr("'mode' is 'fast'"));
  EXPECT_THAT(refusal("{'mode': 'max-autotune-no-cudagraphs'}"), HasSubstr("'reduce-overhead'"));
  EXPECT_THAT(refusal("{'mode': 1}"), HasSubstr("'mode' is 1"));
  EXPECT_THAT(refusal("{'fullgraph': 'yes'}"), HasSubstr("True or False"));
  EXPECT_THAT(refusal("{'backend': 'aot_eager'}"), HasSubstr("'backend' is 'aot_eager'"));
  EXPECT_THAT(refusal("{'options': 3}"), HasSubstr("a dict"));
  EXPECT_THAT(refusal("{'fulgraph': True}"), HasSubstr("did you mean 'fullgraph'?"));
  EXPECT_THAT(refusal("{'zzzzzzzzz': True}"), HasSubstr("it has mode, fullgraph"));
}

}  // namespace
}  // namespace ridge
