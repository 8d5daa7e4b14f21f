// What a dashboard answers, without a socket.

#include "ridge/report/dashboard/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/base/file.h"
#include "ridge/report/dashboard/dashboard_page.h"
#include "ridge/study/configuration.h"
#include "ridge/study/study_text.h"
#include "tests/study/made_study.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MadeRun;
using ::testing::Not;
using ::testing::SizeIs;

struct Answers : ::testing::Test {
  testing::MadeStore made;
  Dashboard dashboard{made.file};

  json ask(std::string_view name, const HttpFields& parameters = {}) {
    return json::parse(dashboard.json(name, parameters));
  }
  // Runs a day apart, one a commit, that take so many seconds a step.
  void add_series(const std::vector<double>& seconds, MadeRun run = {}) {
    std::vector<RunDocument> runs;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      run.median_seconds = seconds[i];
      run.created += 86'400;
      run.commit = fmt::format("commit{}", i);
      runs.push_back(document_of(run));
    }
    made.store.add(runs);
  }
};

TEST_F(Answers, ListRuns) {
  for (int i = 1; i <= 7; ++i) {
    MadeRun run{.version = i % 2 == 0 ? "v4" : "v1", .created = 1'790'000'000 + i};
    run.median_seconds = 0.1 * (i * 3 % 7 + 1);
    made.store.add(document_of(run));
  }
  const json all = ask("runs");
  EXPECT_EQ(all["total"], 7);
  EXPECT_EQ(all["runs"][0]["id"], 7);
  const json page = ask("runs", {{"limit", "2"}, {"offset", "4"}});
  EXPECT_EQ(page["total"], 7);
  EXPECT_EQ(page["runs"][0]["id"], 3);
  EXPECT_THAT(page["runs"], SizeIs(2));
  const json fast = ask("runs", {{"filter", "version=v4"},
                                 {"sort", "median_seconds"},
                                 {"direction", "ascending"},
                                 {"limit", "1"},
                                 {"offset", "1"}});
  EXPECT_EQ(fast["total"], 3);
  EXPECT_EQ(fast["runs"][0]["id"], 4);  // of 2, 4, 6 with 0.7, 0.6, 0.5 seconds
  EXPECT_THAT(ask("runs", {{"offset", "100"}})["runs"], SizeIs(0));
  EXPECT_THAT(ask("runs", {{"filter", "version=v4"}, {"offset", "100"}})["runs"], SizeIs(0));
}

TEST_F(Answers, RefuseWhatMakesNoSense) {
  for (const auto& [name, parameters] : std::vector<std::pair<std::string, HttpFields>>{
           {"runs", {{"filter", "version="}}},
           {"runs", {{"filter", "nothing=1"}}},
           {"runs", {{"sort", "nothing"}}},
           {"runs", {{"limit", "0"}}},
           {"runs", {{"limit", "-1"}}},
           {"runs", {{"limit", "1e3"}}},
           {"runs", {{"limit", "99999999999999999999"}}},
           {"runs", {{"direction", "up"}}},
           {"run", {}},
           {"run", {{"run", "12"}}},
           {"run", {{"run", "../../etc/passwd"}}},
           {"compare", {{"runs", "1"}}},
           {"trend", {{"metric", "workload"}}},
           {"study", {{"study", "none' or 1=1"}}},
           {"nothing", {}}})
    EXPECT_THROW(ask(name, parameters), UsageError) << name;
}

TEST_F(Answers, ShowARun) {
  made.store.add(document_of({.hidden_dim = 512}, {"baseline"}));
  const json run = ask("run", {{"run", "baseline"}});
  EXPECT_EQ(run["row"]["id"], 1);
  EXPECT_EQ(run["record"]["performance_summary"]["losses"].size(), 4u);
  EXPECT_EQ(run["context"]["kernels_per_step"], 293);
  EXPECT_THAT(run["given"], Contains(json({{"name", "hidden-dim"}, {"value", "512"}})));
}

TEST_F(Answers, DescribeColumnsTagsAndTheStore) {
  made.store.add(document_of({}, {"b", "a"}));
  EXPECT_EQ(ask("tags")["tags"], json({"a", "b"}));
  EXPECT_EQ(ask("store")["runs"], 1);
  EXPECT_THAT(ask("columns")["columns"], Contains(json({{"name", "median_seconds"},
                                                        {"alias", "seconds"},
                                                        {"kind", "real"},
                                                        {"measured", true}})));
}

TEST_F(Answers, FindWhereATrendChanges) {
  std::vector<double> seconds;
  for (int i = 0; i < 60; ++i)
    seconds.push_back((i < 30 ? 0.1 : 0.13) * (1 + 0.002 * std::sin(7.0 * i)));
  add_series(seconds);
  const json trend = ask("trend", {{"filter", "workload=tiny_llama"}});
  EXPECT_EQ(trend["runs"], 60);
  ASSERT_THAT(trend["series"], SizeIs(1));
  const json& series = trend["series"][0];
  EXPECT_THAT(series["points"]["run"], SizeIs(60));
  ASSERT_THAT(series["changes"], SizeIs(1));
  const json& change = series["changes"][0];
  EXPECT_EQ(change["run_before"], 30);
  EXPECT_EQ(change["run"], 31);
  EXPECT_EQ(change["commit_before"], "commit29");
  EXPECT_EQ(change["commit"], "commit30");
  EXPECT_NEAR(change["change"], 0.3, 0.01);
  EXPECT_EQ(trend["commits"][series["points"]["commit"][30].get<std::size_t>()], "commit30");
}

TEST_F(Answers, KeepSeriesApart) {
  add_series({1, 1, 1});
  add_series({2, 2}, {.batch_size = 16});
  add_series({3}, {.device = "cuda", .gpu = "NVIDIA H100"});
  add_series({4}, {.hidden_dim = 512});
  const json trend = ask("trend");
  EXPECT_EQ(trend["groups"], 4);
  std::vector<std::string> labels;
  std::vector<int> runs;
  for (const json& series : trend["series"]) {
    labels.push_back(series["label"]);
    runs.push_back(series["runs"]);
  }
  EXPECT_THAT(runs, ElementsAre(3, 2, 1, 1));
  EXPECT_EQ(labels[1], "tiny_llama training v1 fp32, batch 16 × 128");
  EXPECT_THAT(labels, Contains(HasSubstr("NVIDIA H100")));
  EXPECT_THAT(labels, Contains(HasSubstr("hidden-dim 512")));
}

TEST_F(Answers, DrawAllOfALongTrend) {
  std::vector<double> seconds(20'000, 1.0);
  seconds[777] = 9, seconds[15'000] = 0.5;
  std::vector<SeriesPoint> points;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    points.push_back({.created = static_cast<std::int64_t>(i), .value = seconds[i]});
  const std::vector<std::size_t> kept = sampled(points, 500);
  EXPECT_LE(kept.size(), 500u);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  EXPECT_THAT(kept, Contains(0u));
  EXPECT_THAT(kept, Contains(777u));
  EXPECT_THAT(kept, Contains(15'000u));
  EXPECT_THAT(kept, Contains(19'999u));
}

TEST_F(Answers, CompareRuns) {
  made.store.add(document_of({.median_seconds = 0.1}));
  made.store.add(document_of({.version = "v4", .batch_size = 16, .median_seconds = 0.05}));
  const json compared = ask("compare", {{"runs", "1,2"}});
  const auto entry = [&](const char* list, const char* name) {
    for (const json& one : compared[list])
      if (one["name"] == name) return one;
    return json();
  };
  EXPECT_EQ(entry("options", "version")["values"], json({"v1", "v4"}));
  EXPECT_EQ(entry("options", "batch-size")["values"], json({8, 16}));
  EXPECT_TRUE(entry("options", "seed").is_null());  // both have the same
  EXPECT_EQ(entry("metrics", "median_seconds")["ratios"], json({1.0, 0.5}));
  EXPECT_THAT(compared["runs"][0]["step_quantiles"], SizeIs(101));
  EXPECT_EQ(compared["runs"][1]["losses"]["value"][0], 7.0);
  EXPECT_THROW(ask("compare", {{"runs", "1,2,1,2,1"}}), UsageError);
}

TEST_F(Answers, JoinOperatorsByName) {
  const auto with_operators = [](std::initializer_list<std::pair<const char*, int>> operators) {
    RunDocument run = document_of({});
    json context = json::parse(run.context);
    context["operators"] = {{"steps", 2}, {"rows", json::array()}};
    for (const auto& [name, nanoseconds] : operators)
      context["operators"]["rows"].push_back(
          {{"name", name}, {"total", {{"time_ns", nanoseconds}}}});
    context["operators"]["rows"].push_back("no row");
    run.context = context.dump();
    return run;
  };
  made.store.add(with_operators({{"matmul", 400}, {"add", 2000}}));
  made.store.add(with_operators({{"matmul", 800}, {"fused", 100}}));
  const json operators = ask("compare", {{"runs", "1,2"}})["operators"];
  ASSERT_THAT(operators, SizeIs(3));
  EXPECT_EQ(operators[0], json({{"name", "add"}, {"seconds", {1e-9 * 2000.0 / 2, nullptr}}}));
  EXPECT_EQ(operators[1]["name"], "matmul");
  EXPECT_EQ(operators[2]["seconds"][0], nullptr);
}

// By its own names, plans, laws and answers.
TEST(StudyAnswers, AreThoseOfRidgeStudy) {
  testing::MadeStudy study({"tiny"}, {"batch-size=1,2,4,8"}, 6);
  for (std::int64_t v = 0; v < 4; ++v)
    for (std::int64_t round = 1; round <= 6; ++round)
      study.measure(v, round,
                    0.010 + 0.002 * static_cast<double>(1 << v) +
                        1e-6 * static_cast<double>((v + round) % 3));
  Dashboard dashboard(study.made.file);
  const json reply = json::parse(dashboard.json("study", {{"study", "s"}}));
  const json own = json::parse(study_json(study.result()));
  EXPECT_FALSE(reply["gathered"]);
  EXPECT_EQ(reply["variants"], own["variants"]);
  EXPECT_EQ(reply["variants"][3]["name"], "tiny, batch-size 8");
  EXPECT_EQ(reply["answers"], own["answers"]);
  ASSERT_EQ(reply["laws"].size(), own["laws"].size());
  const json& law = reply["laws"][0];
  EXPECT_EQ(law["growth"], own["laws"][0]["growth"]);
  EXPECT_THAT(law["growth_text"], HasSubstr("10 + 2 x ("));
  EXPECT_THAT(law["curve"], SizeIs(61));
  EXPECT_NEAR(law["curve"][60][1], 26, 0.1) << "ms, of a batch of 8";
  EXPECT_THAT(reply["notes"], SizeIs(1)) << "of the workshop's sizes";
}

TEST_F(Answers, GatherTheRunsOfAStudyThatIsElsewhere) {
  for (const std::int64_t batch : {1, 2, 4, 8, 16})
    for (const char* version : {"v1", "v4"}) {
      const double scale = version[1] == '1' ? 2 : 1;
      RunDocument run =
          document_of({.version = version,
                       .batch_size = batch,
                       .median_seconds = scale * (0.01 + 0.002 * static_cast<double>(batch))});
      run.study = "it's a study";
      made.store.add(run);
    }
  const json studies = ask("studies")["studies"];
  ASSERT_THAT(studies, SizeIs(1));
  EXPECT_EQ(studies[0]["runs"], 10);
  const json study = ask("study", {{"study", "it's a study"}});
  EXPECT_TRUE(study["gathered"]);
  EXPECT_THAT(study["variants"], SizeIs(10));
  ASSERT_THAT(study["laws"], SizeIs(6));
  EXPECT_EQ(study["laws"][0]["text"], "20 + 4 x");
  EXPECT_EQ(study["laws"][0]["where"], "version v1");
  made.store.add_study({.name = "begun", .created = 9, .definition = "{}", .plans = "[]"});
  EXPECT_EQ(ask("studies")["studies"][1]["name"], "begun");
}

TEST_F(Answers, AreGivenUpWhenTheServerEnds) {
  std::vector<RunDocument> runs;
  for (int i = 0; i < 3000; ++i) runs.push_back(document_of({.seed = i}));
  made.store.add(runs);
  bool ends = false;
  Dashboard ending(made.file, [&] { return ends; });
  EXPECT_NO_THROW(ending.json("runs", {{"filter", "system_info.os=Linux"}}));
  ends = true;
  EXPECT_THROW(ending.json("runs", {{"filter", "system_info.os=Linux"}}), Error);
}

TEST(Configuration, LeavesOutWhatChangesNothing) {
  EXPECT_EQ(configuration_of(R"({"batch-size":8,"output-dir":"a","profile-dir":"b"})"),
            configuration_of(R"({"output-dir":"c","batch-size":8})"));
  EXPECT_NE(configuration_of(R"({"batch-size":8})"), configuration_of(R"({"batch-size":9})"));
  // What runs did before there was such an option.
  EXPECT_EQ(configuration_of(R"({"batch-size":8})"),
            configuration_of(R"({"batch-size":8,"ranks":1})"));
  EXPECT_NE(configuration_of(R"({"batch-size":8})"),
            configuration_of(R"({"batch-size":8,"ranks":2})"));
  EXPECT_NE(configuration_of(R"({"version":"v1"})"), configuration_of(R"({"version":"v2"})"));
  EXPECT_THROW(configuration_of("[]"), FormatError);
}

TEST_F(Answers, AreExportedAsOneFile) {
  for (int i = 0; i < 5; ++i) {
    RunDocument run = document_of({.host = "</script><script>alert(1)</script>", .seed = i},
                                  {fmt::format("<tag {}>", i)});
    run.study = i == 0 ? "oldest" : "newest";
    made.store.add(run);
  }
  const fs::path directory = made.directory.path / "public" / "page";
  const DashboardExported written = export_dashboard(dashboard, directory, {.limit = 3});
  EXPECT_EQ(written.runs, 3);
  EXPECT_EQ(written.total, 5);
  const std::string page = read_text_file(directory / "index.html", 1 << 26);
  EXPECT_EQ(page.size(), written.bytes);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(page, Not(HasSubstr(made.directory.path.string())));
  const std::string open = R"(id="replies">)";
  const std::size_t begin = page.find(open) + open.size();
  const json replies = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_THAT(replies["runs"], SizeIs(3));
  EXPECT_THAT(replies["run"], SizeIs(3));
  EXPECT_EQ(replies["tags"]["tags"], json({"<tag 2>", "<tag 3>", "<tag 4>"}));
  EXPECT_THAT(replies["studies"]["studies"], SizeIs(1));  // of runs that are not exported, nothing
  EXPECT_NO_THROW(export_dashboard(dashboard, directory, {}));  // again
  std::ofstream(directory / "other.txt") << "x";
  EXPECT_THROW(export_dashboard(dashboard, directory, {}), IoError);
  fs::remove(directory / "other.txt");
  std::ofstream(directory / "index.html") << "<html>mine</html>";
  EXPECT_THROW(export_dashboard(dashboard, directory, {}), IoError);
  EXPECT_EQ(read_text_file(directory / "index.html", 100), "<html>mine</html>");
}

TEST_F(Answers, AreExportedWithTheReportsOfProfiles) {
  const fs::path directory = made.directory.path / "public";
  for (int i = 1; i <= 4; ++i) {
    made.store.add(document_of({.seed = i}, {fmt::format("run-{}", i)}));
    if (i != 3) made.store.set_profile(i, testing::profile_of_nothing("</script>alert(1)"));
  }
  const auto export_with = [&](const std::string& filter) {
    return export_dashboard(dashboard, directory, {.filter = filter});
  };
  const DashboardExported written = export_with("");
  EXPECT_EQ(written.runs, 4);
  EXPECT_EQ(written.reports, 3);
  EXPECT_EQ(written.reports_left_out, 0);
  for (const int run : {1, 2, 4})
    EXPECT_THAT(read_text_file(directory / fmt::format("profile-{}.html", run), 1 << 26),
                HasSubstr("<title>Ridge report</title>"));
  EXPECT_FALSE(fs::exists(directory / "profile-3.html"));
  EXPECT_THAT(read_text_file(directory / "index.html", 1 << 26), HasSubstr(R"("reports":[1,2,4])"));
  EXPECT_EQ(export_with("tag=run-2").reports, 1) << "again, of one run";
  EXPECT_TRUE(fs::exists(directory / "profile-2.html"));
  EXPECT_FALSE(fs::exists(directory / "profile-1.html"));
  made.store.set_profile(2, "{}");
  EXPECT_EQ(export_with("tag=run-2").reports, 0) << "of what is no profile";
  std::ofstream(directory / "profile-7.html") << "<html>mine</html>";
  EXPECT_THROW(export_with(""), IoError);
  EXPECT_TRUE(fs::exists(directory / "profile-7.html"));
}

struct Doors : Answers {
  DashboardDoor door{.address = "127.0.0.1", .port = 8321};
  HttpRequest request(std::string path, HttpFields headers = {}, HttpFields parameters = {}) {
    headers.try_emplace("host", "127.0.0.1:8321");
    return {.method = "GET",
            .path = std::move(path),
            .parameters = std::move(parameters),
            .headers = std::move(headers)};
  }
  HttpReply reply(const HttpRequest& asked) { return dashboard.answer(asked, door); }
};

TEST_F(Doors, AnswerPagesAndQuestions) {
  for (const char* path : {"/", "/app.js", "/style.css", "/api/runs", "/api/events"}) {
    const HttpReply found = reply(request(path));
    EXPECT_EQ(found.status, 200) << path;
    EXPECT_THAT(found.headers.at("Content-Security-Policy"), HasSubstr("default-src 'none'"));
    EXPECT_EQ(found.headers.at("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(found.headers.at("Referrer-Policy"), "no-referrer");
  }
  EXPECT_EQ(reply(request("/api/runs", {}, {{"filter", "x"}})).status, 400);
  EXPECT_THAT(reply(request("/api/runs", {}, {{"filter", "x"}})).body, HasSubstr("\"error\""));
}

TEST_F(Doors, LeadToNoFile) {
  for (const char* path :
       {"/../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/style.css/../../x", "/%2e%2e/",
        "/runs.db", "/app.js%00", "/index.html", "/favicon.ico", "/.ridge/runs.db"})
    EXPECT_EQ(reply(request(path)).status, 404) << path;
  EXPECT_EQ(reply(request("/api/../runs.db")).status, 400);
}

// The page of a profile comes from the store alone, and as a page of nobody.
TEST_F(Doors, LeadToTheProfilesOfRuns) {
  made.store.add(std::vector<RunDocument>{document_of({}, {"first"}), document_of({.seed = 7})});
  const auto page = [&](const char* run) { return reply(request("/profile", {}, {{"run", run}})); };
  for (const char* run : {"1", "9", "../../etc/passwd", "/etc/passwd", ""})
    EXPECT_EQ(page(run).status, 404) << run;
  EXPECT_EQ(reply(request("/profile/../x")).status, 404);
  EXPECT_EQ(ask("run", {{"run", "1"}})["profiled_run"], nullptr);
  made.store.set_profile(1, testing::profile_of_nothing("</script><script>alert(1)</script>"));
  EXPECT_EQ(ask("run", {{"run", "first"}})["profiled_run"], 1);
  EXPECT_EQ(ask("run", {{"run", "2"}})["profiled_run"], nullptr);
  const HttpReply found = page("first");
  EXPECT_EQ(found.status, 200);
  EXPECT_THAT(found.body, AllOf(HasSubstr("<html"), Not(HasSubstr("alert(1)</script>"))));
  const std::string policy = found.headers.at("Content-Security-Policy");
  EXPECT_THAT(policy, AllOf(HasSubstr("default-src 'none'"), HasSubstr("sandbox allow-scripts"),
                            HasSubstr("frame-ancestors 'self'"), Not(HasSubstr("connect-src"))));
  EXPECT_FALSE(found.headers.contains("Cross-Origin-Opener-Policy"));
  EXPECT_EQ(found.headers.at("X-Frame-Options"), "SAMEORIGIN");
  // What somebody imported and is no profile.
  made.store.set_profile(2, R"({"operators":{"rows":"<img>"},"roof":null})");
  EXPECT_EQ(page("2").status, 500);
  EXPECT_THAT(page("2").body, HasSubstr("not as ridge writes it"));
  EXPECT_EQ(reply(request("/profile", {{"host", "evil"}}, {{"run", "1"}})).status, 403);
}

TEST_F(Doors, AreClosedToOtherNames) {
  for (const char* host : {"localhost:8321", "127.0.0.1:8321"})
    EXPECT_EQ(reply(request("/", {{"host", host}})).status, 200) << host;
  for (const char* host : {"evil.example", "evil.example:8321", "127.0.0.1", "127.0.0.1:80", "",
                           "127.0.0.1:8321.evil.example", "localhost:8321@evil"})
    EXPECT_EQ(reply(request("/", {{"host", host}})).status, 403) << host;
}

TEST_F(Doors, AreClosedToOtherSites) {
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_EQ(reply(request("/api/runs", {{"sec-fetch-site", site}})).status, 403);
    EXPECT_EQ(reply(request("/", {{"sec-fetch-site", site}})).status, 200);  // a link to the page
  }
  EXPECT_EQ(reply(request("/api/runs", {{"sec-fetch-site", "same-origin"}})).status, 200);
}

TEST_F(Doors, WantTheToken) {
  door = {.address = "0.0.0.0", .port = 8321, .token = "secret-token"};
  const HttpFields host{{"host", "anything"}};
  EXPECT_EQ(reply(request("/", host)).status, 403);
  EXPECT_EQ(reply(request("/api/runs", host)).status, 403);
  EXPECT_EQ(reply(request("/", host, {{"token", "secret-tokem"}})).status, 403);
  EXPECT_EQ(reply(request("/", host, {{"token", ""}})).status, 403);
  const HttpReply in = reply(request("/", host, {{"token", "secret-token"}}));
  EXPECT_EQ(in.status, 303);
  EXPECT_EQ(in.headers.at("Location"), "/");
  EXPECT_EQ(in.headers.at("Set-Cookie"),
            "ridge_dashboard_8321=secret-token; HttpOnly; SameSite=Strict; Path=/");
  const auto with_cookie = [&](const char* cookie) {
    return reply(request("/api/runs", {{"host", "anything"}, {"cookie", cookie}})).status;
  };
  EXPECT_EQ(with_cookie("ridge_dashboard_8321=secret-token"), 200);
  EXPECT_EQ(with_cookie("ridge_dashboard_8322=secret-token"), 403);
  EXPECT_EQ(with_cookie("ridge_dashboard_8321=secret-toke"), 403);
}

TEST(Tokens, AreRandomAndCompared) {
  EXPECT_EQ(random_token().size(), 32u);
  EXPECT_NE(random_token(), random_token());
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

}  // namespace
}  // namespace ridge
