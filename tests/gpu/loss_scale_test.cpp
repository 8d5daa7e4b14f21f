// Training in f16 with dynamic loss scaling, in every version: launched node by node and captured.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "ridge/session/session.h"
#include "tests/base/temporary_cache.h"
#include "tests/base/temporary_directory.h"
#include "tests/gpu/gpu.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

constexpr const char* versions[] = {"v1", "v2", "v3", "v4"};

RunOptions small_options(const char* version, const char* dtype = "fp16") {
  RunOptions o = small_llama({.hidden_dim = 64, .n_heads = 2});
  o.num_steps = 100;
  o.learning_rate = 1e-3;
  o.device = "cuda";
  o.version = version;
  o.dtype = dtype;
  o.resolve();
  return o;
}

std::vector<std::vector<float>> parameters_of(Session& session) {
  std::vector<std::vector<float>> all;
  for (const Value& p : session.graph().parameters())
    all.push_back(session.executor().read_floats(p));
  return all;
}

class LossScaleOnGpu : public testing::GpuTest {
 protected:
  // Calls check(session, options) for every version, apart and with what may go along.
  template <class Change, class F>
  static void for_all_versions(const Change& change, const F& check) {
    for (const char* version : versions)
      for (const bool more : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{}", version, more ? ", tied, clipped, accumulated" : ""));
        RunOptions o = small_options(version);
        if (more) {
          o.tie_embeddings = true;
          o.max_grad_norm = 0.2;
          o.gradient_accumulation_steps = 2;
        }
        change(o);
        o.resolve();
        Session session(o, device());
        check(session, o);
      }
  }

 private:
  TemporaryCache cache_;
};

TEST_F(LossScaleOnGpu, TrainsAsInF32) {
  for_all_versions([](RunOptions& o) { o.loss_scale = 8192; },
                   [](Session& session, RunOptions o) {
                     o.dtype = "fp32";
                     Session exact(o, device());
                     for (int i = 0; i < 12; ++i) {
                       const StepReport report = session.step(), expected = exact.step();
                       EXPECT_FALSE(report.skipped);
                       EXPECT_EQ(report.loss_scale, 8192.0);
                       EXPECT_EQ(report.next_loss_scale, 8192.0);
                       EXPECT_NEAR(report.loss, expected.loss, 2e-3) << "step " << i;
                       ASSERT_EQ(report.grad_norm.has_value(), expected.grad_norm.has_value());
                       if (expected.grad_norm) {
                         EXPECT_NEAR(*report.grad_norm / *expected.grad_norm, 1, 1e-2);
                       }
                     }
                   });
}

TEST_F(LossScaleOnGpu, SkipsStepsThatOverflowAndChangesNothingInThem) {
  for_all_versions([](RunOptions& o) { o.loss_scale = 0x1p34; },
                   [](Session& session, const RunOptions&) {
                     const auto start = parameters_of(session);
                     double scale = 0x1p34;
                     int skipped = 0;
                     for (;; ++skipped, scale /= 2) {
                       ASSERT_LT(skipped, 30);
                       const StepReport report = session.step();
                       EXPECT_EQ(report.loss_scale, scale);
                       if (!report.skipped) break;
                       EXPECT_EQ(report.next_loss_scale, scale / 2);
                       EXPECT_EQ(parameters_of(session), start) << "step " << report.step;
                       EXPECT_TRUE(std::isfinite(report.loss));
                     }
                     EXPECT_GT(skipped, 4) << "so many that captured ones are among them";
                     EXPECT_NE(parameters_of(session), start);
                     // What is rounded beside each weight follows it.
                     for (ValueId id = 0; id < session.graph().value_count(); ++id) {
                       const ValueInfo& info = session.graph().info(id);
                       if (info.copy_of == no_value) continue;
                       EXPECT_EQ(info.type.dtype, DType::f16);
                       std::vector<float> wanted =
                           session.executor().read_floats(session.graph().value(info.copy_of));
                       for (float& x : wanted) x = static_cast<float>(Float16(x));
                       EXPECT_EQ(session.executor().read_floats(session.graph().value(id)), wanted);
                     }
                   });
}

TEST_F(LossScaleOnGpu, DoublesAfterGoodSteps) {
  for_all_versions([](RunOptions& o) { o.loss_scale = 16, o.loss_scale_growth_interval = 3; },
                   [](Session& session, const RunOptions&) {
                     for (int i = 1; i <= 9; ++i) {
                       const StepReport report = session.step();
                       EXPECT_EQ(report.loss_scale, 16 << ((i - 1) / 3)) << i;
                       EXPECT_EQ(report.next_loss_scale, 16 << (i / 3)) << i;
                     }
                   });
}

TEST_F(LossScaleOnGpu, GoesOnFromACheckpointBitForBit) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "checkpoint";
  for_all_versions([](RunOptions& o) { o.loss_scale = 0x1p30, o.loss_scale_growth_interval = 4; },
                   [&](Session& session, const RunOptions& o) {
                     losses_of(session, 3);
                     session.save(path);
                     const std::vector<double> wanted = losses_of(session, 20);
                     Session second(o, device());
                     second.resume(path);
                     EXPECT_EQ(losses_of(second, 20), wanted);
                     EXPECT_EQ(parameters_of(second), parameters_of(session));
                   });
}

// Two steps begun before the first is finished, as training does it: each is told of by itself.
TEST_F(LossScaleOnGpu, ReportsStepsInFlight) {
  for_all_versions([](RunOptions& o) { o.loss_scale = 0x1p30; },
                   [](Session& session, const RunOptions& o) {
                     Session one_by_one(o, device());
                     session.begin_step();
                     for (int i = 0; i < 20; ++i) {
                       session.begin_step();
                       const StepReport report = session.finish_step(), wanted = one_by_one.step();
                       EXPECT_EQ(report.loss, wanted.loss);
                       EXPECT_EQ(report.skipped, wanted.skipped);
                       EXPECT_EQ(report.loss_scale, wanted.loss_scale);
                       EXPECT_EQ(report.next_loss_scale, wanted.next_loss_scale);
                     }
                     session.finish_step();
                   });
}

}  // namespace
}  // namespace ridge
