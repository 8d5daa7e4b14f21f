// Findings about operators and their kernels, on an A100 as its data sheet promises it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/trace/report.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::HasSubstr;

constexpr const char* a100 = R"("deviceProperties":[{"id":0,"name":"NVIDIA A100-SXM4-80GB",)"
                             R"("numSms":108}],)";

// Calls of an operator, one behind the other, each launched well before it runs.
class Calls {
 public:
  Calls& call(const std::string& name, const std::string& shapes, const std::string& type,
              const std::string& kernel, double us, const std::string& grid = "[1000,1,1]") {
    const double launch = 10.0 * count_++;
    made_.slice("cpu_op", name, launch, 8,
                fmt::format(R"({{"Input Dims":{},"Input type":["{}","{}"]}})", shapes, type, type));
    made_.call("cudaLaunchKernel", launch + 1, 2, count_);
    made_.event(
        fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":7,"ts":{},"dur":{},)"
                    R"("args":{{"device":0,"stream":7,"correlation":{},"grid":{}}}}})",
                    kernel, at_, us, count_, grid));
    at_ += us + 0.5;
    return *this;
  }
  Report report() const { return report_of(made_of(made_.text(a100))); }

 private:
  MadeTrace made_;
  int count_ = 0;
  double at_ = 10'000;
};

const Finding* finding(const Report& report, const std::string& rule) {
  for (const Finding& one : report.findings)
    if (one.rule == rule) return &one;
  return nullptr;
}

constexpr const char* product = "[[4096,4096],[4096,4096]]";  // 137.4 GFLOP, 440 us in bf16
constexpr double product_us = 2.0 * 4096 * 4096 * 4096 / 312e12 * 1e6;

TEST(OperatorFindings, NameProductsOfFullFloat32) {
  const Report found =
      Calls().call("aten::mm", product, "float", "ampere_sgemm_128x64_nn", 8000).report();
  ASSERT_FALSE(found.findings.empty());
  EXPECT_EQ(found.findings.front().rule, "float32-products");
  EXPECT_NEAR(found.findings.front().gain_us, 8000 - 2 * product_us / 0.65, 1);
  const Report rounded =
      Calls().call("aten::mm", product, "float", "s1688gemm_tf32_128", 1200).report();
  EXPECT_EQ(finding(rounded, "float32-products"), nullptr);
}

TEST(OperatorFindings, NameOperatorsFarFromTheirFloor) {
  const Report found =
      Calls().call("aten::mm", product, "c10::BFloat16", "gemm", 3 * product_us).report();
  ASSERT_NE(finding(found, "slow-operators"), nullptr);
  EXPECT_THAT(finding(found, "slow-operators")->what, HasSubstr("aten::mm of [[4096,4096]"));
  const Report usual =
      Calls().call("aten::mm", product, "c10::BFloat16", "gemm", 2 * product_us).report();
  EXPECT_EQ(finding(usual, "slow-operators"), nullptr) << "half of the promise is nothing unusual";
  const Report copied = Calls()
                            .call("aten::copy_", "[[4096,4096],[4096,4096]]", "float",
                                  "Memcpy HtoD (Pinned -> Device)", 5000)
                            .report();
  EXPECT_EQ(finding(copied, "slow-operators"), nullptr) << "the link to the host has its own speed";
  const Report norms = Calls()
                           .call("aten::native_batch_norm", "[[64,64,56,56],[64]]", "float",
                                 "batch_norm_collect_statistics", 1000)
                           .report();
  EXPECT_EQ(finding(norms, "slow-operators"), nullptr);
}

TEST(OperatorFindings, NameCallsThatTakeLongerThanTheirLike) {
  const auto calls = [](double last) {
    Calls made;
    for (int i = 0; i < 7; ++i)
      made.call("aten::mm", product, "c10::BFloat16", "gemm", 1.5 * product_us);
    return made.call("aten::mm", product, "c10::BFloat16", "gemm", last).report();
  };
  const Report found = calls(4 * product_us);
  ASSERT_NE(finding(found, "uneven-kernels"), nullptr);
  EXPECT_NEAR(finding(found, "uneven-kernels")->gain_us, 2.5 * product_us, 1);
  EXPECT_EQ(finding(calls(2 * product_us), "uneven-kernels"), nullptr);
  Calls sorts;
  for (int i = 0; i < 8; ++i)
    sorts.call("aten::sort", "[[4096,4096]]", "float", "sort", i == 7 ? 900 : 100);
  EXPECT_EQ(finding(sorts.report(), "uneven-kernels"), nullptr) << "what it holds may decide";
}

TEST(OperatorFindings, NameAttentionThatWritesItsScores) {
  const Report found =
      Calls()
          .call("aten::bmm", "[[128,512,64],[128,64,512]]", "float", "tf32_a", 100)
          .call("aten::add", "[[8,16,512,512],[512,512]]", "float", "add", 300)
          .call("aten::_softmax", "[[8,16,512,512]]", "float", "softmax", 200)
          .call("aten::bmm", "[[128,512,512],[128,512,64]]", "float", "tf32_b", 100)
          .report();
  ASSERT_NE(finding(found, "unfused-attention"), nullptr);
  EXPECT_NEAR(finding(found, "unfused-attention")->gain_us, 0.7 * 600, 1e-6)
      << "what reads scores; the first product only writes them";
  const Report classes =
      Calls().call("aten::_softmax", "[[512,1000]]", "float", "softmax", 200).report();
  EXPECT_EQ(finding(classes, "unfused-attention"), nullptr);
}

TEST(OperatorFindings, NameKernelsThatLeaveTheCardEmpty) {
  const auto on = [](const char* grid) {
    return Calls().call("aten::mm", product, "c10::BFloat16", "gemm", 900, grid).report();
  };
  const Report found = on("[27,1,1]");
  ASSERT_NE(finding(found, "small-batch"), nullptr);
  EXPECT_NEAR(finding(found, "small-batch")->gain_us, 900 * 0.75, 1e-6);
  EXPECT_EQ(finding(on("[27,4,1]"), "small-batch"), nullptr);
}

TEST(OperatorFindings, NameShortKernelsThatWereLaunchedInTime) {
  Calls many;
  for (int i = 0; i < 200; ++i) many.call("aten::unheard_of", "[[8]]", "float", "k", 1.5);
  ASSERT_NE(finding(many.report(), "short-kernels"), nullptr);
  EXPECT_NEAR(finding(many.report(), "short-kernels")->gain_us, 199 * 0.5, 1e-6);
  Calls longer;
  for (int i = 0; i < 200; ++i) longer.call("aten::unheard_of", "[[8]]", "float", "k", 15);
  EXPECT_EQ(finding(longer.report(), "short-kernels"), nullptr);
}

}  // namespace
}  // namespace ridge::trace
