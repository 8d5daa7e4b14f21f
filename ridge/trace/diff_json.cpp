#include <nlohmann/json.hpp>

#include "ridge/trace/diff.h"

namespace ridge::trace {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const DiffSide& side) {
  Json idle = Json::object();
  for (std::size_t i = 0; i < idle_causes; ++i)
    idle[idle_cause_name(static_cast<IdleCause>(i))] = side.split.idle[i];
  return {{"file", side.file},
          {"rank", side.rank ? Json(*side.rank) : Json(nullptr)},
          {"device", side.device},
          {"damaged", side.damage.any()},
          {"steps", side.steps},
          {"step_span_us", side.span_us},
          {"span_us", side.split.span},
          {"compute_us", side.split.compute},
          {"exposed_communication_us", side.split.exposed_communication},
          {"exposed_copy_us", side.split.exposed_copy},
          {"idle_us", idle}};
}

Json shape_of(const std::string& shape) {
  return shape.empty() ? Json(nullptr) : Json::parse(shape, nullptr, false);
}

Json json_of(const DiffRow& row, double all_us) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  return {{"kind", diff_kind_name(row.kind)},
          {"path", row.path},
          {"idle", row.idle ? Json(idle_cause_name(*row.idle)) : Json(nullptr)},
          {"input_dims_before", shape_of(row.shape_before)},
          {"input_dims_after", shape_of(row.shape_after)},
          {"kernel_before", or_null(row.kernel_before)},
          {"kernel_after", or_null(row.kernel_after)},
          {"kernels", row.kernels},
          {"calls_before", row.calls_before},
          {"calls_after", row.calls_after},
          {"before_us", row.before_us},
          {"after_us", row.after_us},
          {"difference_us", row.difference_us()},
          {"part", all_us != 0 ? Json(row.difference_us() / all_us) : Json(nullptr)},
          {"ran_before_us", row.ran_before_us},
          {"ran_after_us", row.ran_after_us}};
}

Json json_of(const OperatorDiff& one) {
  return {{"name", one.name},
          {"calls_before", one.calls_before},
          {"calls_after", one.calls_after},
          {"host_before_us", one.host_before_us},
          {"host_after_us", one.host_after_us},
          {"device_before_us", one.device_before_us},
          {"device_after_us", one.device_after_us}};
}

Json json_of(const TraceDiff& diff) {
  Json rows = Json::array(), operators = Json::array();
  for (const DiffRow& row : diff.rows) rows.push_back(json_of(row, diff.difference_us()));
  for (const OperatorDiff& one : diff.operators) operators.push_back(json_of(one));
  Json interval = nullptr;
  if (diff.interval_us) interval = {diff.interval_us->low, diff.interval_us->high};
  return {{"before", json_of(diff.before)},
          {"after", json_of(diff.after)},
          {"of_host", diff.of_host},
          {"difference_us", diff.difference_us()},
          {"interval_us", interval},
          {"rest_us", diff.rest_us()},
          {"rows", rows},
          {"operators", operators}};
}

}  // namespace

std::string diff_json(const std::vector<TraceDiff>& diffs) {
  Json ranks = Json::array();
  for (const TraceDiff& diff : diffs) ranks.push_back(json_of(diff));
  const Json json = {{"schema", "ridge-trace-diff/1"}, {"ranks", ranks}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge::trace
