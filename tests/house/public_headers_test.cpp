// What `cmake --install` installs is what ridge/ridge.h brings in: no header less, which would not
// compile, and none more, which somebody would then depend on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace ridge {
namespace {

using ::testing::IsEmpty;

const std::string root = RIDGE_SOURCE_DIR;

// The first groups of the lines of a file that match.
std::set<std::string> matches(const std::string& path, const std::regex& line_like) {
  std::ifstream file(root + "/" + path);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::set<std::string> found;
  std::smatch match;
  for (std::string line; std::getline(file, line);)
    if (std::regex_match(line, match, line_like)) found.insert(match[1]);
  return found;
}

TEST(PublicHeaders, AreWhatTheUmbrellaHeaderIncludes) {
  const std::regex include(R"re(#include "(ridge/.*)".*)re");
  std::set<std::string> included;
  for (std::vector<std::string> open{"ridge/ridge.h"}; !open.empty();) {
    const std::string header = open.back();
    open.pop_back();
    if (!included.insert(header).second) continue;
    for (const std::string& next : matches(header, include)) open.push_back(next);
  }
  const std::set<std::string> installed =
      matches("cmake/public_headers.cmake", std::regex(R"re(\s*(ridge/\S*\.h)\)?)re"));
  const auto without = [](const std::set<std::string>& all, const std::set<std::string>& some) {
    std::vector<std::string> rest;
    std::ranges::set_difference(all, some, std::back_inserter(rest));
    return rest;
  };
  EXPECT_THAT(without(included, installed), IsEmpty()) << "are to be in cmake/public_headers.cmake";
  EXPECT_THAT(without(installed, included), IsEmpty()) << "no public header includes them";
}

}  // namespace
}  // namespace ridge
