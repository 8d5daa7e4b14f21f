#include "ridge/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/memory_timeline.h"
#include "ridge/profile/operator_table.h"
#include "ridge/session/record.h"
#include "tests/analyze/small_training.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Roof roof{.threads = 2,
                .peaks = {{ProductKind::f32, 1e12}, {ProductKind::bf16, 2e12}},
                .levels = {{"memory", 0, 1e10}}};

// The files of a profile by name, as training writes them.
std::map<std::string, std::string> profile_files() {
  SmallTraining training;
  const Recording& recording = training.record(2);
  Record record{
      .system = {.cpu = "a CPU", .threads = 7}, .timestamp = "now", .samples_per_step = 8};
  record.options.resolve();
  record.workload = workload_of(record.options).info;
  record.steps = {{.step = 1, .loss = 3, .seconds = 0.5}, {.step = 2, .loss = 2, .seconds = 0.25}};
  return {{"operators", operator_table_json(operator_table(recording))},
          {"nodes", nodes_json(recording)},
          {"modules", modules_json(flops_report(recording))},
          {"memory", memory_report_json(memory_report(recording))},
          {"memory_timeline", memory_timeline_json(recording)},
          {"bottlenecks", bottleneck_json(analyze_bottlenecks(recording, roof))},
          {"performance_summary", record_json(record, summarize(record))},
          {"config", to_json(record.options)}};
}

// The directory of a profile.
struct Profile : TemporaryDirectory {
  Profile() {
    static const std::map<std::string, std::string> files = profile_files();
    for (const auto& [name, text] : files) write(name, text);
  }

  std::filesystem::path file(const std::string& name) const { return path / (name + ".json"); }
  void write(const std::string& name, const std::string& text) const {
    write_text_file(file(name), text);
  }
  json read(const std::string& name) const {
    return json::parse(read_text_file(file(name), 1 << 24));
  }
};

// The message of the FormatError that the directory's document is refused with.
std::string refusal(const Profile& profile) {
  return message_of<FormatError>([&] { profile_document(profile.path); });
}

constexpr const char* file_names[] = {
    "operators",       "nodes",       "modules", "memory",
    "memory_timeline", "bottlenecks", "config",  "performance_summary"};

TEST(ProfileDocument, HasTheContentOfEveryFile) {
  const Profile profile;
  const json document = profile_document(profile.path);
  EXPECT_EQ(document["profile"], profile.path.filename().string());
  for (const char* name : file_names) EXPECT_EQ(document[name], profile.read(name)) << name;
  EXPECT_EQ(document["roof"], document["bottlenecks"]["roof"]);
}

TEST(ProfileDocument, HasNullForFilesThatAreNotThere) {
  const Profile profile;
  for (const char* name : file_names)
    if (std::string_view(name) != "operators") std::filesystem::remove(profile.file(name));
  const json document = profile_document(profile.path);
  for (const char* name : file_names)
    EXPECT_EQ(document[name].is_null(), std::string_view(name) != "operators") << name;
  EXPECT_TRUE(document["roof"].is_null());
}

TEST(ProfileDocument, OfAStoreMayBeOlderThanTheFileOfTheSystem) {
  const Profile profile;
  json document = kept_profile(profile.path);
  EXPECT_TRUE(document["system"].is_null());
  document.erase("system");
  check_profile_document(document);
  document["system"] = json::parse(R"({"series": 1})");
  EXPECT_THAT(message_of<FormatError>([&] { check_profile_document(document); }),
              HasSubstr("system: "));
}

TEST(ProfileDocument, TakesTheRoofItIsGiven) {
  const Profile profile;
  Roof other = roof;
  other.raise(ProductKind::f32, 5e12);
  json document = profile_document(profile.path);
  set_roof(document, other);
  EXPECT_EQ(document["roof"]["f32_flops_per_second"], 5e12);
}

TEST(ProfileDocument, RefusesADirectoryThatIsNoProfile) {
  const TemporaryDirectory empty;
  EXPECT_THROW(profile_document(empty.path), IoError);
  EXPECT_THROW(profile_document(empty.path / "nowhere"), IoError);
}

TEST(ProfileDocument, RefusesAFileThatEndsTooSoonAndNamesIt) {
  for (const char* name : file_names) {
    const Profile profile;
    const std::string text = read_text_file(profile.file(name), 1 << 24);
    profile.write(name, text.substr(0, text.size() / 2));
    EXPECT_THAT(refusal(profile), HasSubstr(profile.file(name).string())) << name;
  }
}

