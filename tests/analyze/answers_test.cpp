#include "ridge/analyze/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"
#include "ridge/profile/recorder.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

// Two recorded passes of a small network, whose times are then set: a convolution takes 3 ms, any
// other node 1 ms.
class RecordedPasses : public ::testing::Test {
 protected:
  RecordedPasses()
      : session_(network_options("resnet18", Use::inference, "none", "fp32", 32), device_) {
    session_.step();
    recorder_.attach(session_.executor());
    for (int step = 3; step <= 4; ++step) {
      recorder_.begin_step(step);
      recorder_.end_step(session_.step().loss);
    }
    recorder_.detach(session_.executor());
    set_times();
  }

  void set_times() {
    Recording& r = recorder_.recording();
    std::int64_t now = 0;
    std::size_t next = 0;
    for (std::size_t s = 0; s < r.steps.size(); ++s) {
      r.steps[s].begin_ns = r.phases[s].begin_ns = now;
      for (; next < r.nodes.size() && r.nodes[next].step == r.steps[s].step; ++next) {
        const bool conv = is_convolution(r.nodes[next].node);
        r.nodes[next].begin_ns = now;
        r.nodes[next].end_ns = now += conv ? 3'000'000 : 1'000'000;
        (conv ? convolutions_ : others_) += 1;
      }
      r.steps[s].end_ns = r.phases[s].end_ns = now;
    }
    convolutions_ /= 2, others_ /= 2;  // of one pass
  }

  bool is_convolution(NodeId node) {
    return std::holds_alternative<Conv2d>(session_.graph().nodes()[node].op->variant());
  }

  const Recording& recording() { return recorder_.recording(); }

  CpuDevice device_{1};
  Session session_;
  Recorder recorder_;
  double convolutions_ = 0, others_ = 0;
};

TEST_F(RecordedPasses, SayWhatTakesTheTime) {
  const ProfileAnswers answers = profile_answers(recording(), recording());
  ASSERT_EQ(convolutions_, 20);
  EXPECT_NEAR(answers.convolution_seconds, 0.060, 1e-9);
  EXPECT_NEAR(answers.pass_seconds, 0.060 + others_ * 1e-3, 1e-9);
  EXPECT_EQ(answers.slowest.size(), 5u);
  EXPECT_EQ(answers.slowest[0].name, "conv2d");
  EXPECT_NEAR(answers.slowest[0].share, answers.convolution_share(), 1e-12);
  EXPECT_FALSE(answers.overhead.has_value()) << "the host is the device";
  EXPECT_THAT(answers_text(answers), HasSubstr("1. conv2d: 60.00 ms"));
}

TEST_F(RecordedPasses, SayHowTheHostKeepsUp) {
  ProfileAnswers answers = profile_answers(recording(), recording());
  const auto text_of = [&](double host, double kernels) {
    answers.overhead = {.host_seconds = host, .kernel_seconds = kernels};
    return answers_text(answers);
  };
  EXPECT_THAT(text_of(0.001, 0.004), HasSubstr("a ratio of 0.25: the device sets the pace"));
  EXPECT_THAT(text_of(0.006, 0.004), HasSubstr("a ratio of 1.50: the host is at times too slow"));
  EXPECT_THAT(text_of(0.010, 0.004), HasSubstr("a ratio of 2.50: the device waits for the host"));
}

TEST_F(RecordedPasses, SayHowEfficientItIs) {
  const Roof roof{.peaks = {{ProductKind::f32, 1e12}}, .levels = {{"memory", 0, 1e11}}};
  const FlopsReport report = flops_report(recording(), 4);
  const EfficiencyAnswers answers =
      efficiency_answers(recording(), report, roof, ProductKind::f32, 2, 0.075);
  const Cost cost = cost_of_step(session_.graph(), 1).total();
  EXPECT_DOUBLE_EQ(answers.flops, static_cast<double>(cost.flops));
  EXPECT_DOUBLE_EQ(answers.bytes, static_cast<double>(cost.bytes()));
  EXPECT_EQ(answers.seconds, 0.075) << "what a pass usually takes, not the one recorded";
  EXPECT_DOUBLE_EQ(answers.efficiency(), answers.flops / answers.seconds / 1e12);
  EXPECT_DOUBLE_EQ(answers.ridge_point(), 10);
  EXPECT_DOUBLE_EQ(answers.intensity(), answers.flops / answers.bytes);
  // Each of the four stages has five convolutions, but the first four of them.
  ASSERT_GE(answers.parts.size(), 4u);
  EXPECT_EQ(answers.parts[0].name.substr(0, 5), "layer");
  double share = 0;
  for (const auto& part : answers.parts) share += part.time_share;
  EXPECT_GT(share, 0.5);
  EXPECT_LE(share, 1);
  const std::string text = answers_text(answers);
  EXPECT_THAT(text, HasSubstr("of a peak of 1 TFLOP/s in f32"));
  EXPECT_THAT(text, HasSubstr("above 10.0 this device computes longer"));
}

// A convolution multiplies in the dtype of its operands, with tensor cores where there are some.
TEST_F(RecordedPasses, CountConvolutionsAsProducts) {
  Roof roof{.peaks = {{ProductKind::f32, 1e12}, {ProductKind::tf32, 4e12}},
            .levels = {{"memory", 0, 1e11}}};
  roof.tf32 = true;
  for (const Node& node : session_.graph().nodes())
    if (std::holds_alternative<Conv2d>(node.op->variant())) {
      EXPECT_EQ(compute_precision(session_.graph(), node, roof), ProductKind::tf32);
    }
}

}  // namespace
}  // namespace ridge
