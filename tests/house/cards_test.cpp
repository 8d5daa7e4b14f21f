// What one card likes stands in one file, ridge/gpu/device/card.cpp: no other source names a card,
// and each of that file's numbers is one that some source asks for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace ridge {
namespace {

namespace fs = std::filesystem;

const std::string cards = "ridge/gpu/device/card.cpp", fields = "ridge/gpu/device/card.h";

using Sources = std::map<std::string, std::string>;  // by path: the text

// Those of ridge/, as paths from the root of the repository.
Sources sources() {
  const fs::path root = RIDGE_SOURCE_DIR;
  Sources all;
  for (const auto& entry : fs::recursive_directory_iterator(root / "ridge")) {
    const std::string end = entry.path().extension();
    if (end != ".h" && end != ".cpp" && end != ".cu" && end != ".txt") continue;
    std::ifstream file(entry.path());
    EXPECT_TRUE(file) << "cannot read " << entry.path();
    all[fs::relative(entry.path(), root).string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return all;
}

bool is_part_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Whether a text has a word, after one of these characters if there are any.
bool has(const std::string& text, const std::string& word, const std::string& after = "") {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const char before = at == 0 ? ' ' : text[at - 1];
    const char behind = at + word.size() == text.size() ? ' ' : text[at + word.size()];
    const bool begins =
        after.empty() ? !is_part_of_word(before) : after.find(before) != std::string::npos;
    if (begins && !is_part_of_word(behind)) return true;
  }
  return false;
}

// Sources that name a card, or a generation of cards where an architecture is meant.
std::vector<std::string> namers(const Sources& all) {
  std::vector<std::string> found;
  for (const auto& [path, text] : all) {
    if (path == cards) continue;
    std::string lower = text;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const char* name : {"a100", "h100", "h200", "b200", "hopper", "blackwell"})
      if (has(lower, name)) found.push_back(path + " names " + name);
  }
  return found;
}

// The fields of Crossovers that no source but its own reads.
std::vector<std::string> unread(const Sources& all) {
  const std::string& text = all.at(fields);
  const std::size_t begin = text.find("struct Crossovers {"), end = text.find("\n};", begin);
  const std::string body =
      std::regex_replace(text.substr(begin, end - begin), std::regex("//[^\n]*"), "");
  std::set<std::string> names;
  const std::regex declaration(R"((?:std::\w+|double|unsigned|int)\s+([\w,\s]+);)"), word(R"(\w+)");
  for (std::sregex_iterator d(body.begin(), body.end(), declaration); d != std::sregex_iterator();
       ++d) {
    const std::string list = (*d)[1];
    names.insert(std::sregex_token_iterator(list.begin(), list.end(), word), {});
  }
  EXPECT_GT(names.size(), 20u) << "the struct is no longer read as it is written";
  for (const auto& [path, source] : all)
    if (path != cards && path != fields)
      std::erase_if(names, [&](const std::string& name) { return has(source, name, ".>"); });
  return {names.begin(), names.end()};
}

using Names = std::vector<std::string>;

TEST(Cards, AreNamedInOneSourceAlone) { EXPECT_EQ(namers(sources()), Names{}); }

TEST(Cards, EveryNumberOfCrossoversIsRead) { EXPECT_EQ(unread(sources()), Names{}); }

TEST(Cards, ABreachWouldBeSeen) {
  Sources all = sources();
  all["ridge/plan/arena.cpp"] += "// As on an H100.\n";
  all["ridge/ops/conv.cpp"] += "constexpr int hopper = 90;\n";
  EXPECT_EQ(namers(all),
            (Names{"ridge/ops/conv.cpp names hopper", "ridge/plan/arena.cpp names h100"}));
  const std::string begin = "struct Crossovers {";
  std::string& text = all[fields];
  text.insert(text.find(begin) + begin.size(),
              "\n  // Read by nobody.\n  std::int64_t unread_sizes, unread_others;\n");
  EXPECT_EQ(unread(all), (Names{"unread_others", "unread_sizes"}));
}

}  // namespace
}  // namespace ridge
