// The page about the GPU tells of each call of a vendor's runtime where it has run.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace ridge {
namespace {

namespace fs = std::filesystem;

const fs::path root = RIDGE_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Group 1 of each place of a text that matches.
std::set<std::string> found_in(const std::string& text, const std::regex& pattern) {
  std::set<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern); at != std::sregex_iterator();
       ++at)
    all.insert((*at)[1]);
  return all;
}

// Those of api.h, and those that are HIP's alone.
std::set<std::string> calls() {
  std::set<std::string> all = found_in(text_of(root / "ridge/gpu/device/api.h"),
                                       std::regex(R"(inline (?:Status|const char\*) (\w+)\()"));
  for (const auto& entry : fs::recursive_directory_iterator(root / "ridge/gpu")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with("_hip.cpp") && name != "runtime.h") continue;
    all.merge(found_in(text_of(entry.path()), std::regex(R"(\b(hip[A-Z]\w+)\()")));
  }
  return all;
}

TEST(RuntimeCalls, StandInTheTableOfWhereTheyRan) {
  EXPECT_GT(calls().size(), 35u) << "the calls are no longer read as they are written";
  const std::string page = text_of(root / "docs/internals/gpu.md");
  std::set<std::string> untold;
  for (const std::string& call : calls())
    if (page.find("`" + call + "`") == std::string::npos) untold.insert(call);
  EXPECT_EQ(untold, std::set<std::string>{});
}

}  // namespace
}  // namespace ridge
