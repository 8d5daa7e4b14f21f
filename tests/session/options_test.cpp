#include "ridge/session/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "ridge/base/error.h"
#include "ridge/session/language.h"
#include "ridge/session/workload.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What resolve() says of options with these fields set as on a command line.
std::string refusal(const std::vector<std::pair<std::string, std::string>>& settings) {
  return message_of<UsageError>([&] {
    RunOptions options;
    for (const auto& [name, text] : settings) {
      const auto fields = options_of(options);
      set_from_text(*std::ranges::find(fields, name, &OptionInfo::name), text);
    }
    options.resolve();
  });
}

RunOptions resolved(RunOptions options = {}) {
  options.resolve();
  return options;
}

TEST(RunOptions, DefaultsAreTheWorkshopModel) {
  const RunOptions options = resolved();
  EXPECT_EQ(options.vocab_size, 1000);
  EXPECT_EQ(options.n_kv_heads, 4);
  EXPECT_EQ(options.intermediate_dim, 512);
  EXPECT_EQ(llama_config(options).parameter_count(), 2'873'600);
  EXPECT_EQ(options.precision().compute, DType::f32);
  EXPECT_FALSE(options.profiling());
  EXPECT_EQ(resolved(options), options) << "resolving twice changes nothing";
}

TEST(RunOptions, DerivesFromWhatIsGiven) {
  EXPECT_EQ(resolved({.data = "book.txt"}).vocab_size, 256);
  EXPECT_EQ(resolved({.data = "tokens.bin"}).vocab_size, 1000);
  EXPECT_EQ(resolved({.vocab_size = 300, .data = "book.txt"}).vocab_size, 300);
  EXPECT_EQ(resolved({.hidden_dim = 512}).intermediate_dim, 1024);
  EXPECT_EQ(resolved({.hidden_dim = 30, .n_heads = 5}).n_kv_heads, 5);
  EXPECT_EQ(resolved({.n_heads = 1}).n_kv_heads, 1);
}

TEST(RunOptions, TakesOtherSpellings) {
  for (const char* name : {"f32", "float32", "fp32"})
    EXPECT_EQ(resolved({.dtype = name}).dtype, "fp32") << name;
  EXPECT_EQ(resolved({.dtype = "bfloat16"}).precision().compute, DType::bf16);
  for (const char* spelling : {"fp16", "f16", "float16", "half"}) {
    EXPECT_EQ(resolved({.dtype = spelling}).precision().compute, DType::f16);
    EXPECT_EQ(resolved({.dtype = spelling}).dtype, "fp16");
  }
  const RunOptions amp = resolved({.use_amp = true});
  EXPECT_EQ(amp.dtype, "bf16");
  EXPECT_EQ(amp, resolved({.dtype = "bf16"})) << "one meaning, one form";
}

TEST(RunOptions, SaysWhatFp8CannotTrain) {
  EXPECT_EQ(resolved({.dtype = "fp8"}).precision().compute, DType::bf16);
  EXPECT_THAT(refusal({{"dtype", "fp8"}, {"n-layers", "2"}}),
              AllOf(HasSubstr("--n-layers 2"), HasSubstr("at least 3")));
  EXPECT_THAT(refusal({{"dtype", "fp8"}, {"hidden-dim", "264"}, {"n-heads", "4"}}),
              HasSubstr("--hidden-dim 264: it must be a multiple of 16"));
  EXPECT_THAT(refusal({{"dtype", "fp8"}, {"intermediate-dim", "500"}}),
              HasSubstr("--intermediate-dim 500"));
  EXPECT_THAT(refusal({{"dtype", "fp8"}, {"batch-size", "1"}, {"seq-len", "17"}}),
              HasSubstr("--batch-size times --seq-len, 17"));
  EXPECT_THAT(
      refusal({{"dtype", "fp8"}, {"hidden-dim", "96"}, {"n-heads", "12"}, {"n-kv-heads", "1"}}),
      HasSubstr("--n-kv-heads times the head's size, 8"));
}

