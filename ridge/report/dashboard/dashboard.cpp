#include "ridge/report/dashboard/dashboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/base/version.h"
#include "ridge/report/dashboard/comparison.h"
#include "ridge/report/dashboard/dashboard_page.h"
#include "ridge/report/dashboard/study_view.h"
#include "ridge/report/report_page.h"
#include "ridge/study/configuration.h"
#include "ridge/study/run_exchange.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds question_time{20};
constexpr std::int64_t most_runs = 1000, usual_runs = 50, most_compared = 4;
constexpr std::int64_t last_offset = std::int64_t{1} << 40;

std::string_view text_in(const HttpFields& parameters, std::string_view name,
                         std::string_view usual = {}) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? usual : std::string_view(found->second);
}

std::int64_t integer_in(const HttpFields& parameters, std::string_view name, std::int64_t usual,
                        std::int64_t least, std::int64_t most) {
  const std::string_view text = text_in(parameters, name);
  if (text.empty()) return usual;
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw UsageError("{} is a whole number from {} to {}, not {}", name, least, most, shown(text));
  return value;
}

std::string required(const HttpFields& parameters, std::string_view name) {
  const std::string_view text = text_in(parameters, name);
  if (text.empty()) throw UsageError("the question lacks a {}", name);
  return std::string(text);
}

std::string text_of_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view kind_of(const RunColumn& column) {
  if (column.is_date()) return "date";
  if (column.is_text()) return "text";
  if (std::holds_alternative<Uuid RunRow::*>(column.field)) return "uuid";
  return std::holds_alternative<std::optional<double> RunRow::*>(column.field) ? "real" : "integer";
}

std::string columns_json() {
  Json list = Json::array();
  for (const RunColumn& column : run_columns()) {
    const std::string_view kind = kind_of(column);
    const bool is_number = kind == "real" || kind == "integer";
    list.push_back(
        {{"name", column.name},
         {"alias", column.alias},
         {"kind", kind},
         {"measured", is_number && column.table == RunColumn::Table::runs && column.name != "id"}});
  }
  return text_of_json({{"columns", list}});
}

std::string store_json(Store& store) {
  const StoreStats stats = store.stats();
  return text_of_json({{"file", store.file().string()},
                       {"runs", stats.runs},
                       {"tags", stats.tags},
                       {"machines", stats.machines},
                       {"programs", stats.programs},
                       {"studies", stats.studies},
                       {"first", stats.first},
                       {"last", stats.last},
                       {"bytes", stats.bytes},
                       {"ridge_version", version()}});
}

// Rows as row_json() has them, put together as text: a page of a thousand is made in a millisecond.
std::string runs_json(Store& store, const HttpFields& parameters) {
  const std::string_view direction = text_in(parameters, "direction", "descending");
  if (direction != "ascending" && direction != "descending")
    throw UsageError("direction is ascending or descending, not {}", shown(direction));
  const RunQuery query{.filter = std::string(text_in(parameters, "filter")),
                       .order = std::string(text_in(parameters, "sort", "created")),
                       .descending = direction == "descending",
                       .limit = integer_in(parameters, "limit", usual_runs, 1, most_runs),
                       .offset = integer_in(parameters, "offset", 0, 0, last_offset)};
  const RunPage page = store.list(query);
  std::string text =
      fmt::format("{{\"total\":{},\"offset\":{},\"runs\":[", page.total, query.offset);
  for (const RunRow& row : page.runs) {
    if (!text.ends_with('[')) text += ',';
    text += row_json(row);
  }
  return text + "]}";
}

std::string run_json(Store& store, std::string_view reference) {
  const RunRow row = store.find(reference);
  const RunDocument document = store.document(row.id);
  Json given = Json::array();
  for (const auto& [name, value] : given_options(json_object(document.record, "the record")))
    given.push_back({{"name", name}, {"value", value}});
  const std::optional<std::int64_t> profiled = store.profiled_run(row.id);
  return fmt::format(R"({{"row":{},"given":{},"record":{},"context":{},"profiled_run":{}}})",
                     row_json(row), text_of_json(given), document.record, document.context,
                     profiled ? std::to_string(*profiled) : "null");
}

std::string compare_json(Store& store, std::string_view list) {
  std::vector<KeptRun> runs;
  while (!list.empty()) {
    const std::string_view reference = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), reference.size() + 1));
    if (std::ssize(runs) == most_compared)
      throw UsageError("at most {} runs are compared at once", most_compared);
    const RunRow row = store.find(reference);
    runs.push_back({row, store.document(row.id)});
  }
  if (runs.size() < 2) throw UsageError("two to {} runs are compared: runs=12,13", most_compared);
  return text_of_json(comparison_json(runs));
}

