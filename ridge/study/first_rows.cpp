#include "ridge/study/first_rows.h"

#include <sqlite3.h>

#include <algorithm>
#include <new>

namespace ridge {
namespace {

// The number of rows that are gathered beyond the limit before they are cut off together. Where
// rows come in the opposite order, each is better than all before it, and a heap would have to sort
// each in by itself.
constexpr std::size_t spare = 1024;

}  // namespace

// What SQLite calls; no exception may leave it.
struct FirstRows::Callbacks {
  static Row row_of(sqlite3_value* id, sqlite3_value* key) {
    Row row{.id = sqlite3_value_int64(id)};
    const int type = sqlite3_value_type(key);
    row.has_key = type != SQLITE_NULL;
    if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) row.number = sqlite3_value_double(key);
    if (type != SQLITE_TEXT && type != SQLITE_BLOB) return row;
    const auto* const bytes = static_cast<const char*>(sqlite3_value_blob(key));
    row.text.assign(bytes ? bytes : "", static_cast<std::size_t>(sqlite3_value_bytes(key)));
    return row;
  }
  static void step(sqlite3_context* context, int /*count*/, sqlite3_value** values) {
    try {
      auto& rows = *static_cast<FirstRows*>(sqlite3_user_data(context));
      rows.add(row_of(values[0], values[1]));
    } catch (const std::bad_alloc&) {
      sqlite3_result_error_nomem(context);
    }
  }
  static void end(sqlite3_context* context) { sqlite3_result_null(context); }
};

FirstRows::FirstRows(Database& database, std::size_t limit, bool descending)
    : database_(database), limit_(limit), descending_(descending) {
  if (sqlite3_create_function_v2(database.handle(), "first_rows", 2, SQLITE_UTF8, this, nullptr,
                                 Callbacks::step, Callbacks::end, nullptr) != SQLITE_OK)
    database.fail();
}

FirstRows::~FirstRows() {
  sqlite3_create_function_v2(database_.handle(), "first_rows", 2, SQLITE_UTF8, nullptr, nullptr,
                             nullptr, nullptr, nullptr);
}

bool FirstRows::before(const Row& a, const Row& b) const {
  if (a.has_key != b.has_key) return a.has_key;
  if (a.number != b.number) return (a.number < b.number) != descending_;
  if (const int order = a.text.compare(b.text); order != 0) return (order < 0) != descending_;
  return (a.id < b.id) != descending_;
}

void FirstRows::add(Row row) {
  if (has_last_ && !before(row, rows_[limit_ - 1])) return;
  rows_.push_back(std::move(row));
  if (rows_.size() >= limit_ + spare) cut();
}

void FirstRows::cut() {
  if (rows_.size() <= limit_) return;
  const auto order = [this](const Row& a, const Row& b) { return before(a, b); };
  if (limit_ > 0)
    std::ranges::nth_element(rows_, rows_.begin() + static_cast<std::ptrdiff_t>(limit_ - 1), order);
  rows_.resize(limit_);
  has_last_ = limit_ > 0;
}

std::vector<std::int64_t> FirstRows::ids() {
  cut();
  std::ranges::sort(rows_, [this](const Row& a, const Row& b) { return before(a, b); });
  std::vector<std::int64_t> ids;
  for (const Row& row : rows_) ids.push_back(row.id);
  return ids;
}

}  // namespace ridge
