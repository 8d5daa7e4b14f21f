// What is read of the files by which Linux tells of the machine and of processes.

#include "ridge/profile/system_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "ridge/profile/process_list.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::UnorderedElementsAre;

TEST(SystemText, ReadsTheTicksOfCores) {
  const auto stat = parse_stat(
      "cpu  100 1 20 1000 7 2 3 40 5 0\n"
      "cpu0 60 1 10 500 3 1 1 15 5 0\n"
      "cpu2 40 0 10 500 4 1 2 25 0 0\n"
      "intr 1234 5 6\nctxt 9876\nbtime 1\n");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->all.busy, 100 + 1 + 20 + 2 + 3) << "guests' time is within user";
  EXPECT_EQ(stat->all.waiting, 7);
  EXPECT_EQ(stat->all.stolen, 40);
  ASSERT_EQ(stat->cores.size(), 3u);
  EXPECT_EQ(stat->cores[0].busy, 73);
  EXPECT_EQ(stat->cores[1].busy, 0) << "it is switched off";
  EXPECT_EQ(stat->cores[2].busy, 53);
  EXPECT_EQ(stat->context_switches, 9876);
  EXPECT_FALSE(parse_stat(""));
  EXPECT_FALSE(parse_stat("nothing of the kind\n"));
  EXPECT_TRUE(parse_stat("cpu99999999999999999999 1 2 3\n")) << "no memory is taken for it";
}

TEST(SystemText, ReadsAProcessWhateverItsName) {
  const auto process = parse_process(
      "77 (a (b) c d) S 5 77 77 0 -1 4194560 1500 300 12 3 250 50 40 10 20 0 4 0 123456 98765432 "
      "2048 18446744073709551615 1 1\n");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->id, 77);
  EXPECT_EQ(process->parent, 5);
  EXPECT_EQ(process->name, "a (b) c d");
  EXPECT_EQ(process->state, 'S');
  EXPECT_EQ(process->own_faults, 1500);
  EXPECT_EQ(process->faults, 1800);
  EXPECT_EQ(process->own_disk_faults, 12);
  EXPECT_EQ(process->disk_faults, 15);
  EXPECT_EQ(process->ticks, 300);
  EXPECT_EQ(process->ticks_of_children, 50);
  EXPECT_EQ(process->started, 123456u);
  EXPECT_EQ(process->resident_pages, 2048u);
  for (const char* const text : {"", "77", "77 (name", "77 name)", "77 )name( S 1", "(x) S 1"})
    EXPECT_FALSE(parse_process(text)) << text;
}

TEST(SystemText, ReadsNumbersBehindWords) {
  const char* const text = "MemTotal:       16384 kB\nMemAvailable:\nHugePages: many\n";
  EXPECT_THAT(number_behind(text, "MemTotal:"), Optional(DoubleEq(16384)));
  EXPECT_FALSE(number_behind(text, "MemAvailable:"));
  EXPECT_FALSE(number_behind(text, "HugePages:"));
  EXPECT_FALSE(number_behind(text, "Mem"));
  EXPECT_THAT(number_behind("nr_throttled 2\nthrottled_usec 77\n", "throttled_usec"),
              Optional(DoubleEq(77)));
}

TEST(SystemText, AddsUpDisksAndInterfaces) {
  const char* const disks =
      "   8       0 sda 10 0 100 5 20 0 200 7 0 30 12\n"
      "   8       1 sda1 10 0 100 5 20 0 200 7 0 30 12\n"
      " 259       0 nvme0n1 1 0 8 5 2 0 16 7 0 4 12 0 0 0 0\n";
  const DiskText sum = parse_diskstats(disks, {"sda", "nvme0n1"});
  EXPECT_EQ(sum.read_bytes, 108 * 512);
  EXPECT_EQ(sum.written_bytes, 216 * 512);
  EXPECT_EQ(sum.busy_ms, 34);
  const NetworkText network = parse_net_dev(
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
      "    lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n"
      "  eth0:2000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n"
      "wlan0: 20 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0\n");
  EXPECT_EQ(network.received_bytes, 2020);
  EXPECT_EQ(network.sent_bytes, 303);
}

