// The pages of docs/ and the README cannot drift from the code: a fenced block whose info string
// names a file, as in "```cpp ridge/ops/relu.h", is literally a part of that file, links lead to
// files and headings that are there, the page of results is what its script makes of the data, and
// the schema of records fits those that runs write.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ridge/report/json_schema.h"
#include "tests/cli/program.h"

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

struct Link {
  std::string file;     // empty: the same page
  std::string heading;  // "two-commands"; empty: the page as a whole
};

// What follows "](" in prose, up to ")", but for addresses elsewhere.
std::vector<Link> relative_links_in(const std::string& prose) {
  std::vector<Link> links;
  for (std::size_t at = prose.find("]("); at != std::string::npos; at = prose.find("](", at + 2)) {
    const std::string target = prose.substr(at + 2, prose.find(')', at) - at - 2);
    if (target.find(':') != std::string::npos) continue;
    const std::size_t hash = target.find('#');
    links.push_back({target.substr(0, hash), hash == target.npos ? "" : target.substr(hash + 1)});
  }
  return links;
}

// The anchors of a page's headings, as GitHub makes them: lower case, blanks as hyphens, without
// punctuation, and with "-1", "-2" where a heading comes again.
std::set<std::string> anchors_of(const std::string& prose) {
  std::set<std::string> anchors;
  std::map<std::string, int> seen;
  std::istringstream lines(prose);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of('#');
    if (begin == 0 || begin == line.npos || line[begin] != ' ') continue;
    std::string anchor;
    for (const char c : line.substr(begin + 1)) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == ' ')
        anchor += '-';
      else if (std::isalnum(byte) || c == '-' || c == '_' || byte >= 0x80)
        anchor += static_cast<char>(std::tolower(byte));
    }
    const int before = seen[anchor]++;
    anchors.insert(before == 0 ? anchor : anchor + "-" + std::to_string(before));
  }
  return anchors;
}

// What a command writes to its standard output.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    output.append(buffer.data(), n);
  return output;
}

// Where a record breaks its schema, and how.
std::vector<std::string> breaches_of_schema(const std::string& record) {
  const std::string schema =
      read_file(root / "ridge/report/schemas/performance_summary.schema.json");
  std::vector<std::string> breaches;
  for (const Breach& breach : breaches_of(nlohmann::ordered_json::parse(record), schema))
    breaches.push_back(breach.place + ": " + breach.reason);
  return breaches;
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
  for (const Quotation& quotation :
       read_page(root / "docs/internals/adding-an-operator.md").quotations)
    files.push_back(quotation.file);
  EXPECT_THAT(files, ::testing::IsSupersetOf({"ridge/ops/relu.h", "ridge/ops/relu.cpp",
                                              "ridge/cpu/relu.cpp",
                                              "ridge/gpu/kernels/elementwise/relu.cu"}));
}

TEST(Docs, RelativeLinksLeadToFilesAndHeadings) {
  for (const fs::path& path : pages())
    for (const Link& link : relative_links_in(read_page(path).prose)) {
      const fs::path target = link.file.empty() ? path : path.parent_path() / link.file;
      EXPECT_TRUE(fs::exists(target)) << path << " links to " << link.file;
      if (link.heading.empty() || !fs::exists(target)) continue;
      EXPECT_THAT(anchors_of(read_page(target).prose), ::testing::Contains(link.heading))
          << path << " links to a heading that " << target << " does not have";
    }
}

TEST(Docs, TheReadmeStaysShort) {
  std::istringstream words(read_file(root / "README.md"));
  EXPECT_LE(std::distance(std::istream_iterator<std::string>(words), {}), 900);
}

TEST(Docs, ThePageOfResultsIsWhatItsScriptPrints) {
  if (output_of("command -v python3").empty()) GTEST_SKIP() << "there is no python3";
  const std::string script = (root / "benchmarks/results_page.py").string();
  const std::string page = output_of("python3 -B '" + script + "' --print 2>&1");
  EXPECT_TRUE(page == read_file(root / "docs/results/README.md"))
      << "run benchmarks/results_page.py; it prints now: " << page.substr(0, 500);
}

TEST(Docs, TheSchemaFitsTheRecordsThatRunsWrite) {
  const Sandbox sandbox;
  const std::vector<std::string> model = {"--hidden-dim=16", "--n-layers=1", "--n-heads=2",
                                          "--seq-len=8",     "--device=cpu", "--threads=1"};
  const auto run = [&](std::vector<std::string> command, const std::string& record) {
    command.insert(command.end(), model.begin(), model.end());
    const ProgramResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(breaches_of_schema(sandbox.read(record)), ::testing::IsEmpty()) << command[1];
  };
  run({"ridge", "train", "--num-steps=2", "--eval-every=1", "--profile"},
      "output/performance_summary.json");
  run({"ridge", "bench", "--network=resnet18", "--image-size=32", "--batch-size=1", "--num-steps=1",
       "--export-json=bench.json"},
      "bench.json");
}

TEST(Docs, TheSchemaRefusesOtherRecords) {
  using ::testing::Contains;
  using ::testing::StartsWith;
  EXPECT_THAT(breaches_of_schema("{}"),
              Contains("workload: Missing required property 'workload'."));
  const auto breaches =
      breaches_of_schema(R"({"schema": "ridge-record-0", "timestamp": 1, "more": 2})");
  for (const char* breach : {"schema: Failed to match expected value", "timestamp: Value type",
                             ": Object contains a property that could not be validated"})
    EXPECT_THAT(breaches, Contains(StartsWith(breach)));
}

// What documents a profile's files is also what `ridge report` checks them by.
TEST(Docs, EverySchemaIsOneAndTellsOfEveryMember) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root / "ridge/report/schemas")) {
    if (entry.path().extension() != ".json") continue;
    const auto schema = nlohmann::ordered_json::parse(read_file(entry.path()));
    EXPECT_EQ(schema["type"], "object") << entry.path();
    for (const auto& [name, member] : schema["properties"].items())
      EXPECT_TRUE(member.contains("description")) << entry.path() << " " << name;
    ++count;
  }
  EXPECT_EQ(count, 10u);
}

}  // namespace
}  // namespace ridge