TEST(RunOptions, NamesTheFlagTheValueAndTheReason) {
  EXPECT_THAT(refusal({{"hidden-dim", "250"}}),
              AllOf(HasSubstr("--hidden-dim 250"), HasSubstr("--n-heads 8"),
                    HasSubstr("2 are left"), Not(HasSubstr("hidden_dim"))));
  EXPECT_THAT(refusal({{"n-heads", "6"}, {"hidden-dim", "252"}, {"n-kv-heads", "4"}}),
              HasSubstr("--n-heads 6 is no multiple of --n-kv-heads 4"));
  EXPECT_THAT(refusal({{"hidden-dim", "8"}}), HasSubstr("odd head size 1"));
  EXPECT_THAT(refusal({{"dtype", "fp8x"}}),
              HasSubstr("'fp8x'; choose one of fp32, tf32, bf16, fp16, fp8"));
  EXPECT_THAT(refusal({{"loss-scale", "0"}}), HasSubstr("--loss-scale is 0"));
  EXPECT_THAT(refusal({{"loss-scale-growth-interval", "0"}}),
              HasSubstr("--loss-scale-growth-interval is 0"));
  EXPECT_THAT(refusal({{"batch-size", "8x"}}), HasSubstr("--batch-size is '8x'"));
  EXPECT_THAT(refusal({{"batch-size", "9223372036854775808"}}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({{"learning-rate", "1e999"}}), HasSubstr("out of range"));
}

// What another workload has must make sense too, or a mistake would go unnoticed.
TEST(RunOptions, RefusesSizesThatTheWorkloadDoesNotHave) {
  for (const char* name :
       {"hidden-dim", "n-layers", "n-heads", "n-kv-heads", "intermediate-dim", "vocab-size"})
    EXPECT_THAT(refusal({{"network", "resnet18"}, {name, "-5"}}),
                HasSubstr(fmt::format("--{} is -5; it must be from 0", name)));
  EXPECT_THAT(refusal({{"image-size", "-7"}}), HasSubstr("--image-size is -7"));
}

TEST(RunOptions, RefusesEachFieldOutOfItsRange) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> refused = {
      {"vocab-size", {"-1", "100000000"}},
      {"hidden-dim", {"0", "-8", "1000000"}},
      {"n-layers", {"0", "100000"}},
      {"n-heads", {"0", "-1"}},
      {"n-kv-heads", {"-1", "3"}},
      {"intermediate-dim", {"-1", "10000000"}},
      {"norm-eps", {"0", "-1", "nan", "1e-60"}},
      {"rope-theta", {"0", "inf"}},
      {"batch-size", {"0", "-1", "", "eight", "1e3", "8 ", "+8", "10000000"}},
      {"seq-len", {"0", "10000000"}},
      {"num-steps", {"0", "-5", "10000000000"}},
      {"gradient-accumulation-steps", {"0", "1000000"}},
      {"learning-rate", {"nan", "inf", "-1", "1000", "fast"}},
      {"lr-schedule", {"linear", ""}},
      {"lr-warmup-steps", {"-1", "51"}},
      {"min-learning-rate", {"-1", "1"}},
      {"weight-decay", {"-0.1", "nan"}},
      {"beta1", {"-0.1", "1", "0.9999999999"}},
      {"beta2", {"-0.1", "1", "0.9999999999"}},
      {"adam-eps", {"0", "-1", "1e-60"}},
      {"max-grad-norm", {"-1", "inf"}},
      {"dtype", {"", "int8"}},
      {"use-amp", {"maybe"}},
      {"version", {"v0", "v9", ""}},
      {"seed", {"-1"}},
      {"validation-fraction", {"-0.1", "0.91", "1", "nan"}},
      {"eval-every", {"-1"}},
      {"eval-batches", {"-1"}},
      {"device", {"tpu", ""}},
      {"threads", {"-1", "100000"}},
      {"output-dir", {"", "a\nb", "a\xff"}},
      {"save-every", {"-1"}},
      {"log-interval", {"0", "-1"}},
      {"warmup-steps", {"-1"}},
      {"profile-dir", {""}},
      {"profile-steps", {"-1"}},
      {"flops-profile-step", {"-1"}},
      {"data", {std::string("a\0b", 3)}},
  };
  for (const auto& [name, values] : refused)
    for (const std::string& value : values)
      EXPECT_THAT(refusal({{name, value}}),
                  AllOf(Not(HasSubstr("nothing was thrown")), Not(HasSubstr("\n"))))
          << name << " " << value;
}