TEST(SystemText, ReadsPressureAndFrequencies) {
  EXPECT_THAT(parse_pressure("some avg10=0.00 avg60=0.12 avg300=0.05 total=123456\n"
                             "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"),
              Optional(DoubleEq(123456)));
  EXPECT_FALSE(parse_pressure(""));
  EXPECT_FALSE(parse_pressure("full total=1\n"));
  EXPECT_THAT(parse_cpuinfo_mhz("processor\t: 0\ncpu MHz\t\t: 2445.428\n\nprocessor\t: 1\n"
                                "cpu MHz\t\t: 800.000\n"),
              ElementsAre(DoubleEq(2445.428), DoubleEq(800)));
}

TEST(RereadFile, ReadsWhatIsThereNow) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "counter";
  const std::string large(10'000, 'x');
  std::ofstream(path) << large;
  RereadFile file(path);
  EXPECT_EQ(file.read(), large);
  std::ofstream(path) << "7\n";  // the same file
  EXPECT_EQ(file.read(), "7\n");
  RereadFile missing(directory.path / "none");
  EXPECT_FALSE(missing.is_open());
  EXPECT_EQ(missing.error(), ENOENT);
  EXPECT_EQ(missing.read(), "");
}

ProcessText process(std::int64_t id, std::int64_t parent, double ticks, std::uint64_t started = 1) {
  ProcessText made;
  made.id = id;
  made.parent = parent;
  made.name = "p" + std::to_string(id);
  made.ticks = ticks;
  made.started = started;
  return made;
}

TEST(ProcessList, FindsThisProcess) {
  bool found = false;
  for (const ProcessText& one : list_processes())
    found = found || (one.id == ::getpid() && one.parent == ::getppid() && one.resident_pages > 0);
  EXPECT_TRUE(found);
}

TEST(ProcessList, TellsAFamilyFromStrangers) {
  const double second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::vector<ProcessText> before = {process(1, 0, 0), process(10, 1, 5), process(11, 10, 0),
                                           process(20, 1, 9 * second), process(30, 1, second)};
  // 30 has ended, and another process has its number.
  const std::vector<ProcessText> after = {process(1, 0, 0),
                                          process(10, 1, 5 * second),
                                          process(11, 10, 3 * second),
                                          process(12, 11, 2),
                                          process(20, 1, 9.5 * second),
                                          process(30, 1, 2 * second, 7),
                                          process(40, 1, 0.001 * second)};
  const auto family = family_of(after, 10);
  EXPECT_THAT(family, UnorderedElementsAre(10, 11, 12));
  const auto strangers = busy_strangers(before, after, family, 2.0);
  ASSERT_EQ(strangers.size(), 2u);
  EXPECT_EQ(strangers[0].id, 30);
  EXPECT_DOUBLE_EQ(strangers[0].seconds, 2.0);
  EXPECT_EQ(strangers[1].id, 20);
  EXPECT_DOUBLE_EQ(strangers[1].seconds, 0.5);
  EXPECT_EQ(busy_strangers(before, after, family, 2.0, 1).size(), 1u);
}

TEST(ProcessList, FollowsAFamilyWhoseSumsNeverFall) {
  FamilyWatch watch(10);
  std::vector<ProcessText> list = {process(1, 0, 0), process(10, 1, 100), process(11, 10, 40)};
  list[2].resident_pages = 3;
  FamilyWatch::Sums sums = watch.look(list, 1000);
  EXPECT_EQ(sums.ticks, 40) << "the first of the family is none of it";
  EXPECT_EQ(sums.resident_bytes, 3.0 * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  list.pop_back();
  sums = watch.look(list, 2000);
  EXPECT_EQ(sums.ticks, 40);
  EXPECT_EQ(sums.count, 0);
  list.push_back(process(11, 10, 7, 2));
  watch.look(list, 3000);
  ASSERT_EQ(watch.seen().size(), 2u);
  EXPECT_EQ(watch.seen()[0].end_ns, 1000);
  EXPECT_EQ(watch.seen()[1].begin_ns, 3000) << "the number is the same, the process is not";
}

}  // namespace
}  // namespace ridge
