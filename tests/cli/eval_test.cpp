// `ridge eval`: what a run has made of a model, by the options of that run.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

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

// A PNG of one pixel.
std::string png_of_a_pixel() {
  constexpr std::string_view hex =
      "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000"
      "000c49444154789c631068f80000022401816f91e4640000000049454e44ae426082";
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Its checkpoint has as many classes as the folder that it was trained on.
TEST_F(EvalCommand, SaysWhatANetworkWasTrainedOn) {
  for (const char* label : {"cat", "dog"}) {
    std::filesystem::create_directories(sandbox_.path("pets") / label);
    for (const char* name : {"1", "2", "3", "4"})
      sandbox_.write(fmt::format("pets/{}/{}.png", label, name), png_of_a_pixel());
  }
  done(
      "train --network squeezenet1_1 --image-size 32 --batch-size 2 --threads 1 --data pets "
      "--num-steps 1 --save-every 1 --output-dir run");
  const std::string checkpoint = "eval --checkpoint run/checkpoint.safetensors --threads 1";
  done(checkpoint + " --data pets");
  const ProgramResult result = run(sandbox_, "ridge " + checkpoint);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("; it was trained with --data pets: give that\n"));
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
