#include "ridge/session/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/safetensors.h"
#include "ridge/cpu/device.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/session.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

class EvaluationTest : public ::testing::Test {
 protected:
  EvaluationTest() {
    options_.hidden_dim = 16;
    options_.n_layers = 1;
    options_.n_heads = 2;
    options_.batch_size = 4;
    options_.seq_len = 9;
    options_.data = (directory_.path / "text").string();
    std::string text;
    for (int i = 0; text.size() < 700; ++i) text += std::to_string(i * i) + " ";
    write_text_file(options_.data, text.substr(0, 700));
    options_.resolve();
    Session session(options_, device_);
    for (int i = 0; i < 3; ++i) session.step();
    session.save(checkpoint_);
    validation_loss_ = session.evaluate(1).loss;
    options_.validation_fraction = 1;
    options_.eval_batches = 0;
  }

  EvaluationReport evaluate_checkpoint(const std::filesystem::path& logits = {}) {
    return evaluate(
        options_, device_, [&](Graph& graph) { initialize_from_checkpoint(checkpoint_, graph); },
        logits);
  }

  CpuDevice device_{2};
  TemporaryDirectory directory_;
  std::filesystem::path checkpoint_ = directory_.path / "checkpoint";
  RunOptions options_;
  double validation_loss_ = 0;
};

TEST_F(EvaluationTest, AgreesWithTheSession) {
  options_.validation_fraction = 0.1;
  options_.eval_batches = 1;
  const EvaluationReport report = evaluate_checkpoint();
  EXPECT_EQ(report.loss, validation_loss_);
  EXPECT_EQ(report.perplexity, std::exp(report.loss));
  EXPECT_EQ(report.samples, 4);
}

TEST_F(EvaluationTest, CoversTheFileWhateverTheBatch) {
  // 699 predictions make 77 windows of 9: 19 batches of 4 and a window.
  const EvaluationReport report = evaluate_checkpoint();
  EXPECT_EQ(report.samples, 77);
  EXPECT_EQ(report.tokens, 693);
  for (const std::int64_t batch : {1, 7, 76, 100}) {
    options_.batch_size = batch;
    const EvaluationReport other = evaluate_checkpoint();
    EXPECT_EQ(other.samples, 77);
    EXPECT_NEAR(other.loss, report.loss, 1e-6) << batch;
  }
}

TEST_F(EvaluationTest, StopsWhereItIsTold) {
  options_.eval_batches = 3;
  EXPECT_EQ(evaluate_checkpoint().samples, 12);
  options_.eval_batches = 1000;
  EXPECT_EQ(evaluate_checkpoint().samples, 77);
}

TEST_F(EvaluationTest, WritesTheLogitsThatGiveTheLoss) {
  for (const char* dtype : {"fp32", "bf16"}) {
    options_.dtype = dtype;
    options_.eval_batches = 1;
    const auto path = directory_.path / "logits.safetensors";
    const EvaluationReport report = evaluate_checkpoint(path);
    const SafetensorsFile file(path);
    const StoredTensor logits = file.find("logits").value(), tokens = file.find("tokens").value();
    ASSERT_EQ(logits.type(), (TensorType{DType::f32, {4, 9, 256}}));
    ASSERT_EQ(tokens.type(), (TensorType{DType::i32, {4, 9}}));
    std::vector<float> x(4 * 9 * 256);
    std::memcpy(x.data(), logits.bytes.data(), logits.bytes.size());
    const std::string text = read_text_file(options_.data, 1000);
    double loss = 0;
    for (std::size_t i = 0; i < 36; ++i) {
      std::int32_t token;
      std::memcpy(&token, tokens.bytes.data() + 4 * i, 4);
      ASSERT_EQ(token, text[i]);
      double sum = 0;
      for (std::size_t v = 0; v < 256; ++v) sum += std::exp(static_cast<double>(x[i * 256 + v]));
      const auto target = static_cast<std::size_t>(text[i + 1]);
      loss += (std::log(sum) - static_cast<double>(x[i * 256 + target])) / 36;
    }
    EXPECT_NEAR(loss, report.loss, 1e-5) << dtype;
  }
}

TEST_F(EvaluationTest, RefusesWhatHasNoEndAndWhatHasNoBeginning) {
  options_.validation_fraction = 0;
  EXPECT_THROW(evaluate_checkpoint(), UsageError);
  options_.data.clear();
  EXPECT_THROW(evaluate_checkpoint(), UsageError);
}

}  // namespace
}  // namespace ridge
