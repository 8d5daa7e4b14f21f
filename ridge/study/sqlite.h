#pragma once

// The part of SQLite that the store uses, with its errors as ours.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "ridge/study/uuid.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ridge {

// What a column or a parameter holds; std::monostate is NULL, and a Uuid a blob of 16 bytes.
using SqlValue = std::variant<std::monostate, std::int64_t, double, std::string, Uuid>;

// An open database file. Each thread and each process opens its own: it is not
// thread-safe, and must not be carried into the child of a fork.
//
// Each member, and those of Statement and Transaction, throws what SQLite reports as one line with
// the file's path: FormatError for a file that is damaged or no database; IoError for a full disk,
// a place that cannot be written, or a file that others have kept busy for longer than the timeout.
class Database {
 public:
  enum class Access : std::uint8_t {
    create,  // the file must not exist
    write,   // it must exist; where it cannot be written, it is read all the same
    // It must exist, and nobody writes it: a file in a place that cannot be written, where SQLite
    // could not keep account of its readers.
    frozen,
  };
  Database(const std::filesystem::path& file, Access access);

  const std::filesystem::path& file() const { return file_; }
  bool read_only() const;
  void execute(const char* sql);               // statements without parameters or results
  std::int64_t integer(std::string_view sql);  // the result of a query of one row and column
  std::int64_t last_row_id() const;
  std::int64_t changes() const;  // rows that the last statement changed
  sqlite3* handle() const { return handle_.get(); }

  // Asks now and then, while a statement runs, whether it is to be given up, which makes it throw
  // Error. Empty: never.
  void give_up_when(std::function<bool()> is_wanted);

  // Throws what the last call on this database reported.
  [[noreturn]] void fail() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::filesystem::path file_;
  std::unique_ptr<std::function<bool()>> give_up_;
  std::unique_ptr<sqlite3, Close> handle_;
};

// One SQL statement, which may run many times.
class Statement {
 public:
  Statement(const Database& database, std::string_view sql);

  // Sets parameter number `index`, from 1 on, for the runs to come. Text is copied.
  Statement& bind(int index, const SqlValue& value);
  Statement& bind(std::span<const SqlValue> values);  // numbers 1, 2, ...
  Statement& bind_blob(int index, std::string_view bytes);
  // Goes to the first, then to the next row: whether there is one. After the last it begins anew.
  bool step();
  void run();  // to its end
  void reset();

  // Columns of the row, from 0 on. Text is valid until the next step.
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string_view text(int column) const;
  std::span<const std::byte> blob(int column) const;  // likewise
  bool is_null(int column) const;
  SqlValue value(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

// All or nothing: what is written between its begin and commit() is there for everybody at once, or
// not at all. Waits at its beginning for the transaction of another process.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();  // without commit(): nothing happened
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // When it returns, what was written survives the death of the process and a loss of power.
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace ridge