TEST(ProfileDocument, RefusesWhatThePageCouldNotDrawAndSaysWhere) {
  struct Fault {
    const char *file, *pointer;
    json value;
    const char* said;
  };
  const Fault faults[] = {
      {"operators", "/rows/1/total/time_ns", "soon", "rows.1.total.time_ns"},
      {"operators", "/rows", {{"a", 1}}, "rows"},
      {"nodes", "/nodes/0/name", 7, "nodes.0.name"},
      {"modules", "/modules/2/parent", 2, "modules.2.parent"},
      {"modules", "/modules/0/parent", 0, "modules.0.parent"},
      {"modules", "/modules/1/parent", nullptr, "modules.1.parent"},
      {"memory", "/peak/bytes_by_group", {1, 2}, "peak.bytes_by_group"},
      {"memory_timeline", "/live_bytes", {1}, "live_bytes"},
      {"memory_timeline", "/bytes_by_group/inputs", {1}, "bytes_by_group"},
      {"memory_timeline", "/bytes_by_group/inputs/0", "x", "bytes_by_group"},
      {"memory_timeline", "/allocations/tensor/0", 100000, "allocations.tensor"},
      {"memory_timeline", "/allocations/tensor/0", -1, "allocations.tensor"},
      {"bottlenecks", "/roof/levels/0/bytes_per_second", nullptr, "roof.levels.0.bytes_per_second"},
      {"performance_summary", "/performance_summary/step_seconds/0", nullptr, "step_seconds"},
      {"config", "", {1}, "the whole file"},
  };
  for (const Fault& fault : faults) {
    const Profile profile;
    json content = profile.read(fault.file);
    content[json::json_pointer(fault.pointer)] = fault.value;
    profile.write(fault.file, content.dump());
    EXPECT_THAT(refusal(profile),
                AllOf(HasSubstr(profile.file(fault.file).string()), HasSubstr(fault.said)))
        << fault.file << fault.pointer;
  }
}

TEST(ProfileDocument, RefusesAnAllocationOfATensorBehindTheLast) {
  const Profile profile;
  json timeline = profile.read("memory_timeline");
  json& allocations = timeline["allocations"];
  const std::size_t tensors = allocations["tensors"].size();
  allocations["tensor"].back() = tensors - 1;
  profile.write("memory_timeline", timeline.dump());
  EXPECT_NO_THROW(profile_document(profile.path));
  allocations["tensor"].back() = tensors;
  profile.write("memory_timeline", timeline.dump());
  EXPECT_THAT(refusal(profile), HasSubstr("allocations.tensor"));
}

TEST(ProfileDocument, RefusesDepthThatCouldExhaustTheStack) {
  const Profile profile;
  profile.write("config", std::string(1'000'000, '['));
  EXPECT_THAT(refusal(profile), HasSubstr("levels deep"));
}

TEST(ProfiledMachine, IsThatOfTheRun) {
  const Profile profile;
  const ProfiledMachine machine = profiled_machine(profile_document(profile.path));
  json operators = profile.read("operators");
  EXPECT_EQ(machine.device, "cpu");
  EXPECT_EQ(machine.hardware, operators["hardware"].get<std::string>());
  EXPECT_NE(machine.hardware, "");
  EXPECT_EQ(machine.threads, 2);  // of the recording
  EXPECT_TRUE(machine.has_roof);
  operators.erase("hardware");  // as it was once
  profile.write("operators", operators.dump());
  EXPECT_EQ(profiled_machine(profile_document(profile.path)).hardware, "a CPU");
  std::filesystem::remove(profile.file("bottlenecks"));
  EXPECT_FALSE(profiled_machine(profile_document(profile.path)).has_roof);
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) ++n;
  return n;
}

TEST(ReportPage, HoldsItsDataWhereNoNameCanLeaveIt) {
  const std::string name = "</script><script>alert(1)</script><!-- {{d3}} {{data}} \"'&";
  const json document{{"name", name}};
  const std::string page = report_page(document), plain = report_page(json::object());
  EXPECT_EQ(count(page, "<script"), count(plain, "<script"));
  EXPECT_EQ(count(page, "</script"), count(plain, "</script"));
  EXPECT_EQ(count(page, "<!--"), count(plain, "<!--"));
  const std::string_view before = "<script type=\"application/json\" id=\"profile\">";
  const std::size_t begin = page.find(before) + before.size();
  const std::string data = page.substr(begin, page.find("</script>", begin) - begin);
  EXPECT_EQ(json::parse(data)["name"], name);
}

TEST(ReportPage, StandsAloneAndKeepsTheLicenseOfItsChartLibrary) {
  const std::string page = report_page(json::object());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* foreign : {" src=\"", "@import", "url(", "<link rel=\"stylesheet\""})
    EXPECT_THAT(page.substr(0, page.find("d3js.org")), Not(HasSubstr(foreign))) << foreign;
  EXPECT_THAT(page, HasSubstr("// https://d3js.org v"));
  EXPECT_THAT(page, HasSubstr("Redistributions in binary form must reproduce"));
  EXPECT_EQ(page.substr(0, page.find("// https://d3js.org v")).find("{{"), std::string::npos);
}

}  // namespace
}  // namespace ridge
