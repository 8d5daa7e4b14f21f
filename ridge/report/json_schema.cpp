#include "ridge/report/json_schema.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace ridge {
namespace {

using ValidatedJson = nlohmann::json;  // the one that the validator reads
using Adapter = valijson::adapters::NlohmannJsonAdapter;

constexpr std::size_t most_elements = 1000;

// A document whose arrays are no longer than that.
ValidatedJson shortened(const ValidatedJson& json) {
  if (!json.is_structured()) return json;
  ValidatedJson result = json.is_array() ? ValidatedJson::array() : ValidatedJson::object();
  if (json.is_array())
    for (std::size_t i = 0; i < std::min(json.size(), most_elements); ++i)
      result.push_back(shortened(json[i]));
  else
    for (const auto& [name, member] : json.items()) result[name] = shortened(member);
  return result;
}

// The validator writes "<root>", "[rows]", "[1]".
std::string place_of(const std::vector<std::string>& context) {
  std::string place;
  for (const std::string& step : context)
    if (step.starts_with('['))
      place += fmt::format("{}{}", place.empty() ? "" : ".", step.substr(1, step.size() - 2));
  return place;
}

// It names a missing member in its words alone.
Breach breach_of(const valijson::ValidationResults::Error& error) {
  constexpr std::string_view missing = "Missing required property '";
  Breach breach{place_of(error.context), error.description};
  if (error.description.starts_with(missing)) {
    const std::string rest = error.description.substr(missing.size());
    breach.place +=
        fmt::format("{}{}", breach.place.empty() ? "" : ".", rest.substr(0, rest.find('\'')));
  }
  return breach;
}

}  // namespace

std::vector<Breach> breaches_of(const nlohmann::ordered_json& document, std::string_view schema) {
  const ValidatedJson rules = ValidatedJson::parse(schema), checked = document;
  valijson::Schema parsed;
  valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(Adapter(rules), parsed);
  valijson::Validator validator;
  // Without results it stops at the first breach; with them it keeps each, and each twice and more:
  // once for every level that has it.
  if (validator.validate(parsed, Adapter(checked), nullptr)) return {};
  const ValidatedJson looked_at = shortened(checked);
  valijson::ValidationResults results;
  validator.validate(parsed, Adapter(looked_at), &results);
  std::vector<Breach> breaches;
  for (const valijson::ValidationResults::Error& error : results)
    if (!error.description.starts_with("Failed to validate")) breaches.push_back(breach_of(error));
  if (breaches.empty())
    breaches.push_back({"", fmt::format("an element beyond the first {} of an array is of another "
                                        "kind",
                                        most_elements)});
  return breaches;
}

}  // namespace ridge
