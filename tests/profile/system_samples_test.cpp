// Counters of the machine: their points, tables, findings and events.

#include "ridge/profile/system_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "ridge/profile/system_events.h"
#include "ridge/profile/system_reader.h"
#include "ridge/profile/system_report.h"
#include "ridge/profile/system_sampler.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr std::int64_t ms = 1'000'000;
constexpr double unread = SystemSamples::unread;

SystemSamples one_series(SystemSeries series, std::vector<std::int64_t> times_ms,
                         std::vector<double> values) {
  SystemSamples samples;
  samples.series = {std::move(series)};
  for (const std::int64_t time : times_ms) samples.time_ns.push_back(time * ms);
  samples.values = std::move(values);
  samples.cores = 4;
  return samples;
}

std::vector<double> values_of(const std::vector<SystemPoint>& points) {
  std::vector<double> values;
  for (const SystemPoint& point : points) values.push_back(point.value);
  return values;
}

TEST(SystemSamples, HoldALevelUntilItIsReadAgain) {
  const SystemSamples samples = one_series({.name = "level"}, {10, 20, 30, 40}, {1, unread, 3, 2});
  const auto points = points_of(samples, 0);
  EXPECT_THAT(values_of(points), ElementsAre(1, 3, 2));
  EXPECT_EQ(points[0].begin_ns, 10 * ms);
  EXPECT_EQ(points[0].end_ns, 30 * ms);
  EXPECT_EQ(points[2].end_ns, 40 * ms);
}

TEST(SystemSamples, GiveATotalAsItsGrowthInASecond) {
  const SystemSamples samples = one_series({.name = "total", .is_total = true, .scale = 512},
                                           {0, 500, 1000}, {100, 101, 105});
  const auto points = points_of(samples, 0);
  EXPECT_THAT(values_of(points), ElementsAre(2 * 512, 8 * 512));
  EXPECT_EQ(points[1].begin_ns, 500 * ms);
}

// Ticks of 10 ms, read every 20 ms: over two of them a core would seem to jump.
TEST(SystemSamples, CountTicksOverAWindow) {
  std::vector<std::int64_t> times;
  std::vector<double> ticks;
  for (int i = 0; i <= 20; ++i) times.push_back(20 * i), ticks.push_back(i);  // half busy
  ticks[3] -= 1;                                                              // counted late
  const SystemSeries series{.name = "core 0 busy",
                            .is_total = true,
                            .scale = 1,  // of 100 ticks a second, in percent
                            .window_ns = 100 * ms,
                            .core = 0,
                            .most = 100};
  const auto points = points_of(one_series(series, times, ticks), 0);
  ASSERT_EQ(points.size(), 16u);
  EXPECT_EQ(points.front().begin_ns, 0);
  EXPECT_EQ(points.front().end_ns, 100 * ms);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_NEAR(points[i].value, 50, 10.001);
    EXPECT_EQ(points[i].begin_ns, i > 0 ? points[i - 1].end_ns : 0);
  }
  // A run shorter than the window has one point all the same.
  EXPECT_THAT(values_of(points_of(one_series(series, {0, 20, 50}, {0, 1, 9}), 0)),
              ElementsAre(100));
}

// A root directory in which a machine is told of.
struct MadeMachine {
  TemporaryDirectory directory;

