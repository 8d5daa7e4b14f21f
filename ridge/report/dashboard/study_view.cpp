#include "ridge/report/dashboard/study_view.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "ridge/study/gathered_study.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_tables.h"
#include "ridge/study/study_text.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr int curve_pieces = 60;

// Points from the first to the last that was measured, in equal steps; none without a law.
Json curve_json(const StudyLaw& law) {
  Json curve = Json::array();
  const double from = law.points.front().x, to = law.points.back().x;
  for (int i = 0; i <= curve_pieces; ++i) {
    const double x = from + (to - from) * i / curve_pieces;
    if (const auto y = law.at(x)) curve.push_back({x, *y});
  }
  return curve;
}

}  // namespace

Json study_view(Store& store, std::string_view study) {
  const StudyResult result = find_study_result(store, study);
  Json view = Json::parse(study_json(result));
  view["gathered"] = result.gathered;
  view["notes"] = notes_of(result);
  const std::vector<StudyLaw> laws = laws_of(result);
  for (std::size_t i = 0; i < laws.size(); ++i) {
    Json& law = view["laws"][i];
    law["text"] = laws[i].text();
    law["growth_text"] = growth_text(laws[i]);
    law["power_text"] = power_text(laws[i]);
    law["curve"] = curve_json(laws[i]);
  }
  return view;
}

}  // namespace ridge
