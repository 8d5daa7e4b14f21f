// The pages of docs/ and the README cannot drift from the code: a fenced block whose info string
// names a file, as in "```cpp ridge/ops/relu.h", is literally a part of that file, and links lead
// to files that are there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace ridge {
namespace {

namespace fs = std::filesystem;

const fs::path root = RIDGE_SOURCE_DIR;

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> pages() {
  std::vector<fs::path> pages{root / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  return pages;
}

struct Quotation {
  std::string file;  // relative to the root
  std::string text;
};

// The fenced blocks that name a file.
std::vector<Quotation> quotations_in(const std::string& page) {
  std::vector<Quotation> quotations;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("```")) continue;
    const std::size_t space = line.find(' ');
    Quotation quotation{space == std::string::npos ? "" : line.substr(space + 1), ""};
    while (std::getline(lines, line) && !line.starts_with("```")) quotation.text += line + "\n";
    if (!quotation.file.empty()) quotations.push_back(quotation);
  }
  return quotations;
}

TEST(Docs, QuotedCodeIsInTheFileItNames) {
  for (const fs::path& page : pages())
    for (const Quotation& quotation : quotations_in(read_file(page)))
      EXPECT_NE(read_file(root / quotation.file).find(quotation.text), std::string::npos)
          << page << " quotes from " << quotation.file << " what is not there:\n"
          << quotation.text;
}

TEST(Docs, AddingAnOperatorQuotesEveryPartOfOne) {
  std::vector<std::string> files;
  for (const Quotation& quotation : quotations_in(read_file(root / "docs/adding-an-operator.md")))
    files.push_back(quotation.file);
  EXPECT_THAT(files, testing::IsSupersetOf(
                         {"ridge/ops/relu.h", "ridge/ops/relu.cpp", "ridge/cpu/relu.cpp"}));
}

TEST(Docs, RelativeLinksLeadToFiles) {
  const std::regex link(R"(\]\(([^)#:\s]+)(#[^)]*)?\))");
  for (const fs::path& page : pages()) {
    const std::string text = read_file(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it)
      EXPECT_TRUE(fs::exists(page.parent_path() / (*it)[1].str())) << page << ": " << (*it)[0];
  }
}

}  // namespace
}  // namespace ridge
