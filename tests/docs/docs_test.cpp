// The pages of docs/ and the README cannot drift from the code: a fenced block whose info string
// names a file, as in "```cpp ridge/ops/relu.h", is literally a part of that file, and links lead
// to files that are there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

// A page taken apart: what stands outside fenced blocks, and the fenced blocks that name a file.
struct Page {
  std::string prose;
  std::vector<Quotation> quotations;
};

Page read_page(const fs::path& path) {
  Page page;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("```")) {
      page.prose += line + "\n";
      continue;
    }
    const std::size_t space = line.find(' ');
    Quotation block{space == std::string::npos ? "" : line.substr(space + 1), ""};
    while (std::getline(lines, line) && !line.starts_with("```")) block.text += line + "\n";
    if (!block.file.empty()) page.quotations.push_back(block);
  }
  return page;
}

// What follows "](" in prose, up to ")" or "#", but for addresses and places in the same page.
std::vector<std::string> relative_links_in(const std::string& prose) {
  std::vector<std::string> links;
  for (std::size_t at = prose.find("]("); at != std::string::npos; at = prose.find("](", at + 2)) {
    const std::string link = prose.substr(at + 2, prose.find_first_of(")#", at) - at - 2);
    if (!link.empty() && link.find(':') == std::string::npos) links.push_back(link);
  }
  return links;
}

TEST(Docs, QuotedCodeIsInTheFileItNames) {
  for (const fs::path& path : pages())
    for (const Quotation& quotation : read_page(path).quotations)
      EXPECT_NE(read_file(root / quotation.file).find(quotation.text), std::string::npos)
          << path << " quotes from " << quotation.file << " what is not there:\n"
          << quotation.text;
}

TEST(Docs, AddingAnOperatorQuotesEveryPartOfOne) {
  std::vector<std::string> files;
  for (const Quotation& quotation : read_page(root / "docs/adding-an-operator.md").quotations)
    files.push_back(quotation.file);
  EXPECT_THAT(files,
              testing::IsSupersetOf({"ridge/ops/relu.h", "ridge/ops/relu.cpp", "ridge/cpu/relu.cpp",
                                     "ridge/gpu/kernels/elementwise/relu.cu"}));
}

TEST(Docs, RelativeLinksLeadToFiles) {
  for (const fs::path& path : pages())
    for (const std::string& link : relative_links_in(read_page(path).prose))
      EXPECT_TRUE(fs::exists(path.parent_path() / link)) << path << " links to " << link;
}

}  // namespace
}  // namespace ridge
