#include "ridge/trace/named_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NamedTraces : public ::testing::Test {
 protected:
  std::string write(const std::string& name) {
    const std::filesystem::path path = directory_.path / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path)
        << R"([{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":0,"dur":1}])";
    return path.string();
  }

  TemporaryDirectory directory_;
};

TEST_F(NamedTraces, AreFilesAndThoseOfDirectories) {
  const std::string one = write("one.json"), two = write("ranks/two.json"),
                    three = write("ranks/three.json");
  const std::vector<std::string> names{one, (directory_.path / "ranks").string()};
  std::vector<std::string> found;
  for (const NamedTrace& trace : named_traces(names)) {
    found.push_back(trace.path.string());
    EXPECT_EQ(trace.in_directory, trace.path != one);
  }
  EXPECT_THAT(found, ElementsAre(one, three, two));
  EXPECT_THAT(message_of<UsageError>([] { named_traces({}); }), HasSubstr("report which trace?"));
  std::filesystem::create_directory(directory_.path / "empty");
  const std::vector<std::string> empty{(directory_.path / "empty").string()};
  EXPECT_THAT(message_of<UsageError>([&] { named_traces(empty); }),
              HasSubstr("there is no trace in"));
}

TEST_F(NamedTraces, TellTheBytesOfAllOfThem) {
  const std::vector<NamedTrace> files{{write("a.json")}, {write("b.json")}};
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(files[0].path));
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  std::vector<std::string> read;
  read_each(
      files, [&](std::int64_t done, std::int64_t all) { told.emplace_back(done, all); },
      [&](Trace&& trace) { read.push_back(trace.file); });
  EXPECT_THAT(read, ElementsAre("a.json", "b.json"));
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.front().second, 2 * bytes);
  EXPECT_EQ(told.back(), std::pair(2 * bytes, 2 * bytes));
}

TEST_F(NamedTraces, AreReadNoFurtherThanTheProgressLets) {
  const std::vector<NamedTrace> files{{write("a.json")}, {write("b.json")}};
  struct Stopped {};
  bool taken = false;
  EXPECT_THROW(read_each(
                   files, [](std::int64_t, std::int64_t) { throw Stopped(); },
                   [&](Trace&&) { taken = true; }),
               Stopped);
  EXPECT_FALSE(taken);
}

TEST_F(NamedTraces, OfADirectoryAreLeftOutWhereTheyAreNone) {
  const std::string good = write("ranks/a.json"), bad = (directory_.path / "ranks/b.json").string();
  std::ofstream(bad) << R"({"lr": 1})";
  std::vector<std::string> read;
  const auto take = [&](Trace&& trace) { read.push_back(trace.file); };
  const auto ignore = [](std::int64_t, std::int64_t) {};
  EXPECT_THAT(read_each(std::vector<NamedTrace>{{good, true}, {bad, true}}, ignore, take),
              ElementsAre(HasSubstr("b.json")));
  EXPECT_THAT(read, ElementsAre("a.json"));
  EXPECT_THROW(read_each(std::vector<NamedTrace>{{bad, true}}, ignore, take), FormatError);
  EXPECT_THROW(read_each(std::vector<NamedTrace>{{bad}}, ignore, take), FormatError) << "was named";
}

}  // namespace
}  // namespace ridge::trace