// Those with runs, the newest first, and then those that have only been begun.
std::string studies_json(Store& store) {
  Json list = Json::array();
  std::set<std::string> names;
  for (const RunsOfStudy& study : store.runs_by_study()) {
    names.insert(study.name);
    list.push_back(
        {{"name", study.name}, {"runs", study.runs}, {"first", study.first}, {"last", study.last}});
  }
  for (const StudyRow& study : store.studies())
    if (!names.contains(study.name))
      list.push_back(
          {{"name", study.name}, {"runs", 0}, {"first", study.created}, {"last", study.created}});
  return text_of_json({{"studies", list}});
}

}  // namespace

class Dashboard::Lease {
 public:
  explicit Lease(Dashboard& dashboard) : dashboard_(dashboard), store_(dashboard.take_store()) {
    store_->give_up_when([this, until = Clock::now() + question_time] {
      return Clock::now() > until || (dashboard_.give_up_ && dashboard_.give_up_());
    });
  }
  ~Lease() {
    store_->give_up_when({});
    const std::lock_guard lock(dashboard_.mutex_);
    dashboard_.idle_.push_back(std::move(store_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Store& store() { return *store_; }

 private:
  Dashboard& dashboard_;
  std::unique_ptr<Store> store_;
};

Dashboard::Dashboard(std::filesystem::path store, std::function<bool()> give_up)
    : store_(std::move(store)), give_up_(std::move(give_up)) {
  idle_.push_back(std::make_unique<Store>(store_));  // which may be refused: now is the time
}

std::unique_ptr<Store> Dashboard::take_store() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Store> store = std::move(idle_.back());
      idle_.pop_back();
      return store;
    }
  }
  return std::make_unique<Store>(store_);
}

std::string Dashboard::json(std::string_view name, const HttpFields& parameters) {
  if (name == "columns") return columns_json();
  Lease lease(*this);
  Store& store = lease.store();
  const auto begin = Clock::now();
  try {
    if (name == "store") return store_json(store);
    if (name == "tags") return text_of_json({{"tags", store.tags()}});
    if (name == "runs") return runs_json(store, parameters);
    if (name == "run") return run_json(store, required(parameters, "run"));
    if (name == "compare") return compare_json(store, required(parameters, "runs"));
    if (name == "trend")
      return text_of_json(trend_json(store, configurations_, text_in(parameters, "filter"),
                                     text_in(parameters, "metric", "median_seconds")));
    if (name == "studies") return studies_json(store);
    if (name == "study") return text_of_json(study_view(store, required(parameters, "study")));
  } catch (const UsageError&) {
    throw;
  } catch (const Error&) {
    if (Clock::now() - begin < question_time) throw;
    throw UsageError(
        "the question took longer than {} seconds: filter by columns, which are fast, rather than "
        "by paths",
        question_time.count());
  }
  throw UsageError("there is no answer {}", shown(name));
}

HttpReply Dashboard::json_reply(const HttpRequest& request) {
  const std::string_view name =
      std::string_view(request.path).substr(std::string_view("/api/").size());
  HttpReply reply{.type = "application/json"};
  if (name == "events") {
    reply.type = "text/event-stream";
    reply.events = live_events();
    return reply;
  }
  try {
    reply.body = json(name, request.parameters);
  } catch (const UsageError& error) {
    reply.status = 400;
    reply.body = text_of_json({{"error", error.what()}});
  } catch (const std::exception& error) {
    reply.status = 500;
    reply.body = text_of_json({{"error", error.what()}});
  }
  return reply;
}

std::optional<std::string> Dashboard::profile_page(std::string_view run) {
  Lease lease(*this);
  const RunRow row = lease.store().find(run);
  const std::string text = lease.store().profile(row.id);
  if (text.empty()) return std::nullopt;
  Json document = Json::parse(text, nullptr, false);
  check_profile_document(document);
  document["profile"] = fmt::format("Run {}: {} {}", row.id, row.workload, row.version);
  return report_page(document);
}

HttpReply Dashboard::profile_reply(const HttpRequest& request) {
  try {
    const std::string run = required(request.parameters, "run");
    const std::optional<std::string> page = profile_page(run);
    if (!page) return {.status = 404, .body = fmt::format("run {} has no profile\n", run)};
    return {.type = "text/html; charset=utf-8", .body = *page};
  } catch (const UsageError& error) {
    return {.status = 404, .body = std::string(error.what()) + "\n"};
  } catch (const Error& error) {
    return {.status = 500, .body = std::string(error.what()) + "\n"};
  }
}

HttpReply Dashboard::answer(const HttpRequest& request, const DashboardDoor& door) {
  HttpReply reply;
  bool is_profile = false;
  if (auto refusal = refusal_of(request, door)) {
    reply = *std::move(refusal);
  } else if (request.path.starts_with("/api/")) {
    reply = json_reply(request);
  } else if (request.path == "/profile") {
    reply = profile_reply(request);
    is_profile = true;
  } else if (const auto part = dashboard_part(request.path)) {
    reply.type = part->type;
    reply.body = part->text;
  } else {
    reply = {.status = 404, .body = "there is no such page; the dashboard is at /\n"};
  }
  add_security_headers(reply);
  if (is_profile) confine_profile(reply);
  return reply;
}

}  // namespace ridge
