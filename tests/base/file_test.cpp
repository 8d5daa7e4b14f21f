#include "ridge/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Whether any of a file's bytes are in this process's address space.
bool is_mapped(const std::filesystem::path& file) {
  const std::string name = std::filesystem::canonical(file).string();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(name)) return true;
  return false;
}

class FileTest : public ::testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path))
      names.push_back(entry.path().filename().string());
    return names;
  }

  TemporaryDirectory directory;
  std::filesystem::path file = directory.path / "file";
  std::filesystem::path temporary = directory.path / ".file.ridge-tmp";
};

TEST_F(FileTest, MapsWhatWasWritten) {
  write_text_file(file, "some text");
  const MappedFile mapped(file);
  EXPECT_EQ(text_of(mapped.bytes()), "some text");
  EXPECT_EQ(read_text_file(file, 9), "some text");
}

TEST_F(FileTest, MappingMoves) {
  write_text_file(file, "some text");
  MappedFile first(file);
  const std::byte* place = first.bytes().data();
  MappedFile second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move)
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), place);
  EXPECT_EQ(text_of(third.bytes()), "some text");
}

TEST_F(FileTest, IsMappedForAsLongAsItsMappingLives) {
  const std::filesystem::path other = directory.path / "other";
  write_text_file(file, "some text");
  write_text_file(other, "other text");
  EXPECT_FALSE(is_mapped(file));
  {
    MappedFile kept(other);
    EXPECT_TRUE(is_mapped(other));
    {
      MappedFile first(file);
      MappedFile second(std::move(first));
      kept = std::move(second);
      EXPECT_TRUE(is_mapped(file));
    }
    EXPECT_TRUE(is_mapped(file)) << "its owner is alive, those it was moved from are gone";
    EXPECT_FALSE(is_mapped(other)) << "another took its place";
  }
  EXPECT_FALSE(is_mapped(file));
}

TEST_F(FileTest, MapsAnEmptyFileToNothing) {
  write_text_file(file, "");
  EXPECT_TRUE(MappedFile(file).bytes().empty());
  EXPECT_EQ(read_text_file(file, 0), "");
}

TEST_F(FileTest, RefusesWhatCannotBeRead) {
  const std::string missing = message_of<IoError>([&] { MappedFile{file}; });
  EXPECT_THAT(missing, HasSubstr(file.string()));
  EXPECT_THAT(missing, HasSubstr("No such file or directory"));
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{directory.path}; }),
              HasSubstr("it is a directory"));
  EXPECT_THAT(message_of<IoError>([&] { read_text_file(file, 9); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of<IoError>([&] { read_text_file(directory.path, 9); }),
              HasSubstr("Is a directory"));
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{file}; }), HasSubstr("it is no regular file"));
}

TEST_F(FileTest, RefusesWhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  write_text_file(file, "secret");
  std::filesystem::permissions(file, std::filesystem::perms::none);
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{file}; }), HasSubstr("Permission denied"));
}

