#include "ridge/analyze/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "ridge/base/text_table.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using Status = HealthCheck::Status;

// A machine where everything works, with a card and a build for it.
MachineFacts healthy() {
  MachineFacts facts;
  facts.system = "Linux 6.1.0 x86_64";
  facts.cpu = "AMD EPYC 9B14";
  facts.threads = 16;
  facts.cpu_features = {"avx2", "fma", "avx512f", "avx512_bf16"};
  facts.kernels = "avx512+bf16";
  facts.memory_total = std::uint64_t{64} << 30;
  facts.memory_available = std::uint64_t{32} << 30;
  facts.directory = "/home/user";
  facts.disk_available = std::uint64_t{100} << 30;
  facts.directory_writable = true;
  facts.cuda_build = true;
  facts.cuda_built_with = 13000;
  facts.built_for = {{9, 0}};
  facts.driver_version = "580.159.04";
  facts.driver_cuda = 13000;
  facts.cards = {{.info = {.name = "NVIDIA H100 80GB HBM3",
                           .bus_id = "0000:0a:00.0",
                           .capability_major = 9,
                           .capability_minor = 0,
                           .memory_total = std::uint64_t{80} << 30,
                           .memory_used = std::uint64_t{1} << 30,
                           .power_limit_w = 700},
                  .state = {.power_w = 70, .temperature_c = 30}}};
  facts.libraries = {{.name = "cuBLASLt",
                      .purpose = "matrix products",
                      .without = "portable kernels multiply",
                      .package = "CUDA's cuBLAS",
                      .built_with = 130100,
                      .found = 130100},
                     {.name = "CUPTI",
                      .purpose = "profiles and counters",
                      .package = "CUDA's CUPTI",
                      .built_with = 130001,
                      .found = 130001}};
  facts.compiler = "nvcc 13.0";
  return facts;
}

const HealthCheck& check_named(const Diagnosis& diagnosis, std::string_view name) {
  const auto it = std::ranges::find(diagnosis.checks, name, &HealthCheck::name);
  EXPECT_NE(it, diagnosis.checks.end()) << name;
  return *it;
}

void expect_stopped(const MachineFacts& facts, std::string_view name, bool cpu, bool cuda,
                    const std::string& remedy) {
  const Diagnosis diagnosis = diagnose(facts);
  const HealthCheck& check = check_named(diagnosis, name);
  EXPECT_EQ(check.status, Status::missing) << name;
  EXPECT_THAT(check.remedy, HasSubstr(remedy));
  EXPECT_EQ(diagnosis.cpu_can_run, !cpu) << name;
  EXPECT_EQ(diagnosis.cuda_can_run, !cuda) << name;
}

TEST(Doctor, FindsNothingWrongWithAHealthyMachine) {
  const Diagnosis diagnosis = diagnose(healthy());
  for (const HealthCheck& check : diagnosis.checks) {
    EXPECT_EQ(check.status, Status::ok) << check.name << ": " << check.value;
    EXPECT_EQ(check.remedy, "") << check.name;
  }
  for (const char* device : {"auto", "cpu", "cuda", "all"}) EXPECT_TRUE(can_run(diagnosis, device));
}

TEST(Doctor, SaysWhatStopsTraining) {
  MachineFacts facts = healthy();
  facts.kernels_refused = "build Ridge on this machine";
  expect_stopped(facts, "Processor", true, true, "build Ridge on this machine");
  facts = healthy();
  facts.memory_available = 1 << 20;
  expect_stopped(facts, "Memory", true, true, "256.00 MiB");
  facts = healthy();
  facts.directory_writable = false;
  expect_stopped(facts, "Disk", true, true, "--output-dir");
  facts = healthy();
  facts.cuda_build = false;
  expect_stopped(facts, "GPU code", false, true, "-DRIDGE_CUDA=ON");
  facts = healthy();
  facts.driver_error = "the NVIDIA driver is installed but not loaded: sudo modprobe nvidia";
  facts.cards.clear();
  expect_stopped(facts, "Driver", false, true, "sudo modprobe nvidia");
  facts = healthy();
  facts.driver_cuda = 12040;
  expect_stopped(facts, "Driver", false, true, "update the driver");
  facts = healthy();
  facts.cards.clear();
  expect_stopped(facts, "Card", false, true, "CUDA_VISIBLE_DEVICES");
  facts = healthy();
  facts.cards[0].info.capability_major = 8;
  expect_stopped(facts, "Card 0", false, true, "CMAKE_CUDA_ARCHITECTURES=80");
  facts = healthy();
  facts.cards[0].info.memory_used = facts.cards[0].info.memory_total;
  expect_stopped(facts, "Card 0", false, true, "nvidia-smi");
}

