#include "ridge/study/configuration.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/session/options.h"
#include "ridge/study/run_row.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view options_of_output[] = {"output-dir", "profile-dir", "log-interval"};
// Options that runs kept by earlier versions do not have, and what those did, as JSON.
constexpr std::pair<std::string_view, std::string_view> later_options[] = {
    {"ranks", "1"}, {"gpus", "0"},          {"ranks-per-gpu", "1"},
    {"zero", "0"},  {"micro-batches", "1"}, {"sync-batch-norm", "false"}};

}  // namespace

std::string configuration_of(std::string_view options) {
  const Json given = json_object(options, "the options of a run");
  std::map<std::string, Json> by_name;
  for (const auto& [name, value] : given.items()) by_name.emplace(name, value);
  for (const std::string_view name : options_of_output) by_name.erase(std::string(name));
  for (const auto& [name, value] : later_options)
    if (const auto found = by_name.find(std::string(name));
        found != by_name.end() && found->second.dump() == value)
      by_name.erase(found);
  return one_line(by_name);
}

std::vector<std::pair<std::string, std::string>> given_options(const Json& record) {
  std::vector<std::pair<std::string, std::string>> given;
  try {
    const Json options = record.value("options", Json::object());
    const Json usual = Json::parse(to_json(default_options(options.value("network", ""))));
    for (const auto& [name, value] : options.items()) {
      if (usual.contains(name) && usual[name] == value) continue;
      given.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  } catch (const Error&) {
    return {};  // a workload that this program does not know
  } catch (const Json::exception&) {
    return {};
  }
  return given;
}

}  // namespace ridge