TEST_F(FileTest, RefusesATextThatIsTooLong) {
  write_text_file(file, std::string(10'000, 'x'));
  EXPECT_EQ(read_text_file(file, 10'000).size(), 10'000u);
  EXPECT_THAT(message_of<IoError>([&] { read_text_file(file, 9'999); }),
              HasSubstr("more than 9999 bytes"));
}

TEST_F(FileTest, AppearsOnlyWhenCommitted) {
  AtomicFile writer(file);
  writer.write("new ");
  writer.write("content");
  EXPECT_FALSE(std::filesystem::exists(file));
  writer.commit();
  EXPECT_EQ(read_text_file(file, 100), "new content");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(FileTest, LeavesTheOldFileIfNotCommitted) {
  write_text_file(file, "old");
  { AtomicFile(file).write("new"); }
  EXPECT_EQ(read_text_file(file, 100), "old");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(FileTest, ReplacesTheOldFileWhileItIsMapped) {
  write_text_file(file, "old content");
  const MappedFile mapped(file);
  write_text_file(file, "new");
  EXPECT_EQ(text_of(mapped.bytes()), "old content");
  EXPECT_EQ(read_text_file(file, 100), "new");
}

TEST_F(FileTest, GivesFilesTheUsualPermissions) {
  const mode_t mask = ::umask(022);
  write_text_file(file, "text");
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST_F(FileTest, WritesAFileWithoutADirectoryInItsName) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path);
  write_text_file("file", "text");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_text_file(file, 100), "text");
}

TEST_F(FileTest, RefusesToReplaceWhatIsNoFile) {
  EXPECT_THAT(message_of<IoError>([&] { AtomicFile{directory.path}; }),
              HasSubstr("it is a directory"));
  EXPECT_THAT(message_of<IoError>([&] { AtomicFile{"/dev/full"}; }),
              HasSubstr("it is no regular file"));
  EXPECT_THAT(message_of<IoError>([&] { AtomicFile{directory.path / "none" / "file"}; }),
              HasSubstr("No such file or directory"));
}

TEST_F(FileTest, RefusesASecondWriterOfTheSameFile) {
  AtomicFile first(file);
  EXPECT_THAT(message_of<IoError>([&] { AtomicFile{file}; }),
              HasSubstr("another process is writing it"));
  first.write("first");
  first.commit();
  EXPECT_EQ(read_text_file(file, 100), "first");
  write_text_file(file, "second");
  EXPECT_EQ(read_text_file(file, 100), "second");
}

// A limit on the size of files stands for a disk of that size: the kernel refuses in the same
// place.
TEST_F(FileTest, SaysThatTheDiskIsFullAndLeavesNothing) {
  write_text_file(file, "old");
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<IoError>([&] {
    AtomicFile writer(file);
    writer.write(std::string(600, 'x'));
    writer.write(std::string(600, 'y'));
    writer.flush();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(message, "cannot write " + file.string() + ": File too large after 1000 bytes");
  EXPECT_EQ(read_text_file(file, 100), "old");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

// Writes without end and is killed: what it leaves is the old file and a temporary that the next
// writer takes over, and no reader ever takes for the file.
TEST_F(FileTest, OutlivesAKilledWriter) {
  write_text_file(file, "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile writer(file);
    for (;;) {
      writer.write("a long piece of text that nobody wants");
      if (std::filesystem::file_size(temporary) > 100'000) ::raise(SIGKILL);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_text_file(file, 100), "old");
  EXPECT_GT(std::filesystem::file_size(temporary), 100'000u);
  write_text_file(file, "new");
  EXPECT_EQ(read_text_file(file, 100), "new");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(FileTest, IsWrittenInPartsByWhoHasItsKey) {
  AtomicFile owner(file);
  owner.write("head");
  const FileKey key = owner.reserve(10);
  auto part = FilePart::open(file, key);
  ASSERT_TRUE(part);
  part->write_at(7, std::as_bytes(std::span("xyz", 3)));
  owner.write_at(4, std::as_bytes(std::span("abc", 3)));
  part->finish();
  EXPECT_FALSE(std::filesystem::exists(file));
  owner.commit();
  EXPECT_EQ(read_text_file(file, 100), "headabcxyz");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(FileTest, HasNoPartForWhoHasAnotherKey) {
  EXPECT_FALSE(FilePart::open(file, {.bytes = 10})) << "there is no such file";
  AtomicFile owner(file);
  FileKey key = owner.reserve(10);
  key.random[3] ^= std::byte{1};
  EXPECT_FALSE(FilePart::open(file, key));
  key.random[3] ^= std::byte{1};
  EXPECT_TRUE(FilePart::open(file, key));
}

// Its owner may have died: a later writer must not share a file with it.
TEST_F(FileTest, IsNotTakenOverWhileAPartIsWritten) {
  std::optional<AtomicFile> owner(file);
  auto part = FilePart::open(file, owner->reserve(10));
  std::filesystem::rename(temporary, directory.path / "kept");
  owner.reset();
  std::filesystem::rename(directory.path / "kept", temporary);  // as it lies there after a death
  EXPECT_EQ(message_of<IoError>([&] { AtomicFile second(file); }),
            "cannot write " + file.string() + ": another process is writing it");
  remove_abandoned_files(directory.path);
  EXPECT_TRUE(std::filesystem::exists(temporary));
  part.reset();
  write_text_file(file, "new");
  EXPECT_EQ(read_text_file(file, 100), "new");
}

TEST_F(FileTest, SaysAtOnceThatThereIsNoRoomForAllParts) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<IoError>([&] { AtomicFile(file).reserve(2000); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(message, "cannot write " + file.string() + ": File too large");
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

TEST_F(FileTest, GathersPiecesOfAnySize) {
  std::string whole;
  AtomicFile writer(file);
  for (const std::size_t size : {1, 3, 1 << 20, 1, (1 << 20) - 1, 0, 1, (1 << 20) + 1, 7, 3 << 20})
    for (const char c : {'a', 'b'}) {
      const std::string piece(size, c);
      writer.write(piece);
      whole += piece;
    }
  writer.commit();
  EXPECT_TRUE(read_text_file(file, whole.size()) == whole);
}

TEST_F(FileTest, ReachesTheSystemWhenFlushed) {
  AtomicFile writer(file);
  writer.write("some text");
  EXPECT_EQ(std::filesystem::file_size(temporary), 0u);
  writer.flush();
  EXPECT_EQ(std::filesystem::file_size(temporary), 9u);
}

TEST_F(FileTest, DuplicatesAreFilesOfTheirOwn) {
  write_text_file(file, "some text");
  duplicate_file(file, directory.path / "second");
  EXPECT_EQ(std::filesystem::hard_link_count(file), 1u);
  EXPECT_EQ(read_text_file(directory.path / "second", 100), "some text");
  EXPECT_THAT(message_of<IoError>([&] { duplicate_file(directory.path / "none", file); }),
              HasSubstr("No such file"));
  EXPECT_EQ(read_text_file(file, 100), "some text");
}

TEST_F(FileTest, ProbingLeavesNoTrace) {
  probe_writing(file);
  EXPECT_THAT(names(), ::testing::IsEmpty());
  write_text_file(file, "old");
  probe_writing(file);
  EXPECT_EQ(read_text_file(file, 100), "old");
  EXPECT_THAT(message_of<IoError>([&] { probe_writing(file / "below"); }),
              HasSubstr("Not a directory"));
}

TEST_F(FileTest, RemovesOnlyWhatNobodyWrites) {
  for (const char* name : {".dead.ridge-tmp", "ridge-tmp", "not.hidden.ridge-tmp", ".other.tmp"})
    std::ofstream(directory.path / name) << "text";
  std::filesystem::create_directory(directory.path / ".directory.ridge-tmp");
  std::filesystem::create_symlink("not.hidden.ridge-tmp", directory.path / ".link.ridge-tmp");
  AtomicFile living(file);
  remove_abandoned_files(directory.path);
  remove_abandoned_files(directory.path / "none");
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("ridge-tmp", "not.hidden.ridge-tmp",
                                                       ".other.tmp", ".directory.ridge-tmp",
                                                       ".link.ridge-tmp", ".file.ridge-tmp"));
  living.write("text");
  living.commit();
  EXPECT_EQ(read_text_file(file, 100), "text");
}

// Writers race for one name: each either writes it or is told that another does, and what is there
// is always whole.
TEST_F(FileTest, StaysWholeUnderRacingWriters) {
  constexpr int writers = 4, rounds = 50;
  std::vector<pid_t> children;
  for (int w = 0; w < writers; ++w) {
    children.push_back(::fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() != 0) continue;
    const std::string text(1000, static_cast<char>('a' + w));
    for (int i = 0; i < rounds; ++i) try {
        write_text_file(file, text);
        const std::string read = read_text_file(file, text.size());
        if (read != std::string(text.size(), read.at(0))) ::_exit(1);
      } catch (const IoError& error) {
        if (!std::string_view(error.what()).ends_with("another process is writing it")) ::_exit(2);
      }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

}  // namespace
}  // namespace ridge
