#include "ridge/trace/check/event.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace ridge::trace {
namespace {

using Is = TraceValue::Is;
using Category = TraceEvent::Category;

constexpr std::array<std::pair<std::string_view, Category>, 12> categories{{
    {"cpu_op", Category::cpu_op},
    {"cuda_runtime", Category::runtime},
    {"cuda_driver", Category::runtime},
    {"kernel", Category::kernel},
    {"gpu_memcpy", Category::copy},
    {"gpu_memset", Category::fill},
    {"user_annotation", Category::annotation},
    {"gpu_user_annotation", Category::annotation},
    {"python_function", Category::python_function},
    {"ac2g", Category::flow_to_gpu},
    {"cuda_sync", Category::synchronization},
    {"Trace", Category::trace},
}};

}  // namespace

TraceEvent::Category TraceEvent::category_of(std::string_view text) {
  const auto found =
      std::ranges::find(categories, text, &std::pair<std::string_view, Category>::first);
  return found == categories.end() ? Category::other : found->second;
}

bool operator==(const TraceValue& a, const TraceValue& b) {
  if (a.is != b.is) return false;
  switch (a.is) {
    case Is::missing:
    case Is::null:
      return true;
    case Is::number:
      return a.integer && b.integer ? a.bits == b.bits : a.number == b.number;
    case Is::text:
      return a.text == b.text;
    default:
      return a.bits == b.bits;
  }
}

std::optional<std::uint64_t> identity_of(const TraceValue& value) {
  switch (value.is) {
    case Is::missing:
    case Is::null:
      return std::nullopt;
    case Is::number:
      return value.integer ? value.bits : std::hash<double>()(value.number);
    case Is::text:
      return std::hash<std::string_view>()(value.text);
    default:
      return value.bits;
  }
}

std::uint64_t track_of(const TraceEvent& event) {
  const std::uint64_t process = identity_of(event.process).value_or(~std::uint64_t{0});
  const std::uint64_t thread = identity_of(event.thread).value_or(~std::uint64_t{0});
  // An odd multiplier keeps small numbers of processes and threads apart.
  return process * 0x9e3779b97f4a7c15u + thread;
}

void TraceTally::note(std::uint32_t event, std::uint64_t times) {
  add({.count = times, .first = event});
}

void TraceTally::add(const TraceTally& other) {
  if (other.count == 0) return;
  count += other.count;
  if (!first || *other.first < *first) first = other.first;
}

TraceTally TraceTally::after(std::uint32_t before) const {
  return {.count = count, .first = first ? std::optional(before + *first) : std::nullopt};
}

}  // namespace ridge::trace
