#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/study/sqlite.h"

struct sqlite3_context;
struct sqlite3_value;

namespace ridge {

// Keeps the first few rows of an order while one query goes through all: SQLite alone would go
// through a table twice, to count what a filter finds and to sort it. While it is alive, queries
// have the aggregate first_rows(id, key), whose result is NULL.
class FirstRows {
 public:
  FirstRows(Database& database, std::size_t limit, bool descending);
  ~FirstRows();
  FirstRows(const FirstRows&) = delete;
  FirstRows& operator=(const FirstRows&) = delete;

  std::vector<std::int64_t> ids();  // in order; rows without a key come last

 private:
  struct Row {
    std::int64_t id = 0;
    bool has_key = false;
    double number = 0;
    std::string text;
  };
  struct Callbacks;
  bool before(const Row& a, const Row& b) const;
  void add(Row row);
  void cut();  // drops the rows beyond the limit

  Database& database_;
  std::size_t limit_;
  bool descending_;
  std::vector<Row> rows_;
  bool has_last_ = false;  // whether rows_[limit_ - 1] is the last in order of those before it
};

}  // namespace ridge
