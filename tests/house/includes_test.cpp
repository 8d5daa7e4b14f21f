// The order of the folders in the README's table is the order of what may know what: a folder
// includes those above it and never those below, and no folders include each other in a circle. The
// same holds of the folders of gpu/ in the table of the page about it.

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

const fs::path root = RIDGE_SOURCE_DIR;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// What group 1 of a pattern is in the lines of a page that match it.
std::vector<std::string> rows_of(const fs::path& page, const std::regex& row) {
  std::vector<std::string> rows;
  std::smatch match;
  for (const std::string& line : lines_of(root / page))
    if (std::regex_match(line, match, row)) rows.push_back(match[1]);
  return rows;
}

// "base", "graph", ...: the folders of ridge/ in the order of the README's table.
std::vector<std::string> folders_in_order() {
  return rows_of("README.md", std::regex(R"(^\| \[ridge/(\w+)\]\(ridge/\w+\) \|.*)"));
}

// "device", "vendor", ...: those of ridge/gpu/ in the order of its page's table.
std::vector<std::string> rooms_in_order() {
  return rows_of("docs/internals/gpu.md", std::regex(R"(^\| \[(\w+)/\]\(.*/ridge/gpu/\w+\) \|.*)"));
}

struct Include {
  std::string file;      // "ridge/gpu/device/trial.h"
  std::string from, to;  // folders below ridge/: "gpu/device", "base"
};

std::vector<Include> includes_of(const fs::path& tree) {
  const std::regex include(R"(^#include "ridge/(.*)/[^/]+".*)");
  std::vector<Include> all;
  std::smatch match;
  for (const auto& entry : fs::recursive_directory_iterator(tree / "ridge")) {
    const std::string end = entry.path().extension();
    if (end != ".h" && end != ".cpp" && end != ".cu") continue;
    const fs::path file = fs::relative(entry.path(), tree);
    const std::string from = fs::relative(file.parent_path(), "ridge").string();
    if (from == ".") continue;  // ridge.h, which is for those who embed Ridge
    for (const std::string& line : lines_of(entry.path()))
      if (std::regex_match(line, match, include) && match[1] != from)
        all.push_back({file.string(), from, match[1]});
  }
  return all;
}

std::string top(const std::string& folder) { return folder.substr(0, folder.find('/')); }

// "device" of "gpu/device"; empty for files that lie in gpu/ itself.
std::string room(const std::string& folder) {
  const std::size_t slash = folder.find('/');
  return slash == std::string::npos ? "" : top(folder.substr(slash + 1));
}

std::size_t place_of(const std::string& name, const std::vector<std::string>& order) {
  const auto found = std::ranges::find(order, name);
  EXPECT_NE(found, order.end()) << "the table of folders lacks " << name;
  return static_cast<std::size_t>(found - order.begin());
}

std::vector<std::string> breaches_of_order(const std::vector<Include>& includes) {
  const std::vector<std::string> order = folders_in_order();
  const auto place = [&](const std::string& folder) { return place_of(top(folder), order); };
  std::vector<std::string> breaches;
  for (const Include& include : includes)
    if (place(include.to) > place(include.from))
      breaches.push_back(include.file + " includes ridge/" + include.to);
  return breaches;
}

// What lies in gpu/ itself is the device, which knows all rooms and which none knows.
std::vector<std::string> breaches_of_rooms(const std::vector<Include>& includes) {
  std::vector<std::string> order = rooms_in_order();
  order.emplace_back();
  std::vector<std::string> breaches;
  for (const Include& include : includes)
    if (top(include.from) == "gpu" && top(include.to) == "gpu" &&
        place_of(room(include.to), order) > place_of(room(include.from), order))
      breaches.push_back(include.file + " includes ridge/" + include.to);
  return breaches;
}