  void write(const std::string& name, const std::string& text) const {
    const fs::path path = directory.path / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // At a time: so many ticks of core 0, pages swapped in, microjoules.
  void write_counters(int ticks, int swapped, std::int64_t energy) const {
    write("proc/stat", "cpu  " + std::to_string(ticks) + " 0 0 0 0 0 0 0\ncpu0 " +
                           std::to_string(ticks) + " 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n");
    write("proc/vmstat", "pgmajfault 3\npswpin " + std::to_string(swapped) + "\npswpout 0\n");
    write("sys/class/powercap/intel-rapl:0/energy_uj", std::to_string(energy) + "\n");
  }
  MadeMachine() {
    write_counters(100, 0, 900'000);
    write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000\n");
    write("sys/class/powercap/intel-rapl-mmio:0/energy_uj", "5\n");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3600000\n");
    write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "800000\n");
    write("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4\n");
    write("sys/block/sda/dev", "8:0\n");
    write("sys/block/loop0/dev", "7:0\n");
    write("proc/diskstats", "8 0 sda 1 0 8 0 1 0 16 0 0 5 5\n7 0 loop0 1 0 800 0 1 0 16 0 0 5 5\n");
    write("proc/meminfo",
          "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n");
    write("proc/self/cgroup", "0::/group\n");
    write("sys/fs/cgroup/group/cpu.stat", "usage_usec 5\nthrottled_usec 250\n");
  }

  double read(SystemReader& reader, const std::string& name, bool with_slow = true) const {
    std::vector<double> row(reader.series().size());
    reader.read(row, with_slow);
    for (std::size_t s = 0; s < row.size(); ++s)
      if (reader.series()[s].name == name) return row[s];
    ADD_FAILURE() << "there is no series " << name;
    return 0;
  }
};

TEST(SystemReader, ReadsAMachine) {
  const MadeMachine machine;
  SystemReader reader({.root = machine.directory.path});
  EXPECT_EQ(machine.read(reader, "core 0 busy"), 100);
  EXPECT_EQ(machine.read(reader, "all cores busy"), 100);
  EXPECT_EQ(machine.read(reader, "core 0 frequency"), 3600);
  EXPECT_EQ(machine.read(reader, "core 1 frequency"), 800);
  EXPECT_TRUE(std::isnan(machine.read(reader, "core 1 frequency", false))) << "it is slow to read";
  EXPECT_EQ(machine.read(reader, "throttled by heat"), 4);
  EXPECT_EQ(machine.read(reader, "machine, used"), 600 * 1024);
  EXPECT_EQ(machine.read(reader, "swap, used"), 6 * 1024);
  EXPECT_EQ(machine.read(reader, "read from disks"), 8 * 512) << "a loop is no disk";
  EXPECT_EQ(machine.read(reader, "held back by the container's limit"), 250);
  EXPECT_EQ(machine.read(reader, "package-0"), 900'000);
  machine.write_counters(100, 0, 50'000);
  EXPECT_EQ(machine.read(reader, "package-0"), 1'050'000) << "the counter began again at 0";
  EXPECT_THAT(::testing::PrintToString(reader.missing()),
              AllOf(HasSubstr("/proc/self/stat cannot be read"), HasSubstr("/proc/pressure/cpu"),
                    HasSubstr("/proc/net/dev"), Not(HasSubstr("power"))));
}

TEST(SystemReader, SaysWhatAMachineDoesNotTell) {
  const TemporaryDirectory nothing;
  SystemReader reader({.root = nothing.path});
  EXPECT_THAT(reader.series(), IsEmpty());
  EXPECT_THAT(::testing::PrintToString(reader.missing()),
              AllOf(HasSubstr("The use of cores"), HasSubstr("frequency"), HasSubstr("RAPL"),
                    HasSubstr("memory"), HasSubstr("disks"), HasSubstr("network")));
}

// The real machine, of which every Linux tells these.
TEST(SystemSampler, SeesACoreThatIsBusy) {
  SystemSampler sampler({.interval = std::chrono::milliseconds(5), .family = ::getpid()});
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  volatile double x = 1;
  while (std::chrono::steady_clock::now() < end) x = x * 1.0000001;
  const SystemSamples samples = sampler.stop();
  ASSERT_GE(samples.time_ns.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(samples.time_ns));
  EXPECT_EQ(samples.values.size(), samples.time_ns.size() * samples.series.size());
  EXPECT_GE(samples.seconds(), 0.7);
  EXPECT_GT(samples.sampling_seconds, 0);
  EXPECT_LT(samples.sampling_seconds, 0.2 * samples.seconds());
  EXPECT_GT(samples.memory_bytes, 0u);
  const auto rows = system_rows(samples);
  const auto row = [&](std::string_view name) {
    const auto found =
        std::ranges::find_if(rows, [&](const SystemRow& one) { return one.series.name == name; });
    EXPECT_NE(found, rows.end()) << name;
    return found == rows.end() ? SystemRow{} : *found;
  };
  // A machine that others use gives this process less than a core.
  EXPECT_GT(row("this process busy").mean, 0.05);
  EXPECT_GT(row("this process, resident").mean, 1e6);
  double busiest = 0;
  for (const SystemRow& one : rows)
    if (one.series.core >= 0 && one.series.group == SystemGroup::cores)
      busiest = std::max(busiest, one.max);
  EXPECT_GT(busiest, 70);
}

TEST(SystemSampler, HalvesWhatWouldBeTooMuch) {
  SystemSampler sampler({.interval = std::chrono::milliseconds(1),
                         .family = ::getpid(),
                         .max_bytes = 1});  // at least 16 samples
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const SystemSamples samples = sampler.stop();
  EXPECT_LE(samples.time_ns.size(), 17u);
  EXPECT_GE(samples.time_ns.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(samples.time_ns));
  EXPECT_EQ(samples.values.size(), samples.time_ns.size() * samples.series.size());
  const std::size_t busy = samples.find(system_names::all_busy);
  EXPECT_EQ(points_of(samples, busy).front().begin_ns, samples.time_ns.front());
}

// Ten samples over 900 ms, of series that a test gives values of.
struct MadeSamples {
  SystemSamples samples;
  MadeSamples() {
    for (int i = 0; i < 10; ++i) samples.time_ns.push_back(100 * i * ms);
    samples.cores = 2;
    samples.memory_bytes = 1'000'000'000;
    samples.steps = {{7, 0, 450 * ms}, {8, 450 * ms, 900 * ms}};
  }
  MadeSamples& with(std::string_view name, std::vector<double> values, SystemSeries series = {}) {
    series.name = name;
    const std::size_t width = samples.series.size();
    std::vector<double> wider;
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t s = 0; s < width; ++s) wider.push_back(samples.at(i, s));
      wider.push_back(values.size() == 1 ? values[0] : values.at(i));
    }
    samples.series.push_back(std::move(series));
    samples.values = std::move(wider);
    return *this;
  }
  std::vector<std::string> rules() const {
    std::vector<std::string> rules;
    for (const SystemFinding& finding : system_findings(samples)) rules.push_back(finding.rule);
    return rules;
  }
};

TEST(SystemFindings, FindNothingWrongWithAQuietMachine) {
  MadeSamples made;
  made.samples.others_cores = 0.05;
  made.with(system_names::available, {9e8}, {.unit = SystemUnit::bytes})
      .with(system_names::swapped_in, {0}, {.is_total = true, .scale = 4096})
      .with(system_names::swapped_out, {0}, {.is_total = true, .scale = 4096})
      .with(system_names::stolen, {0})
      .with(system_names::waited_disk, {1});
  EXPECT_THAT(made.rules(), IsEmpty());
}

TEST(SystemFindings, NameTheEvidence) {
  MadeSamples made;
  made.samples.others_cores = 0.97;
  made.samples.others = {{.id = 42, .name = "stress", .seconds = 0.855}};
  made.with(system_names::available, {9e8, 9e8, 9e8, 2e7, 9e8, 9e8, 9e8, 9e8, 9e8, 9e8})
      .with(system_names::swapped_in, {0, 0, 0, 0, 0, 0, 0, 5000, 5000, 5000},
            {.unit = SystemUnit::bytes_per_second, .is_total = true, .scale = 4096})
      .with(system_names::swapped_out, {0}, {.is_total = true, .scale = 4096})
      .with(system_names::stolen, {3})
      .with(system_names::group_limit, {20})
      .with(system_names::heat, {4, 4, 4, 4, 4, 4, 4, 4, 9, 9}, {.is_total = true})
      .with(system_names::disk_faults, {80})
      .with(system_names::waited_disk, {8, 8, 8, 8, 8, 8, 33, 8, 8, 8});
  EXPECT_THAT(made.rules(), ElementsAre("other-load", "stolen", "container-limit", "heat",
                                        "swapping", "little-memory", "disk-faults", "disk-wait"));
  const SystemReport report = report_system(made.samples, {});
  const std::string text = system_text(made.samples, report);
  EXPECT_THAT(text,
              HasSubstr("Other processes kept 0.97 of 2 cores busy: stress (process 42) 0.95"));
  EXPECT_THAT(text, HasSubstr("The machine swapped: 19.53 MiB in, 0 B out, most at step 8."));
  EXPECT_THAT(text, HasSubstr("Heat throttled cores 5 times, first or most at step 8."));
  EXPECT_THAT(text, HasSubstr("most at step 8 (33.0 %)"));
}

TEST(SystemFindings, FindABusyCoreThatWasSlowedDown) {
  MadeSamples made;
  const SystemSeries busy{.unit = SystemUnit::percent, .core = 1};
  const SystemSeries mhz{.group = SystemGroup::frequency, .unit = SystemUnit::megahertz, .core = 1};
  made.with("core 1 busy", {100}, busy)
      .with("core 1 frequency", {3600, 3600, 3600, 3600, 3600, 3600, 2000, 2000, 2000, 2000}, mhz);
  EXPECT_THAT(made.rules(), ElementsAre("frequency"));
  MadeSamples idle;  // it may well be slow then
  idle.with("core 1 busy", {100, 100, 100, 100, 100, 100, 0, 0, 0, 0}, busy)
      .with("core 1 frequency", {3600, 3600, 3600, 3600, 3600, 3600, 3600, 2000, 2000, 2000}, mhz);
  EXPECT_THAT(idle.rules(), IsEmpty());
}

TEST(SystemReport, ShortensTheTableOfManyCores) {
  MadeSamples made;
  made.samples.cores = 64;
  for (int core = 0; core < 64; ++core)
    made.with("core " + std::to_string(core) + " busy", {double(core)}, {.core = core});
  const std::string text = system_text(made.samples, report_system(made.samples, {}));
  EXPECT_THAT(text, AllOf(HasSubstr("core 63 busy (most)"), HasSubstr("core 0 busy (least)"),
                          Not(HasSubstr("core 5 busy"))));
}

TEST(SystemReport, HasTheCourseOfEachCounterInJson) {
  MadeSamples made;
  made.with("level", {1, 1, 1, 1, 1, 3, 3, 3, 3, 3}, {.unit = SystemUnit::watts})
      .with("never", {unread});
  std::vector<CardState> states(2);
  states[0].time_ns = 100 * ms;
  states[1].time_ns = 800 * ms;
  states[1].power_w = 250;
  const std::vector<SystemSamples> cards = {samples_of_card(states)};
  const json document =
      json::parse(system_json(made.samples, cards, report_system(made.samples, cards), 3));
  EXPECT_EQ(document["schema"], "ridge-system/1");
  EXPECT_EQ(document["series"].size(), 1u + 5u) << "what was never read is left out";
  EXPECT_EQ(document["series"][0]["values"], json::parse("[1, 1.667, 3]"));
  EXPECT_EQ(document["series"][0]["max_at_ns"], 500 * ms);
  EXPECT_EQ(document["series"][4]["name"], "GPU power");
  EXPECT_EQ(document["series"][4]["max"], 250);
  EXPECT_EQ(document["steps"][1]["step"], 8);
}

TEST(SystemEvents, LeaveOutWhatDoesNotChange) {
  const SystemSamples samples = one_series({.name = "a \"name\"", .unit = SystemUnit::watts},
                                           {0, 10, 20, 30, 40}, {5, 5, 7, 7, 7});
  std::vector<json> events;
  emit_system_counters(samples, {.process = 9, .begin_ns = 5 * ms, .end_ns = 100 * ms},
                       [&](std::string_view event) { events.push_back(json::parse(event)); });
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["name"], "a \"name\" (W)");
  EXPECT_EQ(events[0]["ph"], "C");
  EXPECT_EQ(events[0]["ts"], 5000.0) << "it held when the stretch began";
  EXPECT_EQ(events[0]["args"]["value"], 5);
  EXPECT_EQ(events[1]["ts"], 20'000.0);
  EXPECT_EQ(events[2]["ts"], 40'000.0) << "the last says how far it is known";
}

TEST(SystemEvents, WriteATraceOfACommand) {
  const TemporaryDirectory directory;
  SystemSamples samples = one_series({.name = "level"}, {0, 10}, {5, 6});
  samples.processes = {
      {.id = 12, .name = "sh", .seconds = 1, .begin_ns = 2 * ms, .end_ns = 3 * ms}};
  const fs::path path = directory.path / "trace.json";
  const TraceSize size = write_system_trace(path, samples, {},
                                            {.line = "sh -c 'a'",
                                             .begin_ns = ms,
                                             .end_ns = 4 * ms,
                                             .epoch_ns = 1'700'000'000'000'000'000});
  const json trace = json::parse(std::ifstream(path));
  EXPECT_EQ(trace["traceEvents"].size(), size.events);
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'700'000'000'000'000'000);
  EXPECT_THAT(trace["traceEvents"].dump(),
              AllOf(HasSubstr("sh -c 'a'"), HasSubstr("sh (12)"), HasSubstr("the system")));
}

}  // namespace
}  // namespace ridge
