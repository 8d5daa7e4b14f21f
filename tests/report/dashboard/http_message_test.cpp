#include "ridge/report/dashboard/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HttpRequest read(const std::string& head) { return http_request_of(head); }

int status_of(const std::string& head) {
  try {
    read(head);
  } catch (const HttpFault& fault) {
    return fault.status;
  }
  return 200;
}

TEST(HttpMessage, IsRead) {
  const HttpRequest request = read(
      "GET /api/runs?filter=a%3D1+and%20b%26&x=1&x=2&empty HTTP/1.1\r\nHost:  h:1 \r\n"
      "X-Some: a: b\r\n\r\n");
  EXPECT_EQ(request.path, "/api/runs");
  EXPECT_EQ(request.parameter("filter"), "a=1 and b&");
  EXPECT_EQ(request.parameter("x"), "2");
  EXPECT_EQ(request.parameter("empty"), "");
  EXPECT_EQ(request.header("host"), "h:1");
  EXPECT_EQ(request.header("x-some"), "a: b");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keep_alive);
}

TEST(HttpMessage, IsRefusedIfItIsNone) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 200);
  EXPECT_EQ(status_of("HEAD / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), 200);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"})
    EXPECT_EQ(status_of(std::string(method) + " / HTTP/1.1\r\n\r\n"), 405) << method;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\n"), 413);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
  EXPECT_EQ(status_of("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n"), 414);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 70; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 431);
  for (const char* head :
       {"", "\r\n\r\n", "GET\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n", "GET http://h/ HTTP/1.1\r\n\r\n",
        "GET / FTP/1.1\r\n\r\n", "G T / HTTP/1.1\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\n: empty\r\n\r\n", "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        "GET /?a=%zz HTTP/1.1\r\n\r\n", "GET /?a=% HTTP/1.1\r\n\r\n"})
    EXPECT_EQ(status_of(head), 400) << head;
}

TEST(HttpMessage, EndsItsHeadWithAnEmptyLine) {
  EXPECT_EQ(http_head_size("GET / HTTP/1.1\r\n"), std::nullopt);
  EXPECT_EQ(http_head_size("GET / HTTP/1.1\r\n\r\nGET"), 18u);
  EXPECT_THROW(http_head_size(std::string(20'000, 'a')), HttpFault);
}

TEST(HttpMessage, IsWritten) {
  const HttpReply reply{.status = 404, .body = "no\n", .headers = {{"X-A", "b"}}};
  const std::string text = http_text_of(reply, true, true);
  EXPECT_THAT(text, HasSubstr("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(text, HasSubstr("Content-Length: 3\r\nConnection: keep-alive\r\nX-A: b\r\n\r\nno\n"));
  EXPECT_THAT(http_text_of(reply, false, false), Not(HasSubstr("no\n")));
}

TEST(HttpMessage, DecodesText) {
  EXPECT_EQ(percent_decoded("a%C3%A9+%41"), "a\xC3\xA9 A");
  EXPECT_EQ(percent_decoded("%00%FF"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // as a store keeps them
}

TEST(HttpMessage, HasCookies) {
  const HttpRequest request = read("GET / HTTP/1.1\r\nCookie: a=1; bb=2;c=x=y\r\n\r\n");
  EXPECT_EQ(cookie_of(request, "a"), "1");
  EXPECT_EQ(cookie_of(request, "bb"), "2");
  EXPECT_EQ(cookie_of(request, "c"), "x=y");
  EXPECT_EQ(cookie_of(request, "b"), "");
}

}  // namespace
}  // namespace ridge
