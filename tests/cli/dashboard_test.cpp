// `ridge dashboard` as its users run it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/program.h"
#include "tests/cli/tiny_runs.h"
#include "tests/report/dashboard/http_client.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct DashboardProgram : ::testing::Test {
  DashboardProgram() {
    ::unsetenv("RIDGE_STORE");
    run(sandbox, "ridge store init");
    Store(sandbox.path(".ridge/runs.db")).add(testing::document_of({}, {"baseline"}));
  }
  Sandbox sandbox;
};

// A dashboard that is running, and the port that it says.
struct RunningDashboard {
  RunningDashboard(const Sandbox& sandbox, const std::string& flags = "")
      : program(sandbox, words_of("ridge dashboard --port 0" + flags)) {
    EXPECT_TRUE(program.wait_for("Ctrl-C ends it"));
    const std::string out = program.out();
    std::smatch found;
    EXPECT_TRUE(std::regex_search(out, found, std::regex(R"(http://\S+?:(\d+)/(\S*))")));
    port = std::stoi(found[1]);
    rest = found[2];
  }
  std::string get(const std::string& target, const std::string& headers = "") const {
    return asked(port, "GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                           "\r\nConnection: close\r\n" + headers + "\r\n");
  }
  RunningProgram program;
  int port = 0;
  std::string rest;
};

TEST_F(DashboardProgram, ServesTheNearestStore) {
  RunningDashboard dashboard(sandbox);
  EXPECT_THAT(dashboard.get("/"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("<html")));
  EXPECT_THAT(dashboard.get("/api/runs?filter=tag%3Dbaseline"), HasSubstr("\"total\":1"));
  EXPECT_THAT(dashboard.get("/../.ridge/runs.db"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(asked(dashboard.port, "GET / HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
}

TEST_F(DashboardProgram, EndsAtOnceByControlC) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunningDashboard dashboard(sandbox);
    HttpClient client(dashboard.port);
    client.send("GET /api/events HTTP/1.1\r\nHost: localhost:" + std::to_string(dashboard.port) +
                "\r\n\r\n");
    EXPECT_TRUE(client.wait_for("event: ready"));
    const auto begin = std::chrono::steady_clock::now();
    dashboard.program.send(signal);
    const ProgramResult result = dashboard.program.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty());
  }
}

// As a shell without job control has its background commands do.
TEST_F(DashboardProgram, EndsByControlCThatWasIgnoredBefore) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  RunningDashboard dashboard(sandbox);
  std::signal(SIGINT, before);
  dashboard.program.send(SIGINT);
  EXPECT_EQ(dashboard.program.wait().exit_code, 0);
}

TEST_F(DashboardProgram, NamesAPortInUse) {
  RunningDashboard dashboard(sandbox);
  const std::string port = std::to_string(dashboard.port);
  const ProgramResult second = run(sandbox, "ridge dashboard --port " + port);
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(lines_of(second.err), SizeIs(1));
  EXPECT_THAT(second.err, AllOf(HasSubstr(port), HasSubstr("--port 0")));
}

TEST_F(DashboardProgram, WantsATokenElsewhere) {
  RunningDashboard dashboard(sandbox, " --listen 0.0.0.0");
  ASSERT_THAT(dashboard.rest, StartsWith("?token="));
  EXPECT_EQ(dashboard.rest.size(), std::string("?token=").size() + 32);
  EXPECT_THAT(dashboard.get("/api/runs"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(dashboard.get("/" + dashboard.rest), StartsWith("HTTP/1.1 303 "));
  const std::string cookie = "Cookie: ridge_dashboard_" + std::to_string(dashboard.port) + "=" +
                             dashboard.rest.substr(std::string("?token=").size()) + "\r\n";
  EXPECT_THAT(dashboard.get("/api/runs", cookie), StartsWith("HTTP/1.1 200 "));
}

TEST_F(DashboardProgram, TellsOfARunInProgress) {
  RunningDashboard dashboard(sandbox);
  HttpClient client(dashboard.port);
  client.send("GET /api/events HTTP/1.1\r\nHost: localhost:" + std::to_string(dashboard.port) +
              "\r\n\r\n");
  EXPECT_TRUE(client.wait_for("event: ready"));
  {
    RunningProgram training(sandbox, words_of("ridge train --num-steps 1000000 --record" + tiny));
    EXPECT_TRUE(client.wait_for("event: live"));
    EXPECT_TRUE(client.wait_for("\"last_step\":1000000"));
    training.send(SIGINT);
    EXPECT_EQ(training.wait().exit_code, 130);
  }
  EXPECT_TRUE(client.wait_for("event: ended"));
  EXPECT_TRUE(client.wait_for("\"run\":2,\"outcome\":\"interrupted\""));
  EXPECT_FALSE(sandbox.has(".ridge/runs.db-live"));
}

TEST_F(DashboardProgram, Exports) {
  const ProgramResult result = run(sandbox, "ridge dashboard --export page");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Wrote page/index.html"), HasSubstr(": 1 run\n")));
  sandbox.write("page/mine.txt", "x");
  const ProgramResult again = run(sandbox, "ridge dashboard --export page");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("mine.txt"));
}

TEST_F(DashboardProgram, RefusesWhatMakesNoSense) {
  for (const char* flags :
       {"--port 70000", "--listen nowhere", "--limit 3", "--filter version=v1", "--token short",
        "--export page --open", "--export page --limit 0", "--export page --filter version="}) {
    const ProgramResult result = run(sandbox, std::string("ridge dashboard ") + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_THAT(lines_of(result.err), SizeIs(1)) << flags;
  }
  const ProgramResult none = run(sandbox, "ridge dashboard --store missing.db");
  EXPECT_EQ(none.exit_code, 1);
}

}  // namespace
}  // namespace ridge
