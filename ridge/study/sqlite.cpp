#include "ridge/study/sqlite.h"

#include <sqlite3.h>

#include <new>
#include <system_error>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr int busy_timeout_ms = 60'000;
// A large import leaves no larger log behind than this.
constexpr const char* settings = R"(
PRAGMA synchronous = FULL;
PRAGMA journal_size_limit = 67108864;
PRAGMA cache_size = -16384;
PRAGMA temp_store = MEMORY;
PRAGMA trusted_schema = OFF;
)";

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

int flags_of(Database::Access access) {
  switch (access) {
    case Database::Access::create:
      return SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    case Database::Access::write:
      return SQLITE_OPEN_READWRITE;
    case Database::Access::frozen:
      break;
  }
  return SQLITE_OPEN_READONLY;
}

[[noreturn]] void fail_with(sqlite3* database, int code, const std::string& file) {
  const std::string said = database ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  const int number = database ? sqlite3_system_errno(database) : 0;
  const std::string reason = number != 0 ? std::generic_category().message(number) : said;
  switch (code & 0xFF) {
    case SQLITE_NOMEM:
      throw std::bad_alloc();
    case SQLITE_NOTADB:
      throw FormatError("{} is no store of runs: {}", file, said);
    case SQLITE_CORRUPT:
      throw FormatError(
          "{} is damaged ({}); save what can be read with: sqlite3 {} .recover | sqlite3 NEW-FILE",
          file, said, file);
    case SQLITE_FULL:
      throw IoError("cannot write {}: the disk is full; nothing was changed", file);
    case SQLITE_READONLY:
      throw IoError("cannot write {}: the file or its directory is read-only", file);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw IoError("another program has kept {} busy for {} seconds; try again", file,
                    busy_timeout_ms / 1000);
    case SQLITE_INTERRUPT:
      throw Error("a question to {} was given up", file);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      throw IoError("cannot read or write {}: {}", file, reason);
    default:
      throw Error("SQLite refuses a statement on {}: {}", file, said);
  }
}

}  // namespace

void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Database::Database(const std::filesystem::path& file, Access access) : file_(file) {
  // SQLite says of all of these only that it cannot open the file.
  std::error_code fault;
  const auto kind = std::filesystem::status(file, fault).type();
  if (access == Access::create && kind != std::filesystem::file_type::not_found)
    throw IoError("{} exists already", file.string());
  if (access != Access::create && kind == std::filesystem::file_type::not_found)
    throw IoError("there is no file {}", file.string());
  if (access != Access::create && kind != std::filesystem::file_type::regular)
    throw IoError("cannot read {}: {}", file.string(),
                  fault ? fault.message() : "it is no regular file");

  const std::string uri = "file:" + escaped(std::filesystem::absolute(file).string()) +
                          (access == Access::frozen ? "?immutable=1" : "");
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(uri.c_str(), &opened, flags_of(access) | SQLITE_OPEN_URI, nullptr);
  handle_.reset(opened);
  if (code != SQLITE_OK) fail_with(opened, code, file_.string());
  sqlite3_extended_result_codes(opened, 1);
  sqlite3_busy_timeout(opened, busy_timeout_ms);
  // A file of somebody else is data, not code.
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  execute(settings);
}

bool Database::read_only() const { return sqlite3_db_readonly(handle(), "main") == 1; }

void Database::execute(const char* sql) {
  if (sqlite3_exec(handle(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

void Database::give_up_when(std::function<bool()> is_wanted) {
  constexpr int instructions = 50'000;  // of SQLite, between two questions: about a millisecond
  give_up_ = std::make_unique<std::function<bool()>>(std::move(is_wanted));
  if (!*give_up_) return sqlite3_progress_handler(handle(), 0, nullptr, nullptr);
  const auto ask = [](void* function) -> int {
    return (*static_cast<std::function<bool()>*>(function))() ? 1 : 0;
  };
  sqlite3_progress_handler(handle(), instructions, ask, give_up_.get());
}

std::int64_t Database::integer(std::string_view sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.integer(0) : 0;
}

std::int64_t Database::last_row_id() const { return sqlite3_last_insert_rowid(handle()); }
std::int64_t Database::changes() const { return sqlite3_changes(handle()); }

void Database::fail() const {
  fail_with(handle(), sqlite3_extended_errcode(handle()), file_.string());
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(const Database& database, std::string_view sql) : database_(&database) {
  sqlite3_stmt* prepared = nullptr;
  const int code = sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                      &prepared, nullptr);
  handle_.reset(prepared);
  if (code != SQLITE_OK) database.fail();
}

Statement& Statement::bind(int index, const SqlValue& value) {
  sqlite3_stmt* const statement = handle_.get();
  struct Bind {
    sqlite3_stmt* statement;
    int index;
    int operator()(std::monostate) const { return sqlite3_bind_null(statement, index); }
    int operator()(std::int64_t v) const { return sqlite3_bind_int64(statement, index, v); }
    int operator()(double v) const { return sqlite3_bind_double(statement, index, v); }
    int operator()(const std::string& v) const {
      return sqlite3_bind_text64(statement, index, v.data(), v.size(), SQLITE_TRANSIENT,
                                 SQLITE_UTF8);
    }
    int operator()(const Uuid& v) const {
      return sqlite3_bind_blob64(statement, index, v.data(), v.size(), SQLITE_TRANSIENT);
    }
  };
  if (std::visit(Bind{statement, index}, value) != SQLITE_OK) database_->fail();
  return *this;
}

Statement& Statement::bind(std::span<const SqlValue> values) {
  for (std::size_t i = 0; i < values.size(); ++i) bind(static_cast<int>(i) + 1, values[i]);
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view bytes) {
  if (sqlite3_bind_blob64(handle_.get(), index, bytes.data(), bytes.size(), SQLITE_TRANSIENT) !=
      SQLITE_OK)
    database_->fail();
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) {
    // Reported before the statement is reset, which may forget the reason.
    try {
      database_->fail();
    } catch (...) {
      sqlite3_reset(handle_.get());
      throw;
    }
  }
  sqlite3_reset(handle_.get());
  return false;
}

void Statement::run() {
  while (step()) {
  }
}

void Statement::reset() { sqlite3_reset(handle_.get()); }

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}
double Statement::real(int column) const { return sqlite3_column_double(handle_.get(), column); }
std::string_view Statement::text(int column) const {
  const auto* const text = sqlite3_column_text(handle_.get(), column);
  const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return text ? std::string_view(reinterpret_cast<const char*>(text), bytes) : std::string_view();
}
std::span<const std::byte> Statement::blob(int column) const {
  const auto* const bytes =
      static_cast<const std::byte*>(sqlite3_column_blob(handle_.get(), column));
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return {bytes, bytes ? size : 0};
}
bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL;
}

SqlValue Statement::value(int column) const {
  switch (sqlite3_column_type(handle_.get(), column)) {
    case SQLITE_INTEGER:
      return integer(column);
    case SQLITE_FLOAT:
      return real(column);
    case SQLITE_TEXT:
      return std::string(text(column));
    case SQLITE_BLOB: {
      Uuid uuid{};
      const auto* const bytes =
          static_cast<const std::uint8_t*>(sqlite3_column_blob(handle_.get(), column));
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
      for (std::size_t i = 0; i < std::min(size, uuid.size()); ++i) uuid[i] = bytes[i];
      return uuid;
    }
    default:
      return std::monostate();
  }
}

Transaction::Transaction(Database& database) : database_(database) {
  database_.execute("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (open_) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace ridge
