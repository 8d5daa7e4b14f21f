#include "ridge/base/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A machine of 1000 MiB, of which 600 are available, as /proc and /sys/fs/cgroup show it.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    write("proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 1 kB\nMemAvailable: 614400 kB\n");
  }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void write_group(const std::string& directory, const std::string& limit, int used_mib) const {
    write(directory + "/memory.max", limit + "\n");
    write(directory + "/memory.current", std::to_string(used_mib * mib) + "\n");
  }
  void expect(std::uint64_t total_mib, std::uint64_t available_mib) const {
    const HostMemory memory = host_memory(root_);
    EXPECT_EQ(memory.total, total_mib * mib);
    EXPECT_EQ(memory.available, available_mib * mib);
  }

  static constexpr std::uint64_t mib = 1 << 20;
  TemporaryDirectory temporary_;
  fs::path root_ = temporary_.path;
};

TEST_F(HostMemoryTest, IsTheSystemsWithoutGroups) { expect(1000, 600); }

TEST_F(HostMemoryTest, IsWithinTheGroupAndThoseAboveIt) {
  write("proc/self/cgroup", "0::/user/job\n");
  write_group("sys/fs/cgroup/user/job", "max", 10);
  expect(1000, 600);
  write_group("sys/fs/cgroup/user/job", std::to_string(300 * mib), 120);
  expect(300, 180);
  write("sys/fs/cgroup/user/job/memory.stat",
        "anon 5\ninactive_file " + std::to_string(50 * mib) + "\n");
  expect(300, 230);
  write_group("sys/fs/cgroup/user", std::to_string(200 * mib), 180);
  expect(200, 20);
  write_group("sys/fs/cgroup/user", std::to_string(200 * mib), 250);
  expect(200, 0);
}

// As in a container, which does not see where its group is.
TEST_F(HostMemoryTest, FindsTheLimitAtTheRoot) {
  write("proc/self/cgroup", "0::/../elsewhere\n");
  write_group("sys/fs/cgroup", std::to_string(500 * mib), 100);
  expect(500, 400);
}

TEST_F(HostMemoryTest, ReadsTheFirstVersionToo) {
  write("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(400 * mib));
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(256 * mib));
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(100 * mib));
  write("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file " + std::to_string(20 * mib) + "\n");
  expect(256, 176);
}

TEST_F(HostMemoryTest, IsAskedOfTheKernelWithoutProc) {
  fs::remove_all(root_);
  const HostMemory memory = host_memory(root_);
  EXPECT_GT(memory.available, 0u);
  EXPECT_GE(memory.total, memory.available);
}

}  // namespace
}  // namespace ridge
