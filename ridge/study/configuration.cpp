#include "ridge/study/configuration.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "ridge/session/options.h"
#include "ridge/study/run_row.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

const std::set<std::string, std::less<>>& options_without_effect() {
  static const std::set<std::string, std::less<>> names = [] {
    std::set<std::string, std::less<>> all;
    RunOptions options;
    for (const OptionInfo& option : options_of(options))
      if (option.group == "Output" || option.group == "Profiling") all.insert(option.name);
    return all;
  }();
  return names;
}

}  // namespace

std::string configuration_of(std::string_view options) {
  const Json given = json_object(options, "the options of a run");
  std::vector<std::string> entries;
  for (const auto& [name, value] : given.items())
    if (!options_without_effect().contains(name)) entries.push_back(one_line(Json{{name, value}}));
  std::ranges::sort(entries);
  std::string text;
  for (const std::string& entry : entries) text += entry;
  return text;
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
