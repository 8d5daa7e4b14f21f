// A store as a file: which one it is, how it becomes a newer one, and what is said of one that is
// damaged, locked, or in a place that cannot be written.

#include "ridge/study/store_file.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "tests/base/message_of.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using testing::document_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeStore;

// The working directory and $RIDGE_STORE, as they were, at the end.
struct Surroundings {
  fs::path before = fs::current_path();
  Surroundings() { ::unsetenv("RIDGE_STORE"); }
  ~Surroundings() {
    ::unsetenv("RIDGE_STORE");
    fs::current_path(before);
  }
};

TEST(StoreFile, IsTheOneNamedElseTheNearestAbove) {
  const Surroundings surroundings;
  const TemporaryDirectory directory;
  const fs::path root = fs::canonical(directory.path), deep = root / "a" / "b";
  make_directories(deep);
  make_directories(root / ".ridge");
  fs::current_path(deep);
  EXPECT_THAT(message_of<IoError>([] { existing_store_file(""); }),
              HasSubstr("there is no store of runs here: make one with ridge store init"));
  make_store(root / ".ridge" / "runs.db");
  EXPECT_EQ(existing_store_file(""), root / ".ridge" / "runs.db");
  EXPECT_FALSE(find_store_file("")->named);
  make_directories(root / "a" / ".ridge");
  make_store(root / "a" / ".ridge" / "runs.db");
  EXPECT_EQ(existing_store_file(""), root / "a" / ".ridge" / "runs.db");
  fs::current_path(root);
  EXPECT_EQ(existing_store_file(""), ".ridge/runs.db");

  ::setenv("RIDGE_STORE", "other.db", 1);
  EXPECT_EQ(find_store_file("")->path, "other.db");
  EXPECT_TRUE(find_store_file("")->named);
  EXPECT_THAT(message_of<IoError>([] { existing_store_file(""); }),
              HasSubstr("no store other.db, which $RIDGE_STORE names"));
  EXPECT_EQ(find_store_file("this.db")->path, "this.db");
  ::setenv("RIDGE_STORE", "", 1);
  EXPECT_EQ(existing_store_file(""), ".ridge/runs.db") << "an empty variable names nothing";
}

TEST(StoreFile, IsMadeOnce) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path / "runs.db";
  EXPECT_TRUE(make_store(file));
  Store(file).add(document_of({}));
  EXPECT_FALSE(make_store(file));
  EXPECT_EQ(Store(file).count(""), 1);
  for (const auto& entry : fs::directory_iterator(directory.path))
    EXPECT_EQ(entry.path().filename(), "runs.db") << "nothing else is left";
  EXPECT_THAT(message_of<IoError>([&] { make_store(directory.path / "none" / "runs.db"); }),
              HasSubstr("none"));
}

TEST(StoreFile, MayHaveAnyName) {
  const TemporaryDirectory directory;
  for (const char* name :
       {"a b?mode=ro.db", "50%.db", "%41.db", "#1.db", "it's \"x\".db", "\xff.db", "file:x.db"}) {
    const fs::path file = directory.path / name;
    EXPECT_TRUE(make_store(file)) << name;
    Store(file).add(document_of({}));
    EXPECT_TRUE(fs::exists(file)) << name;
    EXPECT_EQ(Store(file).count(""), 1) << name;
  }
}

// Versions of a table of one's own.
constexpr std::array<std::string_view, 3> three_steps{
    "CREATE TABLE a(x INTEGER) STRICT; INSERT INTO a VALUES (1)",
    "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7", "UPDATE a SET y = y + x"};

fs::path empty_store(const TemporaryDirectory& directory) {
  const fs::path file = directory.path / "steps.db";
  Database database(file, Database::Access::create);
  database.execute("PRAGMA journal_mode = WAL; PRAGMA application_id = 0x52494447");
  return file;
}

TEST(StoreFile, TakesTheStepsThatItLacks) {
  const TemporaryDirectory directory;
  const fs::path file = empty_store(directory);
  for (std::size_t version = 1; version <= three_steps.size(); ++version) {
    Database database = open_store(file, std::span(three_steps).first(version));
    EXPECT_EQ(database.integer("PRAGMA user_version"), static_cast<std::int64_t>(version));
  }
  EXPECT_EQ(open_store(file, three_steps).integer("SELECT y FROM a"), 8) << "each step once";
  // A program that knows fewer steps.
  EXPECT_THAT(message_of<IoError>([&] { open_store(file, std::span(three_steps).first(2)); }),
              HasSubstr("is a store of version 3; this program knows version 2 and older"));
}

TEST(StoreFile, TakesAllStepsOrNone) {
  const TemporaryDirectory directory;
  const fs::path file = empty_store(directory);
  open_store(file, std::span(three_steps).first(1));
  const std::array<std::string_view, 3> faulty{three_steps[0], three_steps[1],
                                               "UPDATE b SET x = 1"};
  EXPECT_THROW(open_store(file, faulty), Error);
  Database database = open_store(file, std::span(three_steps).first(1));
  EXPECT_EQ(database.integer("PRAGMA user_version"), 1);
  EXPECT_EQ(database.integer("SELECT count(*) FROM pragma_table_info('a')"), 1)
      << "the second step is undone";
}