TEST(RunOptions, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(refusal({{"batch-size", "1000000"}, {"seq-len", "1000000"}}),
              HasSubstr("needs a tensor of"));
  EXPECT_THAT(refusal({{"resume", "a"}, {"init-from", "b"}}), HasSubstr("one or the other"));
  EXPECT_THAT(refusal({{"data", "a.txt"}, {"eval-every", "1"}, {"validation-fraction", "0"}}),
              HasSubstr("nothing to evaluate"));
  EXPECT_THAT(refusal({{"eval-every", "1"}, {"eval-batches", "0"}}), HasSubstr("eval-batches"));
}

TEST(RunOptions, NamesAreDistinctAndEachFieldHasOne) {
  RunOptions options;
  std::set<std::string> names;
  for (const OptionInfo& option : options_of(options)) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    for (const std::string& alias : option.aliases)
      EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_FALSE(option.help.empty()) << option.name;
  }
}

// Every field another value than the default's, by its listing alone.
RunOptions all_changed() {
  RunOptions options;
  std::int64_t number = 1000;
  for (const OptionInfo& option : options_of(options)) {
    ++number;
    if (auto* const* p = std::get_if<std::int64_t*>(&option.target)) **p = number;
    if (auto* const* p = std::get_if<double*>(&option.target))
      **p = 0.1 * static_cast<double>(number);
    if (auto* const* p = std::get_if<bool*>(&option.target)) **p = !**p;
    if (auto* const* p = std::get_if<std::string*>(&option.target))
      **p = "text \"ü\\" + option.name;
  }
  return options;
}

TEST(OptionsJson, RoundTripKeepsEveryField) {
  const RunOptions options = all_changed();
  RunOptions back;
  apply_json(back, to_json(options));
  EXPECT_EQ(back, options);
  EXPECT_EQ(to_json(back), to_json(options));
}

TEST(OptionsJson, SetsOnlyWhatIsNamedByAnyName) {
  RunOptions options{.seq_len = 77};
  apply_json(options, R"({"batch_size": 3, "num-layers": 2, "lr": 1, "use_amp": true})");
  EXPECT_EQ(
      options,
      (RunOptions{
          .n_layers = 2, .batch_size = 3, .seq_len = 77, .learning_rate = 1, .use_amp = true}));
  apply_json(options, "{}");
  EXPECT_EQ(options.seq_len, 77);
}

TEST(OptionsJson, RefusesOtherTextAndSetsNothing) {
  const std::pair<const char*, const char*> refused[] = {
      {"", "not valid JSON at line 1, column 1"},
      {"{\n  \"seed\": ,}", "not valid JSON at line 2, column 11"},
      {"[]", "no JSON object"},
      {"[[[[[[", "no JSON object"},
      {"null", "no JSON object"},
      {"3", "no JSON object"},
      {R"({"seed": 1} x)", "not valid JSON"},
      {R"({"seed": [1]})", "cannot be a list"},
      {R"({"seed": {"seed": 1}})", "cannot be a list or an object"},
      {R"({"seed": "1"})", "'seed' is not an integer"},
      {R"({"seed": 1.0})", "'seed' is not an integer"},
      {R"({"seed": true})", "'seed' is not an integer"},
      {R"({"seed": null})", "'seed' is not an integer"},
      {R"({"seed": 9223372036854775808})", "63 bits"},
      {R"({"seed": 1e999})", "out of range"},
      {R"({"learning-rate": "fast"})", "'learning-rate' is not a number"},
      {R"({"use-amp": 1})", "'use-amp' is not true or false"},
      {R"({"data": 5})", "'data' is not a string"},
      {R"({"seed": 1, "seed": 2})", "'seed' is given twice"},
      {R"({"n-layers": 1, "num_layers": 2})", "'n-layers' is given twice"},
      {R"({"sede": 1})", "\"sede\"; did you mean 'seed'?"},
      {R"({"qqqqqq": 1})", "no option \"qqqqqq\""},
      {"{\"a\\nb\": 1}", "no option \"a\\nb\""},
      {"{\"data\": \"\xff\"}", "not valid JSON"},
  };
  for (const auto& [text, reason] : refused) {
    RunOptions options{.batch_size = 3};
    EXPECT_THAT(message_of<FormatError>([&] { apply_json(options, text); }), HasSubstr(reason))
        << text;
    EXPECT_EQ(options, RunOptions{.batch_size = 3}) << text;
  }
  RunOptions options;
  EXPECT_THROW(apply_json(options, R"({"batch-size": 4, "seed": "x"})"), FormatError);
  EXPECT_EQ(options, RunOptions{}) << "the good half of a bad text is not taken";
}

