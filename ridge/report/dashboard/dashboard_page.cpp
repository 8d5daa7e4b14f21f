#include "ridge/report/dashboard/dashboard_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/report/dashboard/page/dashboard_assets.h"
#include "ridge/report/page/assets.h"
#include "ridge/report/page_template.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// By which a directory is known again.
constexpr std::string_view generator = R"(<meta name="generator" content="ridge dashboard">)";
constexpr std::string_view report_title = "<title>Ridge report</title>";
constexpr std::size_t max_page_bytes = std::size_t{1} << 30;
constexpr std::size_t max_document_bytes = std::size_t{96} << 20;  // of all runs of an export
constexpr std::size_t max_report_bytes = std::size_t{256} << 20;   // of all reports of profiles
constexpr std::size_t max_studies = 50;

std::string scripts() {
  std::string text(page_d3);
  text += "\n(() => {\n'use strict';\n";
  for (const std::string_view part :
       {page_common, page_steps, page_table, dashboard_backend, dashboard_columns, dashboard_charts,
        dashboard_runs, dashboard_run, dashboard_compare, dashboard_trends, dashboard_studies,
        dashboard_live, dashboard_app})
    text += part;
  return text + "startDashboard();\n})();\n";
}

std::string page_with(std::string_view head, std::string_view code) {
  const TemplatePart parts[] = {{"head", head}, {"d3_license", page_d3_license}, {"scripts", code}};
  return filled_template(dashboard_template, parts);
}

// A filter of the runs that are exported, for what is made of many of them.
std::string filter_of(const DashboardExport& request, std::string_view oldest) {
  if (oldest.empty()) return request.filter;
  const std::string newer = fmt::format("created>='{}'", oldest);
  return request.filter.empty() ? newer : fmt::format("({}) and {}", request.filter, newer);
}

// Collects the answers that a page without a server has.
class Replies {
 public:
  Replies(Dashboard& dashboard, const DashboardExport& request)
      : dashboard_(dashboard), request_(request) {}

  Json collect() {
    add_runs();
    add_trends();
    add_studies();
    all_["exported"] = {
        {"filter", request_.filter},
        {"runs", all_["runs"].size()},
        {"total", total_},
        {"when", utc_text(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()))}};
    return std::move(all_);
  }

 private:
  Json ask(std::string_view name, const HttpFields& parameters = {}) {
    return Json::parse(dashboard_.json(name, parameters));
  }

  void add_runs() {
    all_["columns"] = ask("columns");
    all_["store"] = ask("store");
    all_["store"]["file"] = fs::path(all_["store"]["file"].get<std::string>()).filename().string();
    all_["runs"] = Json::array();
    std::size_t bytes = 0;
    for (std::int64_t offset = 0; offset < request_.limit && bytes < max_document_bytes;) {
      const std::int64_t limit = std::min<std::int64_t>(request_.limit - offset, 500);
      const Json page = ask("runs", {{"filter", request_.filter},
                                     {"limit", std::to_string(limit)},
                                     {"offset", std::to_string(offset)}});
      total_ = page["total"];
      if (page["runs"].empty()) break;
      for (const Json& row : page["runs"]) {
        const std::string id = std::to_string(row["id"].get<std::int64_t>());
        const std::string document = dashboard_.json("run", {{"run", id}});
        bytes += document.size();
        if (bytes >= max_document_bytes) break;
        all_["runs"].push_back(row);
        all_["run"][id] = Json::parse(document);
        for (const Json& tag : row["tags"]) tags_.insert(tag.get<std::string>());
        if (const std::string study = row["study"]; !study.empty()) studies_.insert(study);
      }
      offset += limit;
    }
    all_["tags"] = {{"tags", tags_}};
  }

  void add_trends() {
    const bool is_part = std::cmp_less(all_["runs"].size(), total_);
    const std::string oldest =
        is_part && !all_["runs"].empty() ? all_["runs"].back()["created"].get<std::string>() : "";
    for (const Json& column : all_["columns"]["columns"]) {
      if (!column["measured"]) continue;
      const std::string metric = column["name"];
      all_["trend"][metric] =
          ask("trend", {{"filter", filter_of(request_, oldest)}, {"metric", metric}});
    }
  }

  void add_studies() {
    Json list = Json::array();
    const Json studies = ask("studies");
    for (const Json& study : studies["studies"]) {
      const std::string name = study["name"];
      if (!studies_.contains(name) || list.size() == max_studies) continue;
      list.push_back(study);
      all_["study"][name] = ask("study", {{"study", name}});
    }
    all_["studies"] = {{"studies", list}};
  }

  Dashboard& dashboard_;
  const DashboardExport& request_;
  Json all_ = Json::object();
  std::int64_t total_ = 0;
  std::set<std::string> tags_, studies_;
};

