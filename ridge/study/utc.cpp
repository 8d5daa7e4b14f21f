#include "ridge/study/utc.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

namespace ridge {
namespace {

using std::chrono::days;
using std::chrono::seconds;
using std::chrono::sys_days;
using std::chrono::sys_seconds;

struct Part {
  std::string_view before;  // one of these stands before its digits
  std::size_t digits;
  int most;
  std::int64_t seconds;  // how long it lasts; 0: that depends
};
constexpr std::array<Part, 6> parts{{{"", 4, 9999, 0},
                                     {"-", 2, 12, 0},
                                     {"-", 2, 31, 86400},
                                     {"T ", 2, 23, 3600},
                                     {":", 2, 59, 60},
                                     {":", 2, 59, 1}}};
constexpr std::size_t month_part = 1, day_part = 2;

// Reads one part off the front of a text.
std::optional<int> take(std::string_view& text, const Part& part) {
  if (!part.before.empty()) {
    if (part.before.find(text.front()) == text.npos) return std::nullopt;
    text.remove_prefix(1);
  }
  if (text.size() < part.digits) return std::nullopt;
  int number = 0;
  for (const char c : text.substr(0, part.digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  text.remove_prefix(part.digits);
  return number <= part.most ? std::optional(number) : std::nullopt;
}

std::int64_t count(sys_seconds time) { return time.time_since_epoch().count(); }

}  // namespace

std::optional<UtcSpan> utc_from(std::string_view text) {
  std::array<int, parts.size()> given{0, 1, 1, 0, 0, 0};
  std::size_t last = 0;  // of the parts that are there
  for (std::size_t i = 0; i < parts.size() && !text.empty(); ++i) {
    if (i > day_part + 1 && text == "Z") break;
    const std::optional<int> number = take(text, parts[i]);
    if (!number) return std::nullopt;
    given[i] = *number;
    last = i;
  }
  if (last > day_part && text == "Z") text = {};
  if (!text.empty() || given[0] < 1) return std::nullopt;

  using namespace std::chrono;
  const year_month_day date = year(given[0]) / given[1] / given[2];
  if (!date.ok()) return std::nullopt;
  const sys_seconds begin =
      sys_days(date) + hours(given[3]) + minutes(given[4]) + seconds(given[5]);
  if (last >= day_part) return UtcSpan{count(begin), count(begin) + parts[last].seconds};
  const year_month_day next = last == month_part ? date + months(1) : date + years(1);
  return UtcSpan{count(begin), count(sys_days(next))};
}

std::string utc_text(std::int64_t time) {
  const sys_seconds moment{seconds(time)};
  const auto date = std::chrono::floor<days>(moment);
  const std::chrono::year_month_day d(date);
  const std::chrono::hh_mm_ss clock(moment - date);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(d.year()),
                     static_cast<unsigned>(d.month()), static_cast<unsigned>(d.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

}  // namespace ridge
