#include "ridge/analyze/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "ridge/base/error.h"
#include "ridge/base/thread_pool.h"
#include "ridge/cpu/device.h"
#include "ridge/exercise/devices.h"
#include "ridge/ops/op.h"
#include "ridge/session/language.h"
#include "tests/base/temporary_cache.h"
#include "tests/cli/program.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

// A device that refuses to hand out memory.
class EmptyDevice final : public WrappedDevice {
 public:
  explicit EmptyDevice(Device& prepares)
      : WrappedDevice(prepares, {.name = "empty", .description = "a device without memory"}) {}
  void* allocate(std::size_t bytes) override {
    ADD_FAILURE() << "planning allocated " << bytes << " bytes";
    return nullptr;
  }
  void deallocate(void*, std::size_t) override {}
  std::size_t available_memory() const override { return 0; }
};

RunOptions resolved(RunOptions o) {
  o.resolve();
  return o;
}

RunOptions small_plan_options() {
  return resolved(small_llama({.vocab_size = 40, .batch_size = 2, .seq_len = 16}));
}

// Sizes that have nothing in common, but go together.
RunOptions random_options(std::mt19937& random) {
  const auto from_to = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  RunOptions o;
  o.n_kv_heads = from_to(1, 4);
  o.n_heads = o.n_kv_heads * from_to(1, 3);
  o.hidden_dim = o.n_heads * 2 * from_to(1, 10);
  o.n_layers = from_to(1, 3);
  o.intermediate_dim = from_to(1, 150);
  o.vocab_size = from_to(2, 700);
  o.batch_size = from_to(1, 5);
  o.seq_len = from_to(1, 70);
  o.dtype = from_to(0, 1) ? "bf16" : "fp32";
  o.gradient_accumulation_steps = from_to(1, 3);
  o.tie_embeddings = from_to(0, 1) == 1;
  o.max_grad_norm = from_to(0, 1) ? 1.0 : 0.0;
  o.version = schedules()[static_cast<std::size_t>(from_to(0, 3))].name;
  o.recompute = name_of({static_cast<Recompute::Part>(from_to(0, 2))});
  std::vector<std::string_view> names;
  for (const Pass& pass : passes())
    if (pass.chosen_by == ChosenBy::schedule && pass.use != Use::inference)
      names.push_back(pass.name);
  const auto pass = from_to(0, static_cast<std::int64_t>(names.size()) - 1);
  (from_to(0, 1) ? o.enable_pass : o.disable_pass) = names[static_cast<std::size_t>(pass)];
  return resolved(o);
}

TEST(Plan, PredictsThePeakThatARunMeasures) {
  const TemporaryCache cache;
  std::mt19937 random(20);
  CpuDevice device(2);
  std::set<std::string> where, schedules;
  for (int i = 0; i < 60; ++i) {
    const RunOptions options = random_options(random);
    schedules.insert(options.version + options.recompute);
    const StepPlan plan = plan_step(options, device);
    Session session(options, device);
    std::size_t measured = 0;
    for (int step = 0; step < 2; ++step) {
      session.executor().reset_peak_memory();
      session.step();
      EXPECT_EQ(session.executor().memory().peak_live, plan.memory.peak_bytes)
          << "step " << step + 1 << " of " << to_json(options);
      measured = std::max(measured, session.executor().memory().peak_live);
      session.evaluate(1);
      measured = std::max(measured, session.executor().memory().peak_live);
    }
    EXPECT_EQ(measured, plan.memory.peak_bytes) << to_json(options);
    EXPECT_EQ(plan.memory.at_peak.total(), plan.memory.peak_bytes);
    ASSERT_TRUE(plan.where);
    where.insert(plan.where->phase + " " + plan.where->op);
  }
  EXPECT_GT(where.size(), 2u) << "the configurations are too much alike";
  EXPECT_EQ(schedules.size(), 12u) << "a version never met a recomputation";
}

