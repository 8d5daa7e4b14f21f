// The order in which a file reaches the disk. After a power cut a name that leads to content that
// was never synced is a lost file, and nothing else here would show it: these functions stand
// before the C library's of the same name.

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ridge/base/file.h"
#include "tests/base/temporary_directory.h"

namespace {

thread_local std::vector<std::string>* calls = nullptr;  // of this thread, while it listens

void note(std::string call) {
  if (calls) calls->push_back(std::move(call));
}

}  // namespace

extern "C" int fsync(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0)
    note(S_ISDIR(status.st_mode) ? "sync directory" : "sync file");
  return reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "fsync"))(descriptor);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  note("rename");
  return reinterpret_cast<int (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "rename"))(from,
                                                                                           to);
}

namespace ridge {
namespace {

using ::testing::ElementsAre;

TEST(AtomicFileOrder, SyncsTheContentThenRenamesThenSyncsTheDirectory) {
  const TemporaryDirectory directory;
  std::vector<std::string> seen;
  calls = &seen;
  write_text_file(directory.path / "file", "content");
  calls = nullptr;
  EXPECT_THAT(seen, ElementsAre("sync file", "rename", "sync directory"));
}

TEST(AtomicFileOrder, TouchesNoNameWithoutACommit) {
  const TemporaryDirectory directory;
  std::vector<std::string> seen;
  calls = &seen;
  { AtomicFile(directory.path / "file").write("content"); }
  calls = nullptr;
  EXPECT_THAT(seen, ElementsAre());
}

}  // namespace
}  // namespace ridge