// The kernels of one architecture are behind those for all, which say what they compute.
std::vector<std::string> outsiders_in_sm90(const std::vector<Include>& includes) {
  std::vector<std::string> breaches;
  for (const Include& include : includes)
    if (top(include.from) != "gpu" && top(include.to) == "gpu" && room(include.to) == "sm90")
      breaches.push_back(include.file + " includes ridge/" + include.to);
  return breaches;
}

// Includes that can be followed back to the folder they are in. A header that lies directly in a
// folder serves its subfolders, so the two count as one folder where a subfolder includes upwards.
std::vector<std::string> circles(const std::vector<Include>& includes) {
  std::map<std::string, std::set<std::string>> reaches;
  for (const Include& include : includes) reaches[include.from].insert(include.to);
  for (bool grown = true; grown;) {
    grown = false;
    for (auto& [from, all] : reaches)
      for (const std::string& to : std::set<std::string>(all))
        for (const std::string& further : reaches[to]) grown |= all.insert(further).second;
  }
  std::vector<std::string> found;
  for (const Include& include : includes)
    if (reaches[include.to].contains(include.from))
      found.push_back(include.file + " includes ridge/" + include.to + ", which leads back");
  return found;
}

TEST(Includes, PointUpwardsInTheTableOfTheReadme) {
  EXPECT_EQ(breaches_of_order(includes_of(root)), std::vector<std::string>{});
}

TEST(Includes, FormNoCircleOfFolders) {
  EXPECT_EQ(circles(includes_of(root)), std::vector<std::string>{});
}

TEST(Includes, OfTheGpusRoomsPointUpwardsInTheTableOfItsPage) {
  EXPECT_EQ(rooms_in_order().size(), 6u);
  EXPECT_EQ(breaches_of_rooms(includes_of(root)), std::vector<std::string>{});
}

TEST(Includes, ReachSm90FromTheGpusFolderAlone) {
  EXPECT_EQ(outsiders_in_sm90(includes_of(root)), std::vector<std::string>{});
}

TEST(Includes, ABreachBetweenRoomsWouldBeSeen) {
  using Breaches = std::vector<std::string>;
  EXPECT_EQ(breaches_of_rooms({{"a.h", "gpu/device", "gpu/vendor"},
                               {"b.h", "gpu/vendor", "gpu/codegen"},
                               {"c.h", "gpu/codegen", "gpu/profile"},
                               {"d.h", "gpu/profile", "gpu/kernels/conv"},
                               {"e.h", "gpu/kernels/conv", "gpu/sm90/conv"},
                               {"f.h", "gpu/sm90", "gpu"},
                               {"g.h", "gpu", "gpu/sm90/conv"},
                               {"h.h", "gpu/sm90/conv", "gpu/kernels/product"},
                               {"i.h", "run", "gpu/sm90"}}),
            (Breaches{"a.h includes ridge/gpu/vendor", "b.h includes ridge/gpu/codegen",
                      "c.h includes ridge/gpu/profile", "d.h includes ridge/gpu/kernels/conv",
                      "e.h includes ridge/gpu/sm90/conv", "f.h includes ridge/gpu"}));
  EXPECT_EQ(outsiders_in_sm90({{"a.h", "run", "gpu/sm90/conv"},
                               {"b.h", "run", "gpu/kernels/conv"},
                               {"c.h", "gpu/kernels/conv", "gpu/sm90/conv"}}),
            Breaches{"a.h includes ridge/gpu/sm90/conv"});
}

TEST(Includes, ABreachWouldBeSeen) {
  const std::vector<Include> planted{{"ridge/base/shape.h", "base", "cli"}};
  EXPECT_EQ(breaches_of_order(planted).size(), 1u);
  const std::vector<Include> circle{{"ridge/gpu/vendor/a.h", "gpu/vendor", "gpu/device"},
                                    {"ridge/gpu/device/b.h", "gpu/device", "gpu/kernels"},
                                    {"ridge/gpu/kernels/c.h", "gpu/kernels", "gpu/vendor"}};
  EXPECT_EQ(circles(circle).size(), 3u);
}

}  // namespace
}  // namespace ridge
