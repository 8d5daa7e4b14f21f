// Training in f16 with dynamic loss scaling, in every version: launched node by node and captured.

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "ridge/session/trainer.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

constexpr const char* versions[] = {"v1", "v2", "v3", "v4"};

TrainOptions small_options(const char* version, const char* dtype = "fp16") {
  TrainOptions o;
  o.vocab_size = 50;
  o.hidden_dim = 64;
  o.n_layers = 2;
  o.n_heads = 2;
  o.n_kv_heads = 1;
  o.batch_size = 3;
  o.seq_len = 24;
  o.num_steps = 100;
  o.learning_rate = 1e-3;
  o.device = "cuda";
  o.version = version;
  o.dtype = dtype;
  o.resolve();
  return o;
}

std::vector<std::vector<float>> parameters_of(Trainer& trainer) {
  std::vector<std::vector<float>> all;
  for (const Value& p : trainer.graph().parameters())
    all.push_back(trainer.executor().read_floats(p));
  return all;
}

class LossScaleOnGpu : public testing::GpuTest {
 protected:
  // Calls check(trainer, options) for every version, apart and with what may go along.
  template <class Change, class F>
  static void for_all_versions(const Change& change, const F& check) {
    for (const char* version : versions)
      for (const bool more : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{}", version, more ? ", tied, clipped, accumulated" : ""));
        TrainOptions o = small_options(version);
        if (more) {
          o.tie_embeddings = true;
          o.max_grad_norm = 0.2;
          o.gradient_accumulation_steps = 2;
        }
        change(o);
        o.resolve();
        Trainer trainer(o, device());
        check(trainer, o);
      }
  }

 private:
  TemporaryCache cache_;
};

TEST_F(LossScaleOnGpu, TrainsAsInF32) {
  for_all_versions([](TrainOptions& o) { o.loss_scale = 8192; },
                   [](Trainer& trainer, TrainOptions o) {
                     o.dtype = "fp32";
                     Trainer exact(o, device());
                     for (int i = 0; i < 12; ++i) {
                       const StepReport report = trainer.step(), expected = exact.step();
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
  for_all_versions([](TrainOptions& o) { o.loss_scale = 0x1p34; },
                   [](Trainer& trainer, const TrainOptions&) {
                     const auto start = parameters_of(trainer);
                     double scale = 0x1p34;
                     int skipped = 0;
                     for (;; ++skipped, scale /= 2) {
                       ASSERT_LT(skipped, 30);
                       const StepReport report = trainer.step();
                       EXPECT_EQ(report.loss_scale, scale);
                       if (!report.skipped) break;
                       EXPECT_EQ(report.next_loss_scale, scale / 2);
                       EXPECT_EQ(parameters_of(trainer), start) << "step " << report.step;
                       EXPECT_TRUE(std::isfinite(report.loss));
                     }
                     EXPECT_GT(skipped, 4) << "so many that captured ones are among them";
                     EXPECT_NE(parameters_of(trainer), start);
                     // What is rounded beside each weight follows it.
                     for (ValueId id = 0; id < trainer.graph().value_count(); ++id) {
                       const ValueInfo& info = trainer.graph().info(id);
                       if (info.copy_of == no_value) continue;
                       EXPECT_EQ(info.type.dtype, DType::f16);
                       std::vector<float> wanted =
                           trainer.executor().read_floats(trainer.graph().value(info.copy_of));
                       for (float& x : wanted) x = static_cast<float>(Float16(x));
                       EXPECT_EQ(trainer.executor().read_floats(trainer.graph().value(id)), wanted);
                     }
                   });
}

TEST_F(LossScaleOnGpu, DoublesAfterGoodSteps) {
  for_all_versions([](TrainOptions& o) { o.loss_scale = 16, o.loss_scale_growth_interval = 3; },
                   [](Trainer& trainer, const TrainOptions&) {
                     for (int i = 1; i <= 9; ++i) {
                       const StepReport report = trainer.step();
                       EXPECT_EQ(report.loss_scale, 16 << ((i - 1) / 3)) << i;
                       EXPECT_EQ(report.next_loss_scale, 16 << (i / 3)) << i;
                     }
                   });
}

TEST_F(LossScaleOnGpu, GoesOnFromACheckpointBitForBit) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("ridge-f16-{}", getpid());
  for_all_versions([](TrainOptions& o) { o.loss_scale = 0x1p30, o.loss_scale_growth_interval = 4; },
                   [&](Trainer& trainer, const TrainOptions& o) {
                     losses_of(trainer, 3);
                     trainer.save(path);
                     const std::vector<double> wanted = losses_of(trainer, 20);
                     Trainer second(o, device());
                     second.resume(path);
                     EXPECT_EQ(losses_of(second, 20), wanted);
                     EXPECT_EQ(parameters_of(second), parameters_of(trainer));
                   });
  std::filesystem::remove(path);
}

// Two steps begun before the first is finished, as training does it: each is told of by itself.
TEST_F(LossScaleOnGpu, ReportsStepsInFlight) {
  for_all_versions([](TrainOptions& o) { o.loss_scale = 0x1p30; },
                   [](Trainer& trainer, const TrainOptions& o) {
                     Trainer one_by_one(o, device());
                     trainer.begin_step();
                     for (int i = 0; i < 20; ++i) {
                       trainer.begin_step();
                       const StepReport report = trainer.finish_step(), wanted = one_by_one.step();
                       EXPECT_EQ(report.loss, wanted.loss);
                       EXPECT_EQ(report.skipped, wanted.skipped);
                       EXPECT_EQ(report.loss_scale, wanted.loss_scale);
                       EXPECT_EQ(report.next_loss_scale, wanted.next_loss_scale);
                     }
                     trainer.finish_step();
                   });
}

}  // namespace
}  // namespace ridge