// Of networks too, under every compile mode, whose weights may be packed, folded and frozen.
TEST(Plan, PredictsThePeakOfNetworks) {
  const TemporaryCache cache;
  CpuDevice device(2);
  for (const char* network : {"resnet18", "mobilenet_v2", "swin_t"})
    for (const Use use : {Use::inference, Use::training})
      for (const char* dtype : {"fp32", "bf16"})
        for (const std::string& row :
             distinct_rows(network_options(network, use, "v1", dtype), device)) {
          if (row == "v2") continue;  // v3 has its passes
          const RunOptions options = network_options(network, use, row, dtype);
          SCOPED_TRACE(fmt::format("{} {} {} {}", network, name_of(use), row, dtype));
          Session session(options, device);
          const StepPlan plan = plan_step(options, device);
          session.step();
          session.executor().reset_peak_memory();
          session.step();
          EXPECT_EQ(session.executor().memory().peak_live, plan.memory.peak_bytes);
          EXPECT_EQ(plan.memory.at_peak.total(), plan.memory.peak_bytes);
          EXPECT_EQ(plan.parameter_count, session.parameters());
        }
}

// The observer of a run that remembers what ran when most was alive.
class PeakObserver final : public Observer {
 public:
  void on_allocate(const Graph&, ValueId, const void*, std::size_t, const MemoryStats& s) override {
    note(s);
  }
  void on_workspace(const Graph&, NodeId, const void*, std::size_t, const MemoryStats& s) override {
    note(s);
  }
  void on_node(const Graph&, NodeId node, Clock::time_point, Clock::time_point) override {
    if (rose_) peak_node = node;
    rose_ = false;
  }
  NodeId peak_node = no_node;
  std::size_t peak = 0;

 private:
  void note(const MemoryStats& stats) {
    if (stats.live > peak) peak = stats.live, rose_ = true;
  }
  bool rose_ = false;
};

TEST(Plan, NamesTheOperatorAtThePeak) {
  const TemporaryCache cache;
  std::mt19937 random(7);
  CpuDevice device(1);
  for (int i = 0; i < 5; ++i) {
    const RunOptions options = random_options(random);
    const StepPlan plan = plan_step(options, device);
    Session session(options, device);
    PeakObserver observer;
    session.executor().observe(observer);
    session.step();
    EXPECT_EQ(observer.peak, plan.memory.peak_bytes);
    EXPECT_EQ(observer.peak_node, plan.memory.peak_node);
  }
}

TEST(Plan, CountsWhatTrainingKeeps) {
  RunOptions options = small_plan_options();
  CpuDevice device(1);
  const auto bytes = 4 * static_cast<std::size_t>(llama_config(options).parameter_count());
  const StepPlan plan = plan_step(options, device);
  // Every parameter of this model fills its allocation, so that there is no rounding.
  EXPECT_EQ(plan.memory.at_peak.parameters, bytes);
  EXPECT_EQ(plan.memory.at_peak.optimizer_state, 2 * bytes);
  EXPECT_EQ(plan.memory.at_most.gradients, bytes);
  EXPECT_EQ(plan.parameter_count, llama_config(options).parameter_count());

  options.gradient_accumulation_steps = 3;
  const StepPlan accumulated = plan_step(options, device);
  EXPECT_EQ(accumulated.cost.forward.flops, 3 * plan.cost.forward.flops);
  EXPECT_GE(accumulated.memory.at_peak.gradients, bytes);  // the accumulators are always there
}

TEST(Plan, CostsWhatTheTrainerSays) {
  const TemporaryCache cache;
  std::mt19937 random(3);
  CpuDevice device(1);
  for (int i = 0; i < 5; ++i) {
    const RunOptions options = random_options(random);
    Session session(options, device);
    const StepCost cost = cost_of_step(session.graph(), options.gradient_accumulation_steps);
    const StepPlan plan = plan_step(options, device);
    EXPECT_EQ(plan.cost.forward, cost.forward);
    EXPECT_EQ(plan.cost.backward, cost.backward);
    EXPECT_EQ(plan.cost.optimizer, cost.optimizer);
  }
}