TEST(Doctor, SaysWhatHappensWithoutALibrary) {
  MachineFacts facts = healthy();
  facts.libraries[0].found.reset();
  const Diagnosis without = diagnose(facts);
  EXPECT_TRUE(can_run(without, "cuda"));
  const HealthCheck& check = check_named(without, "cuBLASLt");
  EXPECT_EQ(check.status, Status::note);
  EXPECT_EQ(check.value,
            "not found (built with 13.1.0); for matrix products; without it portable kernels "
            "multiply");
  EXPECT_THAT(check.remedy, HasSubstr("LD_LIBRARY_PATH"));
  facts.libraries[0].found = 120803;
  const Diagnosis of_another_version = diagnose(facts);
  EXPECT_TRUE(can_run(of_another_version, "cuda"));
  EXPECT_EQ(check_named(of_another_version, "cuBLASLt").status, Status::missing);
  EXPECT_THAT(check_named(of_another_version, "cuBLASLt").remedy, HasSubstr("version 13"));
}

TEST(Doctor, AsksABuildForHipForItsOwnCardAlone) {
  MachineFacts facts = healthy();
  facts.cuda_build = false;
  facts.hip_build = "gfx90a";
  facts.hip_card = facts.amd_card = true;
  EXPECT_TRUE(can_run(diagnose(facts), "hip"));
  EXPECT_FALSE(can_run(diagnose(facts), "cuda"));
  EXPECT_THAT(check_named(diagnose(facts), "GPU code").value, HasSubstr("HIP, for gfx90a"));
  for (const HealthCheck& check : diagnose(facts).checks)
    EXPECT_EQ(check.status, Status::ok) << check.name << ": " << check.value;
  facts.hip_card = false;
  expect_stopped(facts, "Card", false, true, "HIP_VISIBLE_DEVICES");
  facts.amd_card = false;
  expect_stopped(facts, "Card", false, true, "amdgpu");
}

TEST(Doctor, NotesWhatOnlyProfilingNeeds) {
  MachineFacts facts = healthy();
  facts.counters_refused =
      "no hardware counters: the processor shows none; turn on the virtual PMU";
  facts.counters_admin_only = true;
  facts.libraries[1].found.reset();
  facts.compiler.clear();
  facts.disk_available = std::uint64_t{1} << 30;
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_TRUE(can_run(diagnosis, "all"));
  for (const char* name : {"Processor counters", "GPU counters", "CUPTI", "CUDA toolkit", "Disk"})
    EXPECT_EQ(check_named(diagnosis, name).status, Status::note) << name;
  EXPECT_EQ(check_named(diagnosis, "Processor counters").value, "the processor shows none");
  EXPECT_EQ(check_named(diagnosis, "Processor counters").remedy, "turn on the virtual PMU");
  EXPECT_THAT(check_named(diagnosis, "GPU counters").remedy, HasSubstr("NVreg_Restrict"));
  facts.administrator = true;
  EXPECT_EQ(check_named(diagnose(facts), "GPU counters").status, Status::ok);
}

TEST(Doctor, OneCardIsEnough) {
  MachineFacts facts = healthy();
  facts.cards.push_back(facts.cards[0]);
  facts.cards[0].info.memory_used = facts.cards[0].info.memory_total;
  EXPECT_TRUE(diagnose(facts).cuda_can_run);
  facts.cards[1].info.memory_used = facts.cards[1].info.memory_total;
  EXPECT_FALSE(diagnose(facts).cuda_can_run);
}

TEST(Doctor, DecidesForTheDeviceAskedFor) {
  MachineFacts facts = healthy();
  facts.cuda_build = false;
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_TRUE(can_run(diagnosis, "cpu"));
  EXPECT_TRUE(can_run(diagnosis, "auto"));
  EXPECT_FALSE(can_run(diagnosis, "cuda"));
  EXPECT_FALSE(can_run(diagnosis, "all"));
  const auto json = nlohmann::json::parse(doctor_json(diagnosis, "cuda"));
  EXPECT_EQ(json["can_run"], false);
  EXPECT_EQ(json["cpu_can_run"], true);
  EXPECT_EQ(json["checks"].size(), diagnosis.checks.size());
  const std::string text = doctor_text(diagnosis, "all");
  EXPECT_THAT(text, HasSubstr("Training on the CPU: can run\nTraining on a GPU: cannot run\n"));
  // A line for each check, which may go on in others that are indented, a heading a section, an
  // empty line and the two verdicts.
  const std::set<std::string_view> sections = [&] {
    std::set<std::string_view> names;
    for (const HealthCheck& check : diagnosis.checks) names.insert(check.section);
    return names;
  }();
  std::size_t lines = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line); ++lines) {
    EXPECT_LE(line.size(), sentence_width) << line;
    if (line.starts_with("   ")) --lines;
  }
  EXPECT_EQ(lines, diagnosis.checks.size() + sections.size() + 3);
}

TEST(Doctor, ExaminesThisMachine) {
  const MachineFacts facts = examine_machine();
  EXPECT_THAT(facts.system, HasSubstr("Linux"));
  EXPECT_GT(facts.threads, 0);
  EXPECT_GT(facts.memory_total, 0u);
  EXPECT_GT(facts.disk_available, 0u);
  EXPECT_FALSE(facts.cpu_features.empty());
  EXPECT_EQ(facts.libraries.size(), 5u);
  EXPECT_TRUE(diagnose(facts).cpu_can_run);
}

}  // namespace
}  // namespace ridge