std::string report_name(std::int64_t run) { return fmt::format("profile-{}.html", run); }

bool names_report(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::string_view begin = "profile-", end = ".html";
  return name.size() > begin.size() + end.size() && name.starts_with(begin) &&
         name.ends_with(end) &&
         std::all_of(name.begin() + begin.size(), name.end() - end.size(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The reports of the profiles that the pages of runs show.
class Reports {
 public:
  Reports(Dashboard& dashboard, const fs::path& directory)
      : dashboard_(dashboard), directory_(directory) {}

  // Writes them, of the newest runs first, until they are too many bytes; `replies` get the runs of
  // whose profiles there is one.
  void write(Json& replies, DashboardExported& exported) {
    std::set<std::int64_t> seen, written;
    for (const Json& row : replies["runs"]) {
      const Json& run = replies["run"][std::to_string(row["id"].get<std::int64_t>())];
      const Json& profiled = run["profiled_run"];
      if (profiled.is_null() || !seen.insert(profiled.get<std::int64_t>()).second) continue;
      if (bytes_ >= max_report_bytes)
        ++exported.reports_left_out;
      else if (write_report(profiled))
        written.insert(profiled.get<std::int64_t>());
    }
    exported.reports = std::ssize(written);
    replies["exported"]["reports"] = written;
    for (const std::int64_t run : written) names_.insert(report_name(run));
  }

  // Removes those of an earlier export that are not among them.
  void remove_others() const {
    std::vector<fs::path> old;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_))
      if (names_report(entry.path()) && !names_.contains(entry.path().filename().string()))
        old.push_back(entry.path());
    std::error_code ignored;
    for (const fs::path& file : old) fs::remove(file, ignored);
  }

 private:
  // Whether there is a page of the run's profile.
  bool write_report(std::int64_t run) {
    std::optional<std::string> page;
    try {
      page = dashboard_.profile_page(std::to_string(run));
    } catch (const FormatError&) {  // a store may have been given anything as a profile
    }
    if (!page) return false;
    bytes_ += page->size();
    write_text_file(directory_ / report_name(run), *page);
    return true;
  }

  Dashboard& dashboard_;
  const fs::path& directory_;
  std::set<std::string> names_;  // of the files
  std::size_t bytes_ = 0;
};

// IoError unless a directory is empty or has nothing but an earlier export.
void check_directory(const fs::path& directory) {
  std::error_code fault;
  for (fs::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const bool is_index = entry->path().filename() == "index.html";
    const bool is_ours = (is_index || names_report(entry->path())) &&
                         entry->is_regular_file(fault) &&
                         read_text_file(entry->path(), max_page_bytes)
                                 .substr(0, 2000)
                                 .find(is_index ? generator : report_title) != std::string::npos;
    if (!is_ours)
      throw IoError(
          "{} has files that ridge dashboard did not write, such as {}: give a directory "
          "that is empty or does not exist",
          directory.string(), entry->path().filename().string());
  }
}

}  // namespace

std::optional<DashboardPart> dashboard_part(std::string_view path) {
  static const std::string code = scripts();
  static const std::string style = std::string(page_style) + std::string(dashboard_style);
  static const std::string page =
      page_with(R"(<link rel="stylesheet" href="style.css">)", R"(<script src="app.js"></script>)");
  if (path == "/") return DashboardPart{"text/html; charset=utf-8", page};
  if (path == "/app.js") return DashboardPart{"text/javascript; charset=utf-8", code};
  if (path == "/style.css") return DashboardPart{"text/css; charset=utf-8", style};
  return std::nullopt;
}

std::string dashboard_file(const Json& replies) {
  const std::string head = fmt::format(
      R"({}
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-src 'self' file:">
<style>
{}</style>)",
      generator, dashboard_part("/style.css")->text);
  const std::string code = fmt::format(
      "<script type=\"application/json\" id=\"replies\">{}</script>\n<script>\n{}</script>",
      harmless_in_html(replies), dashboard_part("/app.js")->text);
  return page_with(head, code);
}

DashboardExported export_dashboard(Dashboard& dashboard, const fs::path& directory,
                                   const DashboardExport& request) {
  check_directory(directory);
  Json replies = Replies(dashboard, request).collect();
  DashboardExported exported{.runs = replies["exported"]["runs"],
                             .total = replies["exported"]["total"]};
  make_directories(directory);
  Reports reports(dashboard, directory);
  reports.write(replies, exported);
  const std::string page = dashboard_file(replies);
  exported.bytes = page.size();
  write_text_file(directory / "index.html", page);
  reports.remove_others();  // which the page of before may have shown until now
  return exported;
}

}  // namespace ridge