constexpr LlamaSizes huge{.vocab_size = 1 << 20,
                          .hidden_dim = 65536,
                          .n_layers = 200,
                          .n_heads = 64,
                          .batch_size = 1,
                          .seq_len = 1 << 16};

TEST(Plan, TakesNoMemoryWhateverTheSize) {
  RunOptions o = small_llama(huge);
  o.max_grad_norm = 1;
  CpuDevice cpu(1);
  EmptyDevice device(cpu);
  const StepPlan plan = plan_step(resolved(o), device);
  EXPECT_GT(plan.memory.peak_bytes, std::size_t{100} << 40);
  EXPECT_GT(plan.cost.total().flops, std::int64_t{1} << 60);
}

TEST(Plan, RefusesWorkThatCannotBeCounted) {
  RunOptions o = small_llama(huge);
  o.hidden_dim = 131072, o.n_layers = 100;
  o.batch_size = 4096, o.seq_len = 512;
  CpuDevice cpu(1);
  EmptyDevice device(cpu);
  EXPECT_THROW(plan_step(resolved(o), device), UsageError);
}

TEST(Plan, TakesTheLongestOfComputingMovingAndStarting) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {1000, 1000}});
  const Value w = graph.parameter("w", {1000, 1000}, Init::normal(1));
  project(x, w);  // 2 GFLOP, 12 MB
  project(cast(x, DType::bf16), cast(w, DType::bf16));
  scale(x, 2.0f);  // 8 MB
  scale(graph.input("y", {DType::f32, {4}}), 2.0f);
  const Roof roof{.peaks = {{ProductKind::f32, 1e12}, {ProductKind::bf16, 4e12}},
                  .levels = {{"cache", 9'000'000, 1e12}, {"memory", 0, 1e9}}};
  const auto seconds = [&](NodeId n) {
    return least_time(graph, graph.nodes()[n], roof, false).total();
  };
  EXPECT_DOUBLE_EQ(seconds(0), 12e-3);  // moving, from memory
  EXPECT_DOUBLE_EQ(seconds(1), 6e6 / 1e12);
  EXPECT_DOUBLE_EQ(seconds(3), 2e9 / 4e12);  // computing, in bf16
  EXPECT_DOUBLE_EQ(seconds(4), 8e6 / 1e12);  // moving, from the cache
  EXPECT_DOUBLE_EQ(seconds(5), 5e-6);        // starting

  RunOptions options = small_plan_options();
  CpuDevice device(1);
  const StepPlan plan = plan_step(options, device, &roof);
  ASSERT_TRUE(plan.at_best);
  EXPECT_GE(plan.at_best->total(), static_cast<double>(plan.launches) * 4.999999e-6);
  options.gradient_accumulation_steps = 2;
  EXPECT_GT(plan_step(options, device, &roof).at_best->total(), 1.3 * plan.at_best->total());
  EXPECT_FALSE(plan_step(options, device).at_best);
}

