// `ridge eval`: what a run has made of a model, by the options of that run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class EvalCommand : public ::testing::Test {
 protected:
  // A LLaMA that has seen a text, evaluated at its end.
  void train() {
    std::string text;
    for (int i = 0; text.size() < 3000; ++i) text += std::to_string(i * i) + " ";
    sandbox_.write("text", text);
    done(
        "train --hidden-dim 16 --n-layers 1 --n-heads 2 --seq-len 8 --batch-size 2 --threads 1 "
        "--data text --num-steps 4 --save-every 4 --eval-every 4 --eval-batches 5 --version v2 "
        "--enable-pass accumulating-products --recompute block --output-dir run");
  }
  ProgramResult done(const std::string& command) {
    const ProgramResult result = run(sandbox_, "ridge " + command);
    EXPECT_EQ(result.exit_code, 0) << command << ": " << result.err;
    return result;
  }
  std::string refusal(const std::string& command) {
    const ProgramResult result = run(sandbox_, "ridge eval " + command);
    EXPECT_EQ(result.exit_code, 2) << command;
    return result.err;
  }
  Json json_in(const std::string& file) { return Json::parse(sandbox_.read(file)); }

  Sandbox sandbox_;
};

TEST_F(EvalCommand, TakesAllOfTheDataUnlessToldOtherwise) {
  train();
  const ProgramResult result =
      done("eval --checkpoint run/checkpoint.safetensors --data text --json all.json");
  EXPECT_THAT(result.out, AllOf(HasSubstr(" tokens in "), HasSubstr(" windows of 8"),
                                HasSubstr("nats/token, Perplexity = ")));
  const Json all = json_in("all.json");
  EXPECT_EQ(all["tokens"], all["windows"].get<std::int64_t>() * 8);
  EXPECT_GT(all["tokens"], 2900);
}

// Under the configuration of its training a checkpoint has the loss that was told at its end: the
// same part of the same data, and nothing of what was asked for training alone.
TEST_F(EvalCommand, ReadsAConfigurationAsOtherCommandsDo) {
  train();
  done("eval --config run/config.json --checkpoint run/checkpoint.safetensors --json held.json");
  const Json told = json_in("run/performance_summary.json")["performance_summary"];
  const Json held = json_in("held.json");
  EXPECT_NEAR(held["loss"], told["validation_losses"].back()["loss"], 1e-6);
  EXPECT_EQ(held["samples"], 10);
  EXPECT_EQ(held["data"], "text");
  // Flags win.
  done(
      "eval --config run/config.json --checkpoint run/checkpoint.safetensors --json held.json "
      "--eval-batches 2");
  EXPECT_EQ(json_in("held.json")["samples"], 4);
}

TEST_F(EvalCommand, SpeaksOfANetworksSamples) {
  const std::string network = " --network squeezenet1_1 --image-size 32 --batch-size 2 --threads 1";
  done("bench --mode training --num-steps 1 --warmup-steps 0 --save-weights w" + network);
  const ProgramResult result =
      done("eval --weights w --eval-batches 3 --logits logits.safetensors" + network);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Evaluated 6 images in"), HasSubstr(" nats/image\n"),
                                Not(HasSubstr("oken"))));
  EXPECT_THAT(sandbox_.read("logits.safetensors"), HasSubstr("\"images\""));
  EXPECT_THAT(refusal("--weights w --eval-batches 0" + network),
              HasSubstr("synthetic images never end"));
  EXPECT_THAT(refusal("--weights w --prompt once" + network),
              HasSubstr("--prompt is for models of tokens; squeezenet1_1 takes images"));
}

// An image has no perplexity.
TEST_F(EvalCommand, IsOfLossAloneWhereNothingIsLabeled) {
  const std::string rest = " --threads 1 --num-steps 1 --eval-every 1 --eval-batches 1";
  EXPECT_THAT(done("train --network squeezenet1_1 --image-size 32 --batch-size 2" + rest).out,
              AllOf(HasSubstr("Validation after step 1: Loss = "), Not(HasSubstr("Perplexity"))));
  EXPECT_THAT(done("train" + tiny + rest).out, HasSubstr(", Perplexity = "));
}

TEST_F(EvalCommand, WantsOneModel) {
  train();
  EXPECT_THAT(refusal(""), HasSubstr("evaluate which model?"));
  EXPECT_THAT(refusal("--config run/config.json"), HasSubstr("evaluate which model?"));
  EXPECT_THAT(refusal("--checkpoint run/checkpoint.safetensors --network resnet18"),
              HasSubstr("is a checkpoint of tiny_llama"));
  EXPECT_THAT(refusal("--network resnet5 --weights w"), HasSubstr("did you mean resnet50?"));
}

}  // namespace
}  // namespace ridge
