// Runs in progress, as events for a page.

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/report/dashboard/dashboard.h"
#include "ridge/study/live_run.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::chrono::hours forgotten_after{1};

std::string event(std::string_view name, const Json& data) {
  return std::string("event: ").append(name) +
         "\ndata: " + data.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
}

// What one page knows, and how that differs from what is.
class LiveFeed {
 public:
  explicit LiveFeed(fs::path store) : store_(std::move(store)) {}

  std::string next() {
    std::string text;
    std::map<Uuid, std::string> now;
    for (const LiveReport& run : live_runs(store_)) {
      Json data = run.json;
      data["alive"] = run.alive;
      std::string one = event("live", data);
      const auto known = known_.find(run.uuid);
      if (known == known_.end() || known->second != one) text += one;
      now.emplace(run.uuid, std::move(one));
    }
    for (const auto& [uuid, last] : known_)
      if (!now.contains(uuid)) text += event("ended", ended(uuid));
    if (!begun_) text += event("ready", {{"runs", now.size()}});
    begun_ = true;
    known_ = std::move(now);
    remove_dead_live_runs(store_, forgotten_after);
    return text;
  }

 private:
  // A run that removed its file: it is kept, unless the disk was full.
  Json ended(const Uuid& uuid) const {
    Json data{{"uuid", to_string(uuid)}, {"run", nullptr}};
    try {
      const RunRow row = Store(store_).find(to_string(uuid));
      data["run"] = row.id;
      data["outcome"] = row.outcome;
    } catch (const Error&) {
      data["outcome"] = "not kept";
    }
    return data;
  }

  fs::path store_;
  std::map<Uuid, std::string> known_;
  bool begun_ = false;
};

}  // namespace

std::function<std::string()> Dashboard::live_events() const {
  return [feed = std::make_shared<LiveFeed>(store_)] { return feed->next(); };
}

}  // namespace ridge