// Sums over ranks are done after kernels on a CPU.
TEST(Plan, AddsWhatRanksSendUnderTheMeasuredLink) {
  Roof roof{.peaks = {{ProductKind::f32, 1e12}}, .levels = {{"memory", 0, 1e9}}};
  RunOptions options = small_plan_options();
  CpuDevice device(1);
  const auto planned = [&](std::int64_t ranks) {
    options.ranks = ranks;
    return plan_step(resolved(options), device, &roof);
  };
  EXPECT_FALSE(planned(2).sending_seconds) << "nothing was measured";
  EXPECT_EQ(planned(2).at_best->sending, 0);
  roof.links = {{.ranks = 2, .bytes_per_second = 2e6, .message_seconds = 0}};
  const StepPlan two = planned(2);
  EXPECT_GT(two.sent_bytes, 10'000);
  EXPECT_DOUBLE_EQ(two.sending_seconds.value(), static_cast<double>(two.sent_bytes) / 2e6);
  EXPECT_DOUBLE_EQ(two.at_best->sending, *two.sending_seconds);
  EXPECT_FALSE(planned(1).sending_seconds);
  roof.links[0].message_seconds = 1;
  const double messages = *planned(2).sending_seconds - *two.sending_seconds;
  EXPECT_GE(messages, 1 - 1e-9);
  EXPECT_NEAR(messages, std::round(messages), 1e-6) << "a second for each message";
}

// A captured step of a GPU sends beside its kernels: only what takes longer than they is added.
TEST(Plan, HidesWhatACapturedStepSendsBehindItsKernels) {
  class Gpu final : public WrappedDevice {
   public:
    explicit Gpu(Device& device)
        : WrappedDevice(device, {.name = "cuda", .target = {.kind = DeviceKind::gpu}}) {}
  };
  CpuDevice cpu(1);
  Gpu device(cpu);
  Roof roof{.device = "cuda",
            .kind = DeviceKind::gpu,
            .peaks = {{ProductKind::f32, 1e12}},
            .levels = {{"memory", 0, 1e9}},
            .links = {{.ranks = 2, .bytes_per_second = 1e12, .message_seconds = 1e-9}}};
  RunOptions options = small_plan_options();
  options.version = "v4";
  options.ranks = 2;
  const StepPlan fast = plan_step(resolved(options), device, &roof);
  EXPECT_GT(fast.sending_seconds.value(), 0);
  EXPECT_EQ(fast.at_best->sending, 0);
  roof.links[0].bytes_per_second = 1e3;
  const StepPlan slow = plan_step(resolved(options), device, &roof);
  EXPECT_NEAR(slow.at_best->total(), *slow.sending_seconds, 1e-9 * *slow.sending_seconds);
  EXPECT_GT(slow.at_best->sending, 0.9 * *slow.sending_seconds);
}

TEST(Plan, OfACapturedStepAddsAKernelsStartToEach) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {1000, 1000}});
  project(x, graph.parameter("w", {1000, 1000}, Init::normal(1)));  // 2 GFLOP, 12 MB
  scale(graph.input("y", {DType::f32, {4}}), 2.0f);                 // 32 bytes
  Roof roof{
      .device = "cuda",
      .kind = DeviceKind::gpu,
      .peaks = {{ProductKind::f32, 1e12}, {ProductKind::bf16x6, 2e12}, {ProductKind::tf32, 8e12}},
      .levels = {{"memory", 0, 1e12}},
      .launch_seconds = 3e-6,
      .captured_seconds = 1e-6};
  const auto time = [&](NodeId n, bool captured) {
    return least_time(graph, graph.nodes()[n], roof, captured);
  };
  EXPECT_DOUBLE_EQ(time(0, true).computing, 2e-3);
  EXPECT_EQ(time(0, true).moving, 0);
  EXPECT_DOUBLE_EQ(time(0, true).starting, 1e-6);
  EXPECT_DOUBLE_EQ(time(0, false).total(), 2e-3 + 1e-6) << "launched meanwhile";
  EXPECT_DOUBLE_EQ(time(1, true).total(), 1e-6 + 32e-12);
  EXPECT_DOUBLE_EQ(time(1, false).total(), 3e-6);
  roof.split_bf16 = true;
  EXPECT_DOUBLE_EQ(time(0, true).computing, 2e9 / 2e12);
  roof.tf32 = true;
  EXPECT_DOUBLE_EQ(time(0, true).computing, 2e9 / 8e12);
  EXPECT_DOUBLE_EQ(time(1, true).moving, 32e-12);
}

