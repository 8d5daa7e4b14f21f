#include "ridge/trace/database.h"

#include <sqlite3.h>

#include <new>
#include <system_error>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge::trace {
namespace {

constexpr std::string_view magic("SQLite format 3\0", 16);

// A path as SQLite takes it in a URI.
std::string escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#')
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace

bool is_sqlite(std::string_view file) { return file.starts_with(magic); }

void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Database::Database(sqlite3* handle, std::string name, Use use)
    : name_(std::move(name)), use_(use), handle_(handle) {}

// Nobody else writes what is read, so that no lock and no file beside it are needed.
Database Database::open(const std::string& file, std::string name, Use use) {
  const bool read = use == Use::read;
  const std::string uri = "file:" + escaped(file) + (read ? "?immutable=1" : "");
  const int flags = read ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(uri.c_str(), &opened, flags | SQLITE_OPEN_URI, nullptr);
  Database database(opened, std::move(name), use);
  if (code != SQLITE_OK) database.fail(code);
  sqlite3_extended_result_codes(opened, 1);
  return database;
}

Database Database::of_file(const std::filesystem::path& file) {
  Database database =
      open(std::filesystem::absolute(file).string(), shown(file.filename().string()), Use::read);
  database.harden();
  return database;
}

Database Database::of_bytes(std::string_view file, std::string name) {
  Database database = open(":memory:", shown(name), Use::read_memory);
  auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(file.data()));
  const auto size = static_cast<sqlite3_int64>(file.size());
  const int code = sqlite3_deserialize(database.handle(), "main", bytes, size, size,
                                       SQLITE_DESERIALIZE_READONLY);
  if (code != SQLITE_OK) database.fail(code);
  database.harden();
  return database;
}

Database Database::to_fill(const std::filesystem::path& file, std::string name) {
  Database database = open(std::filesystem::absolute(file).string(), std::move(name), Use::fill);
  database.execute(
      "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
      "PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY");
  return database;
}

void Database::harden() {
  constexpr int most_bytes = 64 << 20;  // of a text
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_limit(handle(), SQLITE_LIMIT_LENGTH, most_bytes);
  execute("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY");
}

void Database::execute(const char* sql) {
  if (sqlite3_exec(handle(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

void Database::fail() const { fail(sqlite3_extended_errcode(handle())); }

void Database::fail(int code) const {
  const std::string said = handle() ? sqlite3_errmsg(handle()) : sqlite3_errstr(code);
  const int number = handle() ? sqlite3_system_errno(handle()) : 0;
  switch (code & 0xFF) {
    case SQLITE_NOMEM:
      throw std::bad_alloc();
    case SQLITE_FULL:
      throw IoError("cannot write {}: the disk is full", name_);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      if (use_ == Use::read_memory) break;  // where only the file itself can be at fault
      throw IoError("cannot {} {}: {}", use_ == Use::fill ? "write" : "read", name_,
                    number != 0 ? std::generic_category().message(number) : said);
    default:
      break;
  }
  if (use_ == Use::fill) throw Error("SQLite refuses to write {}: {}", name_, said);
  throw FormatError("SQLite cannot read {}: {}", name_, said);
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(const Database& database, std::string_view sql) : database_(&database) {
  sqlite3_stmt* prepared = nullptr;
  const int code = sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                      &prepared, nullptr);
  handle_.reset(prepared);
  check(code);
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_->fail();
}

Statement& Statement::bind(int index, std::int64_t value) {
  check(sqlite3_bind_int64(handle_.get(), index, value));
  return *this;
}

Statement& Statement::bind(int index, double value) {
  check(sqlite3_bind_double(handle_.get(), index, value));
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  const char* const begin = text.data() ? text.data() : "";  // null would be NULL
  check(sqlite3_bind_text64(handle_.get(), index, begin, text.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind_null(int index) {
  check(sqlite3_bind_null(handle_.get(), index));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->fail();
  sqlite3_reset(handle_.get());
  return false;
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(handle_.get(), column); }

std::string_view Statement::text(int column) const {
  const auto* const text = sqlite3_column_text(handle_.get(), column);
  const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return text ? std::string_view(reinterpret_cast<const char*>(text), bytes) : std::string_view();
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL;
}

}  // namespace ridge::trace
