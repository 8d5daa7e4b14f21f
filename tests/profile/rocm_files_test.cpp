#include "ridge/profile/rocm_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/base/file.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/unary.h"
#include "ridge/profile/kernel_stats.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

// Two nodes on a CPU, and the same on a card with a kernel each.
struct HandMade {
  Graph graph;
  Recording recording;

  explicit HandMade(bool on_card = false) {
    const Value x = graph.input("x", {DType::f32, {4}});
    silu(scale(x, 2.0f));
    recording.graph = &graph;
    recording.device = on_card ? "cuda" : "cpu";
    recording.device_kind = on_card ? DeviceKind::gpu : DeviceKind::cpu;
    recording.hardware = "Machine \"X\"";
    recording.process_id = 70;
    recording.thread_id = 77;
    recording.epoch_ns = 1000;
    recording.nodes = {{0, 1, 0, 10}, {1, 1, 20, 50}, {0, 2, 60, 80}};
    if (!on_card) return;
    recording.activity_names = {"void ridge::gpu::scale<float>(float*, int)", "memcpy"};
    recording.activities = {{.kind = Activity::Kind::copy, .name = 1, .begin_ns = 0, .end_ns = 2},
                            {.kind = Activity::Kind::kernel,
                             .name = 0,
                             .node = 0,
                             .correlation = 9,
                             .stream = 7,
                             .begin_ns = 5,
                             .end_ns = 9,
                             .grid = {3, 2, 1},
                             .block = {64, 2, 1},
                             .registers = 40,
                             .static_shared = 16,
                             .dynamic_shared = 32,
                             .local_memory = 8}};
  }
};

std::string written(const std::function<void(const std::filesystem::path&)>& write) {
  const TemporaryDirectory directory;
  write(directory.path / "file");
  return read_text_file(directory.path / "file", 1 << 20);
}

TEST(RocmFiles, HaveRocprofsCalls) {
  const std::string header =
      "\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\",\"queue-index\",\"pid\",\"tid\",\"grd\","
      "\"wgr\",\"lds\",\"scr\",\"arch_vgpr\",\"accum_vgpr\",\"sgpr\",\"wave_size\",\"sig\",\"obj\","
      "\"DispatchNs\",\"BeginNs\",\"EndNs\",\"CompleteNs\",\"DurationNs\"\n";
  const auto calls = [](const HandMade& h) {
    return written([&](const auto& path) { write_rocprof_calls(h.recording, path); });
  };
  EXPECT_EQ(calls(HandMade()),
            header +
                "0,\"scale\",0,0,0,70,77,0,0,0,0,0,0,0,0,\"0x0\",\"0x0\",1000,1000,1010,1010,10\n"
                "1,\"silu\",0,0,1,70,77,0,0,0,0,0,0,0,0,\"0x0\",\"0x0\",1020,1020,1050,1050,30\n"
                "2,\"scale\",0,0,2,70,77,0,0,0,0,0,0,0,0,\"0x0\",\"0x0\",1060,1060,1080,1080,20\n");
  EXPECT_EQ(calls(HandMade(true)),
            header +
                "0,\"void ridge::gpu::scale<float>(float*, int)\",0,7,0,70,77,768,128,48,8,40,"
                "0,0,32,\"0x0\",\"0x0\",1005,1005,1009,1009,4\n");
}

TEST(RocmFiles, HaveRocprofsStatistics) {
  EXPECT_EQ(rocprof_stats_csv(HandMade().recording),
            "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\n"
            "\"scale\",2,30,15,50.000000\n\"silu\",1,30,30,50.000000\n");
}

// Counts stand behind the calls of their node; nothing where none were counted.
TEST(RocmFiles, HaveDispatchesWithTheirCounters) {
  const HandMade h;
  const CountedNodes counted{.metrics = {{"cycles", "", "cycles"}, {"misses", "", "cache misses"}},
                             .nodes = {{.id = 0, .values = {1200, 3.5}}}};
  EXPECT_EQ(
      written([&](const auto& path) { write_rocprof_dispatches(h.recording, path, counted); }),
      "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,"
      "Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,"
      "End_Timestamp,Correlation_ID,\"cycles\",\"cache misses\"\n"
      "1,0,0,70,77,0,0,0,0,0,0,0,0,\"scale\",1000,1010,1,1200,3.5\n"
      "2,0,0,70,77,0,0,0,0,0,0,0,0,\"silu\",1020,1050,2,,\n"
      "3,0,0,70,77,0,0,0,0,0,0,0,0,\"scale\",1060,1080,3,1200,3.5\n");
}

TEST(RocmFiles, HaveAgentsAndDomains) {
  EXPECT_EQ(agent_info_csv(HandMade().recording),
            "\"Node_Id\",\"Logical_Node_Id\",\"Agent_Type\",\"Name\",\"Product_Name\"\n"
            "0,0,\"CPU\",\"Machine \"\"X\"\"\",\"Machine \"\"X\"\"\"\n");
  EXPECT_THAT(agent_info_csv(HandMade(true).recording),
              HasSubstr("\n1,1,\"GPU\",\"Machine \"\"X\"\"\",\"Machine \"\"X\"\"\"\n"));
  EXPECT_EQ(
      domain_stats_csv(HandMade().recording),
      "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\",\"MinNs\","
      "\"MaxNs\",\"StdDev\"\n\"KERNEL_DISPATCH\",3,60,20.000000,100.000000,10,30,10.000000\n");
  EXPECT_THAT(kernel_summary_text(HandMade().recording), HasSubstr("ROCPROFV3 SUMMARY:\nNAME "));
}

TEST(TruncatedKernelName, IsTheNameAlone) {
  EXPECT_EQ(truncated_kernel_name("void ridge::gpu::rows<float, (Kind)3>(float*, int)"), "rows");
  EXPECT_EQ(truncated_kernel_name("ridge::(anonymous namespace)::add(int) [clone .kd]"), "add");
  EXPECT_EQ(truncated_kernel_name("silu"), "silu");
  EXPECT_EQ(truncated_kernel_name("sm90_xmma_gemm_f32<(int)3>"), "sm90_xmma_gemm_f32");
  EXPECT_EQ(truncated_kernel_name("(x)"), "(x)");
  EXPECT_EQ(truncated_kernel_name(""), "");
  const Recording truncated = with_truncated_names(HandMade(true).recording);
  EXPECT_EQ(kernel_stats(truncated).at(0).name, "scale");
}

}  // namespace
}  // namespace ridge
