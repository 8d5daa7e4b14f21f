// A test that makes a directory of its own in the temporary one leaves it there when it fails, or
// forgets a part of it: tests make them by TemporaryDirectory alone, which takes them away.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ridge {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFiles, AreMadeByTemporaryDirectoryAlone) {
  const fs::path tests = fs::path(RIDGE_SOURCE_DIR) / "tests";
  std::size_t read = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tests)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".cpp") && !name.ends_with(".h")) continue;
    if (name == "temporary_directory.h" || name == "temporary_test.cpp") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const char* call : {"temp_directory_path", "mkdtemp", "\"/tmp"})
      EXPECT_EQ(text.find(call), text.npos) << entry.path() << " uses " << call;
    ++read;
  }
  EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace ridge