TEST(LargestBatch, IsTheLastThatFits) {
  CpuDevice device(1);
  RunOptions options = small_plan_options();
  std::vector<std::size_t> peaks{0};
  for (options.batch_size = 1; options.batch_size <= 70; ++options.batch_size) {
    peaks.push_back(plan_step(options, device).memory.peak_bytes);
    EXPECT_GT(peaks.back(), peaks[peaks.size() - 2]) << "at " << options.batch_size;
  }
  for (const std::size_t batch : {1u, 2u, 3u, 31u, 32u, 33u, 69u})
    for (const std::size_t budget : {peaks[batch], peaks[batch + 1] - 1}) {
      const SizeLimit limit = largest_batch(options, device, budget);
      EXPECT_EQ(limit.size, static_cast<std::int64_t>(batch));
      EXPECT_EQ(limit.peak_bytes, peaks[batch]);
      EXPECT_EQ(limit.next_peak_bytes, peaks[batch + 1]);
    }
  try {
    largest_batch(options, device, peaks[1] - 1);
    FAIL() << "one sequence was said to fit";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("not even a batch of 1"));
  }
}

// What is advised has to be accepted: ranks and micro-batches share a batch out evenly.
TEST(LargestBatch, DividesAmongRanksAndMicroBatches) {
  CpuDevice device(1);
  const auto limit_of = [&](RunOptions options, std::size_t budget) {
    options.resolve();
    const SizeLimit limit = largest_batch(options, device, budget);
    options.batch_size = limit.size;
    EXPECT_EQ(bytes_needed(options, device), limit.peak_bytes);
    options.batch_size += limit.unit;
    EXPECT_EQ(bytes_needed(options, device), limit.next_peak_bytes);
    return limit;
  };
  const std::size_t budget = std::size_t{64} << 20;
  RunOptions ranks = small_plan_options();
  ranks.ranks = 3, ranks.batch_size = 6;
  EXPECT_EQ(limit_of(ranks, budget).size % 3, 0);
  RunOptions parts = small_plan_options();
  parts.batch_size = 12, parts.micro_batches = 4;
  EXPECT_EQ(limit_of(parts, budget).least, 4);
  RunOptions deterministic = small_plan_options();
  deterministic.deterministic = true, deterministic.batch_size = 800;
  const SizeLimit eighths = limit_of(deterministic, budget);
  EXPECT_EQ(eighths.unit, 8);
  EXPECT_GT(eighths.size, 8);
  // Sums over the tree of eight do not fit any more, one sequence alone does.
  deterministic.batch_size = 1;
  deterministic.resolve();
  const std::size_t alone = bytes_needed(deterministic, device).value();
  deterministic.batch_size = 8;
  ASSERT_GT(bytes_needed(deterministic, device).value(), alone);
  deterministic.resolve();
  EXPECT_LT(largest_batch(deterministic, device, alone).unit, 8);
  try {
    largest_batch(deterministic, device, alone - 1);
    FAIL() << "one sequence was said to fit";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("not even a batch of 1"));
  }
}

TEST(LargestBatch, EndsWhereBatchesAreRefused) {
  CpuDevice cpu(1);
  EmptyDevice device(cpu);
  const SizeLimit limit = largest_batch(small_plan_options(), device, std::size_t{1} << 62);
  EXPECT_EQ(limit.size, 1 << 20);
  EXPECT_FALSE(limit.next_peak_bytes);
}