TEST(OptionsJson, SaysWhatItSet) {
  RunOptions o;
  EXPECT_EQ(apply_json(o, R"({"lr": 0.5, "batch_size": 3})"),
            (std::vector<std::string>{"batch-size", "learning-rate"}));
  EXPECT_TRUE(apply_json(o, "{}").empty());
}

TEST(RunOptions, CountTheBatchesOfAStep) {
  RunOptions o;
  o.gradient_accumulation_steps = 4;
  EXPECT_EQ(o.batches_per_step(), 4);
  o.mode = "inference";
  EXPECT_EQ(o.batches_per_step(), 1) << "a pass has no gradients to sum";
}

TEST(RunOptions, TakeGpusForRanks) {
  const auto resolved = [](std::int64_t gpus, std::int64_t per_gpu, std::int64_t ranks = 1,
                           const char* device = "auto") {
    RunOptions o;
    o.batch_size = 24, o.gpus = gpus, o.ranks_per_gpu = per_gpu, o.ranks = ranks, o.device = device;
    o.resolve();
    o.resolve();  // as it is by now
    return o;
  };
  EXPECT_EQ(resolved(2, 1).ranks, 2);
  EXPECT_EQ(resolved(2, 1).device, "cuda");
  EXPECT_EQ(resolved(2, 4).ranks, 8);
  EXPECT_EQ(resolved(2, 4, 8).ranks, 8);
  EXPECT_EQ(resolved(0, 4, 3).ranks, 3);
  EXPECT_EQ(resolved(0, 0, 3).device, "auto");
  for (const auto& [gpus, per_gpu, ranks, device] : {std::tuple{2, 1, 3, "auto"},
                                                     {2, 0, 1, "auto"},
                                                     {2, 1, 1, "cpu"},
                                                     {-1, 1, 1, "auto"},
                                                     {2, -1, 1, "auto"}})
    EXPECT_THROW(resolved(gpus, per_gpu, ranks, device), UsageError) << gpus << " " << per_gpu;
}

TEST(RunOptions, OfADeterministicLanguageModelSumPairwise) {
  RunOptions o;
  o.deterministic = true;
  const auto resolved = [&](std::int64_t batch_size, std::int64_t ranks = 1) {
    RunOptions options = o;
    options.batch_size = batch_size, options.ranks = ranks;
    options.resolve();
    return options;
  };
  EXPECT_EQ(resolved(16).micro_batches, 8);
  EXPECT_EQ(resolved(12).micro_batches, 4);
  EXPECT_EQ(resolved(7).micro_batches, 1);
  EXPECT_THROW(resolved(7, 7), UsageError) << "whose bits would depend on the ranks";
  EXPECT_EQ(resolved(16).rank_batch_size(), 2);
  EXPECT_EQ(resolved(16, 4).rank_batch_size(), 2) << "on any number of ranks";
  EXPECT_EQ(resolved(16).batches_per_step(), 8);
  EXPECT_EQ(resolved(16, 4).batches_per_step(), 2);
  EXPECT_EQ(resolved(16, 4).samples_per_step(), 16);
  o.gradient_accumulation_steps = 3;
  EXPECT_EQ(resolved(16, 4).batches_per_step(), 6);
  EXPECT_EQ(resolved(16, 4).samples_per_step(), 48);
  o.mode = "inference";
  EXPECT_EQ(resolved(16).micro_batches, 1);
  RunOptions network = default_options("resnet18");
  network.deterministic = true;
  network.resolve();
  EXPECT_EQ(network.micro_batches, 1) << "of which batch norms would be others";
}

