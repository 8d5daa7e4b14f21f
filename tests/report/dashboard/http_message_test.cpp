#include "ridge/report/dashboard/http_message.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

HttpRequest asked_for(std::string_view target) {
  HttpRequest request;
  read_target(request, target);
  return request;
}

TEST(HttpMessage, HasATarget) {
  const HttpRequest request = asked_for("/api/runs?filter=a%3D1+and%20b%26&x=1&x=2&empty&=none");
  EXPECT_EQ(request.path, "/api/runs");
  EXPECT_EQ(request.parameter("filter"), "a=1 and b&");
  EXPECT_EQ(request.parameter("x"), "2");
  EXPECT_EQ(request.parameter("empty"), "");
  EXPECT_EQ(request.parameters.size(), 3u);
  for (const char* target :
       {"", "*", "http://h/", "/a b", "/\x01", "/\xC3\xA9", "/?a=%zz", "/?a=%"})
    EXPECT_THROW(asked_for(target), HttpFault) << target;
}

TEST(HttpMessage, DecodesText) {
  EXPECT_EQ(percent_decoded("a%C3%A9+%41"), "a\xC3\xA9 A");
  EXPECT_EQ(percent_decoded("%00%FF"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // as a store keeps them
}

TEST(HttpMessage, HasCookies) {
  const HttpRequest request{.headers = {{"cookie", "a=1; bb=2;c=x=y"}}};
  EXPECT_EQ(cookie_of(request, "a"), "1");
  EXPECT_EQ(cookie_of(request, "bb"), "2");
  EXPECT_EQ(cookie_of(request, "c"), "x=y");
  EXPECT_EQ(cookie_of(request, "b"), "");
}

}  // namespace
}  // namespace ridge