TEST(LeastRecompute, IsTheFirstThatFits) {
  CpuDevice device(1);
  RunOptions options = small_plan_options();
  options.n_layers = 3;
  options.seq_len = 64;
  const std::array choices{"none",    "attention:1", "attention:2", "attention:3",
                           "block:1", "block:2",     "block:3"};
  std::vector<std::size_t> peaks;
  for (const char* choice : choices) {
    options.recompute = choice;
    peaks.push_back(plan_step(options, device).memory.peak_bytes);
  }
  options.recompute = "block";  // what is asked for otherwise does not matter
  for (const std::size_t budget : peaks) {
    const auto first = static_cast<std::size_t>(
        std::ranges::find_if(peaks, [&](std::size_t peak) { return peak <= budget; }) -
        peaks.begin());
    const LeastRecompute least = least_recompute(options, device, budget);
    EXPECT_EQ(least.recompute, choices[first]);
    EXPECT_EQ(least.peak_bytes, peaks[first]);
  }
  EXPECT_LT(peaks[1], peaks[0]);
  EXPECT_LT(std::ranges::min(peaks), peaks[3]) << "whole blocks are of use";
  EXPECT_THROW(least_recompute(options, device, std::ranges::min(peaks) - 1), OutOfMemoryError);
}

TEST(ParseBytes, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("16GB"), 16'000'000'000u);
  EXPECT_EQ(parse_bytes("16GiB"), std::size_t{16} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536u);
  EXPECT_EQ(parse_bytes("20MB"), 20'000'000u);
  EXPECT_EQ(parse_bytes("3MiB"), std::size_t{3} << 20);
  EXPECT_EQ(parse_bytes("7KB"), 7000u);
  EXPECT_EQ(parse_bytes("123"), 123u);
  for (const char* bad :
       {"", "GB", "16XB", "16 G B", "-1GB", "0", "nanGB", "infGB", "1e30GB", "0.1B", "16GBs"})
    EXPECT_THROW(parse_bytes(bad), UsageError) << bad;
}