TEST(RunOptions, RefuseMicroBatchesThatRanksCannotShare) {
  RunOptions o;
  o.batch_size = 48, o.deterministic = true;
  const auto refusal = [&](std::int64_t ranks, std::int64_t micro_batches = 0) {
    RunOptions options = o;
    options.ranks = ranks, options.micro_batches = micro_batches;
    return message_of<UsageError>([&] { options.resolve(); });
  };
  EXPECT_EQ(
      refusal(16),
      "8 micro-batches, whose gradients are summed in one order on any number of ranks, do "
      "not divide among 16: use --micro-batches 16, or --micro-batches 1 to sum in any order");
  EXPECT_EQ(refusal(3),
            "8 micro-batches, whose gradients are summed in one order on any number of ranks, do "
            "not divide among 3: use a power of two of --ranks, or --micro-batches 1 to sum in any "
            "order");
  EXPECT_EQ(refusal(1, 6),
            "--micro-batches is 6: their sums are a binary tree; use a power of two");
  EXPECT_EQ(refusal(1, 32),
            "--batch-size 48 does not divide into 32 micro-batches: use a multiple of 32");
  EXPECT_EQ(refusal(3, 1), "nothing was thrown");
}

TEST(RunOptions, InUseAreWithoutWhatTrainingAskedFor) {
  RunOptions o;
  o.version = "v3";
  o.enable_pass = "swiglu";
  o.disable_pass = "fuse-optimizer";
  o.recompute = "block";
  o.channels_last = "on";
  o.weights = "w";
  RunOptions plain = o;
  plain.enable_pass = plain.disable_pass = "";
  plain.recompute = "none";
  plain.channels_last = "auto";
  RunOptions used = plain;
  plain.version = "v1";
  used.mode = "inference";
  EXPECT_EQ(without_schedule(o), plain);
  EXPECT_EQ(options_in_use(o), used) << "under the same version";
  o.mode = "inference";
  EXPECT_EQ(options_in_use(o), o) << "its passes were asked for it";
}

TEST(Workloads, HaveNetworksUnderNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const WorkloadFamily& family : workload_families())
    for (const NetworkName& network : family.networks()) {
      EXPECT_TRUE(names.insert(network.name).second) << network.name;
      for (const std::string_view alias : network.aliases) {
        EXPECT_TRUE(names.insert(alias).second) << alias;
        EXPECT_EQ(network_named(alias), network.name);
      }
      EXPECT_EQ(family_of(network.name).name, family.name);
    }
  RunOptions o = default_options("resnext50");
  o.resolve();
  EXPECT_EQ(o.network, "resnext50_32x4d") << "one name in records and checkpoints";
}

// What records tell of a model are options, and what decides its work is among them.
TEST(Workloads, NameTheOptionsThatDefineThem) {
  for (const WorkloadFamily& family : workload_families()) {
    RunOptions o = default_options(family.networks().front().name);
    o.resolve();
    const WorkloadInfo info = workload_of(o).info;
    std::set<std::string> names;
    for (const OptionInfo& option : options_of(o)) names.insert(option.name);
    for (const auto& list : {info.model_options, info.work_options}) {
      EXPECT_FALSE(list.empty());
      for (const std::string_view name : list)
        EXPECT_TRUE(names.contains(std::string(name))) << name;
    }
    EXPECT_NE(info.sample, "");
    EXPECT_NE(info.description, "");
  }
}

TEST(NearestName, IsTheOneFewestEditsAwayOrBegun) {
  const std::vector<std::string> names{"batch-size", "seq-len", "seed", "n-heads", "num-steps"};
  EXPECT_EQ(nearest_name("batchsize", names), "batch-size");
  EXPECT_EQ(nearest_name("btach-size", names), "batch-size");
  EXPECT_EQ(nearest_name("batch", names), "batch-size");
  EXPECT_EQ(nearest_name("sead", names), "seed");
  EXPECT_EQ(nearest_name("esed", names), "seed") << "a swap is one edit";
  EXPECT_EQ(nearest_name("n-head", names), "n-heads");
  EXPECT_EQ(nearest_name("zzzz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 's'), names), "");
}

}  // namespace
}  // namespace ridge
