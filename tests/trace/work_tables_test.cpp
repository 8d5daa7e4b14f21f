#include "ridge/trace/work_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/trace/operator_work.h"
#include "ridge/trace/report.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

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
              ElementsAre(::testing::AllOf(Field(&CopySum::bytes, 4000), Field(&CopySum::us, 4))));
  const LaunchStatistics& launches = report.launches;
  EXPECT_THAT(launches.calls, ElementsAre(::testing::AllOf(Field(&LaunchSum::count, 11U),
                                                           Field(&LaunchSum::host_us, 22))));
  EXPECT_DOUBLE_EQ(*launches.median_delay_us, 5);
  EXPECT_EQ(launches.longest_queue, 3U) << "20 us of work every 10 us, from 7 us after the launch";
  EXPECT_EQ(launches.short_kernels, 0U);
}

double flops_of(const char* name, const char* shapes, const char* values = "") {
  return operator_work({name, shapes, "", values}).flops;
}

double bytes_of(const char* name, const char* shapes, const char* types, const char* values = "") {
  return operator_work({name, shapes, types, values}).bytes;
}

TEST(OperatorWork, KnowsTheFlopsOfProducts) {
  EXPECT_DOUBLE_EQ(flops_of("aten::mm", "[[512,64],[64,256]]"), 2.0 * 512 * 64 * 256);
  EXPECT_DOUBLE_EQ(flops_of("aten::bmm", "[[4,8,16],[4,16,32]]"), 2.0 * 4 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(flops_of("aten::baddbmm", "[[4,8,32],[4,8,16],[4,16,32],[],[]]"),
                   2.0 * 4 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(flops_of("aten::matmul", "[[2,3,8,16],[16,32]]"), 2.0 * 6 * 8 * 16 * 32);
  EXPECT_DOUBLE_EQ(flops_of("aten::linear", "[[2,8,16],[32,16],[32]]"), 2.0 * 2 * 8 * 16 * 32);
  for (const char* shapes : {"", "[]", "[[2]]", "[[2,3],[4,5]]", "[[[1],[2]],[3]]", "[null, 1]",
                             "{", "[[1,\"a\"],[2,2]]"})
    EXPECT_EQ(flops_of("aten::mm", shapes), 0) << shapes;
  EXPECT_EQ(flops_of("aten::add", "[[2,3],[3,5]]"), 0);
  EXPECT_EQ(flops_of("mm", "[[2,3],[3,5]]"), 0);
}

TEST(OperatorWork, CountsHalfOfACausalMask) {
  const char* shapes = "[[2,3,64,16],[2,3,80,16],[2,3,80,24],[],[],[]]";
  const double all = 2.0 * 6 * 64 * 80 * (16 + 24);
  const char* name = "aten::_scaled_dot_product_flash_attention";
  EXPECT_DOUBLE_EQ(flops_of(name, shapes), all);
  EXPECT_DOUBLE_EQ(flops_of(name, shapes, R"(["","","","0.","False","False"])"), all);
  EXPECT_DOUBLE_EQ(flops_of(name, shapes, R"(["","","","0.","True","False"])"), all / 2);
  EXPECT_DOUBLE_EQ(flops_of("aten::_scaled_dot_product_flash_attention_backward",
                            "[[2,3,64,24],[2,3,64,16],[2,3,80,16],[2,3,80,24]]"),
                   2.5 * all);
}

TEST(OperatorWork, KnowsConvolutionsWhoseValuesAreTold) {
  const char* shapes = "[[8,64,56,56],[128,64,3,3],[],[],[],[],[],[],[]]";
  const char* values = R"(["","","[1, 1]","[2, 2]","[1, 1]","1","True","True","True"])";
  const double forward = 2.0 * (8 * 128 * 28 * 28) * (64 * 9);
  EXPECT_DOUBLE_EQ(flops_of("aten::cudnn_convolution", shapes, values), forward);
  EXPECT_EQ(flops_of("aten::cudnn_convolution", shapes), 0) << "no trace of its padding";
  const char* gradients = "[[8,128,28,28],[8,64,56,56],[128,64,3,3],[],[],[],[],[],[],[],[]]";
  EXPECT_DOUBLE_EQ(flops_of("aten::convolution_backward", gradients), 2 * forward);
  EXPECT_DOUBLE_EQ(flops_of("aten::convolution_backward", gradients,
                            R"(["","","","","","","","","","","[False, True, False]"])"),
                   forward);
}

TEST(OperatorWork, CountsBytes) {
  const char* bf16 = R"(["c10::BFloat16","c10::BFloat16","Scalar"])";
  EXPECT_DOUBLE_EQ(bytes_of("aten::mm", "[[512,64],[64,256]]", bf16),
                   2.0 * (512 * 64 + 64 * 256 + 512 * 256));
  EXPECT_DOUBLE_EQ(bytes_of("aten::add", "[[512,64],[512,64],[]]", bf16), 2.0 * 3 * 512 * 64);
  EXPECT_DOUBLE_EQ(bytes_of("aten::add_", "[[512,64],[64],[]]", bf16), 2.0 * (2 * 512 * 64 + 64));
  EXPECT_DOUBLE_EQ(
      bytes_of("aten::copy_", "[[512,64],[512,64],[]]", R"(["float","c10::BFloat16","Scalar"])"),
      6.0 * 512 * 64);
  EXPECT_DOUBLE_EQ(bytes_of("aten::embedding", "[[1000,64],[8,16]]", R"(["float","long int"])"),
                   2.0 * 8 * 16 * 64 * 4 + 8 * 16 * 8);
  EXPECT_DOUBLE_EQ(bytes_of("aten::index_select", "[[30,40],[],[7]]",
                            R"(["float","Scalar","long int"])", R"(["","1",""])"),
                   2.0 * 7 * 30 * 4 + 7 * 8);
  EXPECT_EQ(bytes_of("aten::unheard_of", "[[512,64]]", bf16), 0);
  EXPECT_EQ(bytes_of("aten::add", "[[512,64]]", R"(["TensorList"])"), 0);
}

TEST(TraceTables, SetOperatorsAgainstTheCardsFloor) {
  const auto report_on = [](const char* card, const char* kernel) {
    MadeTrace made;
    made.slice("cpu_op", "aten::mm", 0, 10,
               R"({"Input Dims":[[4096,4096],[4096,4096]],"Input type":["float","float"]})")
        .launched(kernel, 2, 20, 1000);
    return report_of(
        made_of(made.text(fmt::format(R"("deviceProperties":[{{"id":0,"name":"{}"}}],)", card))));
  };
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const Report exact = report_on("NVIDIA A100-SXM4-80GB", "ampere_sgemm_128x64_nn");
  EXPECT_DOUBLE_EQ(exact.operators.at(0).floor_us, flops / 19.5e12 * 1e6);
  const Report rounded = report_on("NVIDIA A100-SXM4-80GB", "cutlass_80_tensorop_s1688gemm_128");
  EXPECT_DOUBLE_EQ(rounded.operators.at(0).floor_us, flops / 156e12 * 1e6);
  EXPECT_EQ(report_on("Some card", "k").operators.at(0).floor_us, 0);
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
