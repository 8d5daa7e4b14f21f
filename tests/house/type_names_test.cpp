// Two types of one name in one namespace are one type to the linker, which keeps the functions of
// either for both: a program that is built so reads the one as the other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace ridge {
namespace {

namespace fs = std::filesystem;

using Places = std::map<std::string, std::set<std::string>>;  // names of files by qualified name

// Adds the types that a file defines at the margin, other than in a namespace without name.
void add_types(const fs::path& path, Places& places) {
  static const std::regex opening(R"(namespace(?: ([\w:]+))? \{)"),
      closing(R"(\}  // namespace.*)"),
      type(R"((?:template <.*> )?(?:struct|class|enum class) (?:alignas\(\w+\) )?(\w+)( final)?)"
           R"((?: :[^:].*| \{.*|$))");
  std::ifstream file(path);
  std::vector<std::string> namespaces;
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, opening)) {
      namespaces.push_back(match[1]);
    } else if (std::regex_match(line, closing) && !namespaces.empty()) {
      namespaces.pop_back();
    } else if (std::regex_match(line, match, type) && !std::ranges::count(namespaces, "")) {
      std::string name;
      for (const std::string& space : namespaces) name += space + "::";
      places[name + match[1].str()].insert(path.filename());
    }
  }
}

TEST(TypeNames, AreDefinedInOneFileEach) {
  Places places;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(RIDGE_SOURCE_DIR) / "ridge")) {
    const std::string ending = entry.path().extension();
    // What is compiled on the GPU's machine has what it needs of the host's under the same names.
    if (entry.path().filename() == "runtime_rtc.h") continue;
    if (ending == ".h" || ending == ".cpp" || ending == ".cu" || ending == ".cuh")
      add_types(entry.path(), places);
  }
  EXPECT_GT(places.size(), 500u);
  EXPECT_TRUE(places.contains("ridge::Session") && places.contains("ridge::gpu::Nvml"));
  for (const auto& [name, files] : places)
    EXPECT_THAT(files, ::testing::SizeIs(1)) << name << " is defined in each of these";
}

}  // namespace
}  // namespace ridge
