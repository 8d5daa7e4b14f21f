#include "ridge/trace/work_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/trace/operator_flops.h"
#include "ridge/trace/report.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using testing::ElementsAre;
using testing::Field;

TEST(TraceTables, SumKernelsByName) {
  const Report report = report_of(MadeTrace()
                                      .launched("a", 0, 10, 3)
                                      .launched("b", 1, 20, 10)
                                      .launched("a", 2, 40, 5)
                                      .launched("Memset", 3, 60, 100, 7, "gpu_memset")
                                      .read());
  ASSERT_EQ(report.kernels.size(), 2U) << "without the fill";
  EXPECT_EQ(report.kernels[0].name, "b");
  EXPECT_EQ(report.kernels[1].count, 2U);
  EXPECT_DOUBLE_EQ(report.kernels[1].us, 8);
  EXPECT_DOUBLE_EQ(report.kernels[1].min_us, 3);
  EXPECT_DOUBLE_EQ(report.kernels[1].max_us, 5);
}

// The time of a card belongs to the innermost operator around the launch.
TEST(TraceTables, GiveKernelsToTheOperatorThatLaunchedThem) {
  const Report report = report_of(MadeTrace()
                                      .operation("aten::linear", 0, 100, "[[8,4],[16,4]]")
                                      .operation("aten::addmm", 10, 50, "[[16],[8,4],[4,16]]")
                                      .launched("gemm", 20, 200, 30)
                                      .launched("finish", 30, 240, 10)
                                      .operation("aten::linear", 300, 40, "[[8,4],[32,4]]")
                                      .launched("gemm", 310, 400, 50)
                                      .read());
  ASSERT_EQ(report.operators.size(), 3U) << "two shapes of linear";
  const OperatorSum& second = report.operators[0];
  EXPECT_EQ(second.name, "aten::linear");
  EXPECT_EQ(second.shape, "[[8,4],[32,4]]");
  EXPECT_DOUBLE_EQ(second.device_us, 50);
  EXPECT_DOUBLE_EQ(second.flops, 2 * 8 * 4 * 32);
  const OperatorSum& addmm = report.operators[1];
  EXPECT_EQ(addmm.name, "aten::addmm");
  EXPECT_DOUBLE_EQ(addmm.device_us, 40);
  EXPECT_EQ(addmm.kernels, 2U);
  EXPECT_DOUBLE_EQ(addmm.host_us, 50);
  EXPECT_DOUBLE_EQ(addmm.self_host_us, 46) << "without its two calls";
  EXPECT_DOUBLE_EQ(addmm.flops, 2 * 8 * 4 * 16);
  EXPECT_DOUBLE_EQ(report.operators[2].self_host_us, 50);
}

// A profiler that records no calls tells the operator by its external id.
TEST(TraceTables, JoinKernelsToOperatorsByExternalIdWithoutCalls) {
  MadeTrace made;
  made.slice("cpu_op", "aten::mul", 0, 10, R"({"External id":42})")
      .event(R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":20,"dur":6,)"
             R"("args":{"device":0,"stream":7,"External id":42}})");
  const Report report = report_of(made.read());
  EXPECT_DOUBLE_EQ(report.operators.at(0).device_us, 6);
}

TEST(TraceTables, SumCopiesAndLaunches) {
  MadeTrace made;
  for (int i = 0; i < 10; ++i) made.launched("k", i * 10, i * 10 + 7, 20);
  made.launched("Memcpy DtoD", 300, 310, 4, 7, "gpu_memcpy", 4000);
  const Report report = report_of(made.read());
  EXPECT_THAT(report.copies,
              ElementsAre(testing::AllOf(Field(&CopySum::bytes, 4000), Field(&CopySum::us, 4))));
  const LaunchStatistics& launches = report.launches;
  EXPECT_THAT(launches.calls, ElementsAre(testing::AllOf(Field(&LaunchSum::count, 11U),
                                                         Field(&LaunchSum::host_us, 22))));
  EXPECT_DOUBLE_EQ(*launches.median_delay_us, 5);
  EXPECT_EQ(launches.longest_queue, 3U) << "20 us of work every 10 us, from 7 us after the launch";
  EXPECT_EQ(launches.short_kernels, 0U);
}

TEST(OperatorFlops, AreThoseOfProducts) {
  EXPECT_DOUBLE_EQ(operator_flops("aten::mm", "[[512,64],[64,256]]"), 2.0 * 512 * 64 * 256);
  EXPECT_DOUBLE_EQ(operator_flops("aten::bmm", "[[4,8,16],[4,16,32]]"), 2.0 * 4 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(operator_flops("aten::baddbmm", "[[4,8,32],[4,8,16],[4,16,32],[],[]]"),
                   2.0 * 4 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(operator_flops("aten::matmul", "[[2,3,8,16],[16,32]]"), 2.0 * 6 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(operator_flops("aten::linear", "[[2,8,16],[32,16],[32]]"),
                   2.0 * 2 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(operator_flops("aten::_scaled_dot_product_flash_attention",
                                  "[[2,3,64,16],[2,3,80,16],[2,3,80,24],[],[],[]]"),
                   2.0 * 6 * 64 * 80 * (16 + 24));
  for (const char* shapes : {"", "[]", "[[2]]", "[[2,3],[4,5]]", "[[[1],[2]],[3]]", "[null, 1]",
                             "{", "[[1,\"a\"],[2,2]]"})
    EXPECT_EQ(operator_flops("aten::mm", shapes), 0) << shapes;
  EXPECT_EQ(operator_flops("aten::add", "[[2,3],[3,5]]"), 0);
  EXPECT_EQ(operator_flops("mm", "[[2,3],[3,5]]"), 0);
}

TEST(KernelNames, AreShortened) {
  EXPECT_EQ(short_kernel_name("void at::native::vectorized_elementwise_kernel<4, "
                              "at::native::CUDAFunctor_add<float> >(int, float)"),
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >");
  EXPECT_EQ(short_kernel_name("void at::native::(anonymous namespace)::f<(int)4>(long)"),
            "f<(int)4>");
  EXPECT_EQ(short_kernel_name("volta_sgemm_64x64_nt"), "volta_sgemm_64x64_nt");
  EXPECT_EQ(short_kernel_name("Memcpy (x)"), "Memcpy ");
  EXPECT_EQ(short_kernel_name("(x)"), "(x)");
  EXPECT_EQ(short_kernel_name(")"), ")");
}

}  // namespace
}  // namespace ridge::trace
