#pragma once

// The dashboard of a store of runs: a page for a browser, and the answers that it asks for. It
// reads the store, the files of runs in progress beside it (study/live_run.h), and nothing else: no
// part of a request names a file.

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/report/dashboard/door.h"
#include "ridge/report/dashboard/http_message.h"
#include "ridge/report/dashboard/series.h"

namespace ridge {

class Dashboard {
 public:
  // `give_up` is asked while a question to the store takes long: whether the server is to end.
  explicit Dashboard(std::filesystem::path store, std::function<bool()> give_up = {});

  // The JSON that a page gets from "/api/NAME?PARAMETERS"; docs/use/dashboard.md describes each.
  // UsageError for a filter or a parameter that makes no sense.
  std::string json(std::string_view name, const HttpFields& parameters);

  // Answers a request, or refuses it (door.h).
  HttpReply answer(const HttpRequest& request, const DashboardDoor& door);

  // The page of `ridge report` of the profile that the store has of a run; none if it has none.
  // UsageError for a run that is not there.
  std::optional<std::string> profile_page(std::string_view run);

  // What is new of runs in progress since the last call, as events.
  std::function<std::string()> live_events() const;

 private:
  // A store that no other thread uses meanwhile.
  class Lease;
  std::unique_ptr<Store> take_store();
  HttpReply json_reply(const HttpRequest& request);
  HttpReply profile_reply(const HttpRequest& request);

  std::filesystem::path store_;
  std::function<bool()> give_up_;
  Configurations configurations_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Store>> idle_;
};

}  // namespace ridge
