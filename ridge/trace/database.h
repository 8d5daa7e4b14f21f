#pragma once

// The part of SQLite that traces need, with its errors as ours.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace ridge::trace {

// An open database. Each member, and those of Statement, throws what SQLite reports as one line
// with the database's name: FormatError for a file that is damaged, no database, or refused by
// SQLite; IoError for a full disk or a place that cannot be read or written.
class Database {
 public:
  // A file that is read and that nobody writes. What it has beside tables and their rows, such as
  // views and triggers, is somebody else's program and does not run.
  static Database of_file(const std::filesystem::path& file);
  // The same of a file in memory, which outlives it.
  static Database of_bytes(std::string_view file, std::string name);
  // An empty file, to be filled in one transaction. It is on the disk when somebody syncs it, and
  // is worthless if the process dies before. Errors call it `name`.
  static Database to_fill(const std::filesystem::path& file, std::string name);

  void execute(const char* sql);  // statements without parameters or results
  sqlite3* handle() const { return handle_.get(); }
  // Throws what the last call on this database reported.
  [[noreturn]] void fail() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  enum class Use : std::uint8_t { read, read_memory, fill };
  Database(sqlite3* handle, std::string name, Use use);
  static Database open(const std::string& file, std::string name, Use use);
  void harden();
  [[noreturn]] void fail(int code) const;

  std::string name_;
  Use use_;
  std::unique_ptr<sqlite3, Close> handle_;
};

// One SQL statement, which may run many times, on a database that outlives it.
class Statement {
 public:
  Statement(const Database& database, std::string_view sql);

  // Each sets parameter number `index`, from 1 on, for the runs to come.
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, double value);
  Statement& bind(int index, std::string_view text);  // which lasts until the next bind
  Statement& bind_null(int index);
  // Goes to the first, then to the next row: whether there is one. After the last it begins anew.
  bool step();
  void run() {
    while (step()) {
    }
  }

  // Columns of the row, from 0 on. NULL is 0 and "". Text is valid until the next step.
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string_view text(int column) const;
  bool is_null(int column) const;

 private:
  void check(int code) const;

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

// Whether a file begins as SQLite's do.
bool is_sqlite(std::string_view file);

}  // namespace ridge::trace
