// A server over loopback, asked by plain sockets.

#include "ridge/report/dashboard/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/report/dashboard/http_client.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A server that runs as long as its owner.
class Running {
 public:
  explicit Running(HttpHandler handler, HttpSettings settings = {})
      : server_("127.0.0.1", 0, std::move(handler), settings),
        thread_([this] { server_.run(stop_); }) {}
  ~Running() {
    stop();
    ::close(stop_);
  }
  void stop() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof one);
    if (thread_.joinable()) thread_.join();
  }
  int port() const { return server_.port(); }

 private:
  int stop_ = ::eventfd(0, EFD_CLOEXEC);
  HttpServer server_;
  std::thread thread_;
};

HttpReply echo(const HttpRequest& request) { return {.body = "path " + request.path}; }

TEST(HttpServer, AnswersRequestsOnOneConnection) {
  const Running server(echo);
  HttpClient client(server.port());
  client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.wait_for("path /b"));
  EXPECT_THAT(client.got(), HasSubstr("path /a"));
  client.send("HEAD /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.all(), EndsWith("Connection: close\r\n\r\n"));
}

// What a request has at the handler.
TEST(HttpServer, ReadsRequests) {
  const Running server([](const HttpRequest& request) {
    return HttpReply{.body = fmt::format("{} {} a={} host={} x-some={}", request.method,
                                         request.path, request.parameter("a"),
                                         request.header("host"), request.header("x-some"))};
  });
  EXPECT_THAT(asked(server.port(),
                    "GET /p?a=%3D HTTP/1.1\r\nHOST:  h:1 \r\nX-Some: a: b\r\n"
                    "Connection: Close\r\n\r\n"),
              EndsWith("GET /p a== host=h:1 x-some=a: b"));
  EXPECT_THAT(asked(server.port(), "GET / HTTP/1.0\r\n\r\n"), EndsWith("GET / a= host= x-some="));
  EXPECT_THAT(asked(server.port(), "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nContent-Length: 22\r\n")));
}

TEST(HttpServer, RefusesOtherMethodsAndContent) {
  const Running server(echo);
  EXPECT_THAT(asked(server.port(), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD")));
  const auto status_of = [&](const std::string& head) {
    const std::string reply = asked(server.port(), head);
    EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 "), HasSubstr("Connection: close\r\n"))) << head;
    return reply.size() < 12 ? 0 : std::stoi(reply.substr(9, 3));
  };
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "SOME"})
    EXPECT_EQ(status_of(std::string(method) + " / HTTP/1.1\r\n\r\n"), 405) << method;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), 413);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
  const std::string long_path = "/" + std::string(9000, 'a'), longer(20'000, 'a');
  EXPECT_EQ(status_of("GET " + long_path + " HTTP/1.1\r\n\r\n"), 414);
  EXPECT_EQ(status_of("GET /" + longer), 414);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: " + longer), 431);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 70; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(status_of(many + "\r\n"), 431);
  for (const char* head :
       {"nonsense\r\n\r\n", "\r\n\r\n", "GET\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\n\r\n", "GET / FTP/1.1\r\n\r\n", "G T / HTTP/1.1\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n", "GET /\x01 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\n: empty\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n folded: x\r\n\r\n", "GET /?a=%zz HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"})
    EXPECT_EQ(status_of(head), 400) << head;
}

TEST(HttpServer, ReportsWhatAHandlerThrows) {
  const Running server([](const HttpRequest&) -> HttpReply { throw Error("no luck"); });
  EXPECT_THAT(asked(server.port(), "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 500 "), EndsWith("no luck\n")));
}

TEST(HttpServer, WaitsForNobody) {
  const Running server(echo, {.connections = 8, .head_time = 300ms, .idle_time = 300ms});
  std::vector<HttpClient> slow;
  for (int i = 0; i < 30; ++i) {  // more than it has connections for
    slow.emplace_back(server.port());
    slow.back().send("GET / HT");
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(asked(server.port(), "GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"),
                EndsWith("path /x"));
  // One that sends a byte now and then is no better off.
  HttpClient dripping(server.port());
  const auto begin = std::chrono::steady_clock::now();
  while (dripping.send("G") && std::chrono::steady_clock::now() - begin < 5s)
    std::this_thread::sleep_for(50ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
}

TEST(HttpServer, DropsClientsThatReadNothing) {
  const Running server(
      [](const HttpRequest&) { return HttpReply{.body = std::string(64 << 20, 'x')}; },
      {.stall_time = 300ms});
  HttpClient client(server.port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(1s);
  EXPECT_LT(client.all().size(), std::size_t{64} << 20);
}

TEST(HttpServer, SendsEventsUntilTheClientLeaves) {
  std::atomic<int> calls = 0;
  const Running server(
      [&](const HttpRequest&) {
        return HttpReply{.type = "text/event-stream",
                         .events = [&] { return "data: " + std::to_string(++calls) + "\n\n"; }};
      },
      {.streams = 2, .events_interval = 20ms});
  HttpClient first(server.port()), second(server.port());
  for (HttpClient* client : {&first, &second}) {
    client->send("GET /events HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(client->wait_for("data: "));
  }
  EXPECT_THAT(asked(server.port(), "GET /events HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 "));
  first = HttpClient(server.port());
  second = HttpClient(server.port());
  std::this_thread::sleep_for(500ms);
  const int before = calls;
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(calls, before);
}

TEST(HttpServer, EndsAtOnceWithClients) {
  Running server([&](const HttpRequest&) {
    return HttpReply{.type = "text/event-stream", .events = [] { return std::string(); }};
  });
  HttpClient stream(server.port()), idle(server.port());
  stream.send("GET /events HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(stream.wait_for("\r\n\r\n"));
  const auto begin = std::chrono::steady_clock::now();
  server.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_THAT(idle.all(), IsEmpty());
}

TEST(HttpServer, NamesAPortThatIsInUse) {
  const HttpServer first("127.0.0.1", 0, echo);
  try {
    const HttpServer second("127.0.0.1", first.port(), echo);
    ADD_FAILURE() << "two servers on one port";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(first.port())), HasSubstr("--port")));
  }
  EXPECT_THROW(HttpServer("nowhere", 0, echo), UsageError);
}

TEST(HttpServer, KnowsLoopback) {
  for (const char* address : {"127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(is_loopback(address));
  for (const char* address : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost", ""})
    EXPECT_FALSE(is_loopback(address)) << address;
}

}  // namespace
}  // namespace ridge