TEST(StoreFile, RefusesWhatIsNone) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path / "x.db";
  const auto refusal = [&] { return message_of<Error>([&] { Store{file}; }); };
  EXPECT_THAT(refusal(), HasSubstr("there is no file"));
  write_text_file(file, "step,loss,seconds,recorded\n1,2,3,0\n");
  EXPECT_THAT(refusal(), HasSubstr("is no store of runs"));
  write_text_file(file, "");
  EXPECT_THAT(refusal(), HasSubstr("no store of runs"));
  fs::remove(file);
  Database(file, Database::Access::create).execute("CREATE TABLE t(x)");
  EXPECT_THAT(refusal(), HasSubstr("is a database of another program"));
  fs::remove(file);
  make_directories(file);
  EXPECT_THAT(refusal(), HasSubstr("no regular file"));
}

// Whatever bytes are damaged, a store answers, or says that it is damaged: it never crashes, and
// where it is not read wrong it is at least found out.
TEST(StoreFile, SaysThatItIsDamaged) {
  const MadeStore made;
  {
    Store store(made.file);
    for (int i = 0; i < 60; ++i) store.add(document_of({.seed = i}, {"t"}));
    store.compact();
  }
  const auto size = static_cast<std::streamoff>(fs::file_size(made.file));
  std::size_t found = 0;
  for (std::streamoff page = 0; page < size; page += 4096) {
    const fs::path copy = made.directory.path / "copy.db";
    fs::copy_file(made.file, copy, fs::copy_options::overwrite_existing);
    std::fstream(copy, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(page + (page == 0 ? 100 : 0))
        .write(std::string(2000, '\xA5').data(), 2000);
    try {
      Store store(copy);
      found += store.faults().empty() ? 0 : 1;
      store.list({});
      store.list({.filter = "version=v1", .limit = 5});
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), HasSubstr("copy.db"));
      ++found;
    }
  }
  EXPECT_GE(found, static_cast<std::size_t>(size / 4096) * 3 / 4);
}

TEST(StoreFile, LosesNothingOnAFullDisk) {
  MadeStore made;
  for (int i = 0; i < 5; ++i) made.store.add(document_of({}));
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { fs::file_size(made.file) + 50'000, before.rlim_max };
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::int64_t written = 5;
  const std::string refusal = message_of<IoError>([&] {
    for (int i = 0; i < 1000; ++i, ++written) made.store.add(document_of({.steps = 200}));
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(refusal, HasSubstr("runs.db"));
  EXPECT_EQ(made.store.count(""), written) << refusal;
  EXPECT_THAT(made.store.faults(), IsEmpty());
  made.store.add(document_of({}));
  EXPECT_EQ(Store(made.file).count(""), written + 1) << "and it goes on";
}

// Runs a function as somebody who may not write the directory, and returns what it says.
template <class F>
std::string as_reader(const fs::path& directory, const F& function) {
  const fs::path answer = directory / "answer";
  std::ofstream{answer};
  fs::permissions(answer, fs::perms::all);
  fs::permissions(directory, fs::perms::owner_read | fs::perms::owner_exec |
                                 fs::perms::others_read | fs::perms::others_exec);
  const pid_t pid = ::fork();
  if (pid == 0) {
    constexpr id_t nobody = 65534;
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setresgid(nobody, nobody, nobody) != 0 ||
         ::setresuid(nobody, nobody, nobody) != 0))
      ::_exit(1);
    std::ofstream(answer) << message_of<Error>(function);
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  fs::permissions(directory, fs::perms::owner_all);
  return read_text_file(answer, 1 << 16);
}

TEST(StoreFile, IsReadWhereItCannotBeWritten) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path / "runs.db";
  make_store(file);
  {
    Store store(file);
    store.add(document_of({}, {"kept"}));
  }
  fs::permissions(file, fs::perms::owner_read | fs::perms::others_read);
  const std::string said = as_reader(directory.path, [&] {
    Store store(file);
    if (!store.read_only() || store.find("kept").id != 1 || store.list({}).total != 1)
      throw Error("it is read wrong");
    store.add(document_of({}));
  });
  EXPECT_THAT(said, HasSubstr("cannot write")) << said;
  EXPECT_THAT(said, HasSubstr("runs.db: the file or its directory is read-only"));
}

TEST(StoreFile, CannotBeMadeWhereNobodyWrites) {
  const TemporaryDirectory directory;
  EXPECT_THAT(as_reader(directory.path, [&] { make_store(directory.path / "runs.db"); }),
              HasSubstr("runs.db"));
}

// SQLite's connections must not be carried into a child: this one begins before there are any.
TEST(StoreFile, WaitsForAnotherWriter) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path / "runs.db";
  make_store(file);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    char go = 0;
    if (::read(ends[0], &go, 1) != 1) ::_exit(2);
    try {
      Store(file).add(document_of({}));
      ::_exit(0);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  int status = 0;
  {
    Database other(file, Database::Access::write);
    other.execute("BEGIN IMMEDIATE");
    ASSERT_EQ(::write(ends[1], "x", 1), 1);
    ::usleep(300'000);
    EXPECT_EQ(::waitpid(pid, &status, WNOHANG), 0) << "it waits";
    EXPECT_EQ(Store(file).count(""), 0) << "who reads does not";
    other.execute("COMMIT");
  }
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Store(file).count(""), 1);
  ::close(ends[0]), ::close(ends[1]);
}

TEST(StoreFile, HasWhatOneWriterLeftInItsLog) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path / "runs.db";
  make_store(file);
  const pid_t pid = ::fork();
  if (pid == 0) {
    Store store(file);
    store.add(document_of({}));
    ::kill(::getpid(), SIGKILL);  // before the log is merged into the file
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_GT(fs::file_size(file.string() + "-wal"), 0u);
  EXPECT_EQ(Store(file).count(""), 1);
}

}  // namespace
}  // namespace ridge
