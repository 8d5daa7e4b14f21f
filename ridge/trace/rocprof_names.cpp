#include "ridge/trace/rocprof_names.h"

#include "ridge/trace/trace_builder.h"

namespace ridge::trace {
namespace {

std::string_view place_of(std::string_view word) {
  if (word == "HOST") return "Host";
  return word == "DEVICE" ? "Device" : "";
}

}  // namespace

std::string rocprof_copy_name(std::string_view operation) {
  constexpr std::string_view prefix = "MEMORY_COPY_", between = "_TO_";
  if (operation.starts_with(prefix)) operation.remove_prefix(prefix.size());
  const auto at = operation.find(between);
  if (at == std::string_view::npos) return "Memcpy";
  const std::string_view from = place_of(operation.substr(0, at));
  const std::string_view to = place_of(operation.substr(at + between.size()));
  return from.empty() || to.empty() ? "Memcpy" : copy_name(from[0], to[0], from, to);
}

std::int64_t workgroups(std::int64_t items, std::int64_t items_of_group) {
  if (items <= 0 || items_of_group <= 0) return items;
  return items / items_of_group + (items % items_of_group != 0);
}

}  // namespace ridge::trace