nlohmann::json json_from(const Sandbox& sandbox, const Words& command) {
  const ProgramResult result = sandbox.run(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return nlohmann::json::parse(result.out);
}

TEST(PlanCommand, SaysWhatTheRunWillReport) {
  const Sandbox sandbox;
  const Words flags{"--hidden-dim",
                    "32",
                    "--n-layers",
                    "2",
                    "--n-heads",
                    "4",
                    "--batch-size",
                    "3",
                    "--seq-len",
                    "24",
                    "--num-steps",
                    "3",
                    "--use-amp",
                    "--max-grad-norm",
                    "1",
                    "--eval-every",
                    "1",
                    "--grad-accum",
                    "2",
                    "--vocab-size",
                    "100",
                    "--threads",
                    "2"};
  Words plan{"ridge", "plan", "--json", "--max-batch-for", "100MB"}, train{"ridge", "train"};
  plan.insert(plan.end(), flags.begin(), flags.end());
  train.insert(train.end(), flags.begin(), flags.end());
  const nlohmann::json planned = json_from(sandbox, plan);
  ASSERT_FALSE(sandbox.has("output")) << "planning wrote files";
  ASSERT_EQ(sandbox.run(train).exit_code, 0);
  const auto summary = nlohmann::json::parse(sandbox.read("output/performance_summary.json"));
  std::vector<nlohmann::json> found;
  const std::function<void(const nlohmann::json&)> look = [&](const nlohmann::json& json) {
    for (const auto& [key, value] : json.items()) {
      if (key == "peak_memory_bytes") found.push_back(value);
      if (value.is_object()) look(value);
    }
  };
  look(summary);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(planned["peak_bytes"], found[0]);
  EXPECT_GT(planned["max_batch"]["batch_size"], 3);
  EXPECT_LE(planned["max_batch"]["peak_bytes"], 100'000'000);
  EXPECT_GT(planned["max_batch"]["next_peak_bytes"], 100'000'000);
}

TEST(PlanCommand, PrintsATableAndRefusesNonsense) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run({"ridge", "plan", "--max-batch-for", "1GiB"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2,873,600 numbers"));
  EXPECT_THAT(result.out, HasSubstr("The peak is in the "));
  EXPECT_THAT(result.out, HasSubstr("Largest batch for 1GiB: "));
  EXPECT_EQ(sandbox.run({"ridge", "plan", "--max-batch-for", "16 XB"}).exit_code, 2);
  EXPECT_EQ(sandbox.run({"ridge", "plan", "--hidden-dim", "31"}).exit_code, 2);
  EXPECT_EQ(sandbox.run({"ridge", "plan", "--max-batch-for", "1KB"}).exit_code, 1);
  EXPECT_THAT(sandbox.run({"ridge", "plan", "--recompute-for", "1GiB"}).out,
              HasSubstr("Least recomputation for 1GiB: --recompute none"));
  EXPECT_EQ(sandbox.run({"ridge", "plan", "--recompute-for", "some"}).exit_code, 2);
  EXPECT_EQ(sandbox.run({"ridge", "plan", "--recompute-for", "1KB"}).exit_code, 1);
}

TEST(PlanCommand, SaysWhatRanksSendAndHowLongThatTakes) {
  const Sandbox sandbox;
  const auto out_of = [&](Words line) {
    line.insert(line.end(), {"--machine-file", "machine.json"});
    const ProgramResult result = sandbox.run(line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const Words plan{"ridge", "plan", "--ranks", "2"};
  out_of({"ridge", "roofline", "--device", "cpu", "--seconds", "0.1"});
  EXPECT_THAT(out_of(plan),
              HasSubstr("receives as much; ridge roofline --ranks 2 measures how long that takes"));
  EXPECT_THAT(out_of({"ridge", "roofline", "--device", "cpu", "--seconds", "0.1", "--ranks", "2"}),
              HasSubstr("2 ranks, each sends"));
  EXPECT_THAT(out_of(plan), HasSubstr("and receives as much, in "));
  EXPECT_THAT(out_of(plan), HasSubstr(" sending; ceilings: machine.json"));
  EXPECT_THAT(out_of(plan), HasSubstr(available_processors() > 3 ? " threads" : ", 1 thread\n"));
  const auto json = nlohmann::json::parse(out_of({"ridge", "plan", "--ranks", "2", "--json"}));
  EXPECT_GT(json.at("sending_seconds"), 0);
  EXPECT_EQ(json.at("sending_seconds"), json.at("predicted_seconds").at("sending"));
}

// The workshop's model with a batch of 8 sequences of 128, counted by hand in its exercise 2.
TEST(Plan, SaysWhatAttentionAndFeedForwardTake) {
  CpuDevice device(1);
  const StepPlan plan = plan_step(resolved({}), device);
  constexpr std::int64_t layers = 4, attention_macs = 268'435'456, feed_forward_macs = 402'653'184;
  // Two FLOPs each, of the forward pass and twice that of the backward one; the rest is small.
  const auto expect_flops = [](std::int64_t flops, std::int64_t macs) {
    EXPECT_GT(flops, 6 * layers * macs);
    EXPECT_LT(static_cast<double>(flops), 1.03 * static_cast<double>(6 * layers * macs));
  };
  expect_flops(plan.attention.flops, attention_macs);
  expect_flops(plan.feed_forward.flops, feed_forward_macs);
  EXPECT_LT(plan.attention.flops + plan.feed_forward.flops, plan.cost.total().flops);
  // Kept for the backward pass by each layer: the weights of its scores, and some five tensors of
  // the size of its input.
  constexpr std::size_t scores = 8 * 8 * 128 * 128 * 4, tensor = 8 * 128 * 256 * 4;
  EXPECT_GE(plan.attention.bytes_at_peak, layers * scores);
  EXPECT_LE(plan.attention.bytes_at_peak, layers * (scores + 5 * tensor));
  EXPECT_LE(plan.attention.bytes_at_peak + plan.feed_forward.bytes_at_peak,
            plan.memory.at_peak.intermediates + plan.memory.at_peak.workspace);
  // Without ceilings there is no rate to hold it against.
  EXPECT_EQ(plan.seconds_at_peak_rate, 0);
}

}  // namespace
}  // namespace ridge
