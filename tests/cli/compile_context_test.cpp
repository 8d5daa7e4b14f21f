#include "ridge/cli/compile_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/base/error.h"

namespace ridge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
}

TEST(CompileContext, SaysWhatArgumentsMeanHere) {
  const CompileContext context = parse_compile_context(
      "{'fullgraph': True, 'dynamic': None, 'backend': 'inductor', "
      "'options': {'triton.cudagraphs': True, 'max_fusion_size': 64, 'deep': {'a': -1.5e3}}}");
  EXPECT_EQ(context.mode, "default");
  EXPECT_THAT(context.notes,
              ElementsAre(HasSubstr("fullgraph: "), HasSubstr("dynamic: "), HasSubstr("backend: "),
                          HasSubstr("triton.cudagraphs, max_fusion_size, deep")));
}

std::string refusal(std::string_view text) {
  try {
    parse_compile_context(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(CompileContext, RefusesWhatIsNoneAndWhatItCannotDo) {
  EXPECT_THAT(refusal("max-autotune"), HasSubstr("after 0 characters there is 'max-autotune'"));
  EXPECT_THAT(refusal("{'mode'"), HasSubstr("there is the end where ':' is due"));
  EXPECT_THAT(refusal("{'mode': 'default'"), HasSubstr("',' or '}'"));
  EXPECT_THAT(refusal("{'mode': 'default"), HasSubstr("the closing quote"));
  EXPECT_THAT(refusal("{mode: 'default'}"), HasSubstr("a key in quotes"));
  EXPECT_THAT(refusal("{'mode': default}"), HasSubstr("'default}'"));
  EXPECT_THAT(refusal("{'fullgraph': true}"), HasSubstr("True, False"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("nothing after the dict"));
  EXPECT_THAT(refusal(""), HasSubstr("'{'"));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{'a':";
  EXPECT_THAT(refusal(deep), HasSubstr("no dict this deep"));

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
