#include "ridge/profile/flops_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/session/session.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

// The reference is the graph itself: what each of its nodes costs, as often as it ran.
TEST(FlopsReport, TheRootIsTheSumOfAllNodes) {
  for (const std::int64_t accumulation : {1, 3}) {
    const RealRecording run(accumulation);
    const FlopsReport report = flops_report(run.recording());
    EXPECT_EQ(report.steps, 3);
    const StepCost cost = cost_of_step(run.graph, accumulation);
    EXPECT_GT(cost.backward.flops, cost.forward.flops);
    EXPECT_EQ(report.root().forward().flops, 3 * cost.forward.flops);
    EXPECT_EQ(report.root().backward().flops, 3 * cost.backward.flops);
    EXPECT_EQ(report.root().optimizer().flops, 3 * cost.optimizer.flops);
    EXPECT_EQ(report.root().all().flops, 3 * cost.total().flops);
    EXPECT_EQ(report.root().parameters, tiny_llama.parameter_count());
  }
}

TEST(FlopsReport, EveryModuleIsItselfAndItsSubmodules) {
  const RealRecording run;
  const FlopsReport report = flops_report(run.recording());
  const auto& modules = report.tree.modules;
  for (std::size_t m = 0; m < modules.size(); ++m) {
    ModuleWork sum = report.self[m];
    for (std::size_t child = 1; child < modules.size(); ++child)
      if (modules[child].parent == m) sum += report.total[child];
    EXPECT_EQ(sum.parameters, report.total[m].parameters) << modules[m].path;
    EXPECT_EQ(sum.all().flops, report.total[m].all().flops) << modules[m].path;
    EXPECT_EQ(sum.all().macs, report.total[m].all().macs) << modules[m].path;
    EXPECT_EQ(sum.all().ns, report.total[m].all().ns) << modules[m].path;
  }
}

TEST(FlopsReport, CountsPackedParametersOnce) {
  RealRecording run;
  const Value q = run.graph.find("layers.0.attention.q_proj.weight");
  run.graph.pack(std::array{q, run.graph.find("layers.0.attention.k_proj.weight")}, "qk");
  const FlopsReport report = flops_report(run.recording());
  EXPECT_EQ(report.root().parameters, tiny_llama.parameter_count());
}

TEST(FlopsReport, CountsAProjectionByHand) {
  const RealRecording run;
  const FlopsReport report = flops_report(run.recording(), 6);
  EXPECT_EQ(report.steps, 1);
  EXPECT_EQ(report.first_step, 6);
  const auto module =
      std::ranges::find(report.tree.modules, "layers.1.feed_forward.up_proj", &Module::path);
  ASSERT_NE(module, report.tree.modules.end());
  const ModuleWork& w =
      report.total[static_cast<std::size_t>(module - report.tree.modules.begin())];
  // 24 tokens through a weight of 40 x 24; backward makes the gradients of both operands, and adds
  // what arrives at the input from the gate as well.
  EXPECT_EQ(w.parameters, 40 * 24);
  EXPECT_EQ(w.forward().macs, 24 * 40 * 24);
  EXPECT_EQ(w.forward().flops, 2 * 24 * 40 * 24);
  EXPECT_EQ(w.backward().macs, 2 * 24 * 40 * 24);
  EXPECT_GT(w.forward().ns, 0);
  EXPECT_GT(w.backward().ns, 0);
  EXPECT_EQ(w.optimizer().flops, 0);
}

TEST(FlopsReport, SaysWhichStepsWereRecorded) {
  const RealRecording run;
  try {
    flops_report(run.recording(), 12);
    FAIL() << "step 12 was not recorded";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "step 12 was not recorded; steps 5 to 7 were");
  }
}

TEST(FlopsReport, PrintsDeepSpeedsSections) {
  const RealRecording run;
  const std::string text =
      flops_report_text(flops_report(run.recording(), 6), {.model = "tiny", .samples_per_step = 2});
  for (const char* part :
       {"- Ridge FLOPs Profiler -", "Profile Summary at step 6:\n",
        "\nworld size:  ", "\nbatch size (samples a step):                                  2\n",
        "\nparams:  ", "\nfwd MACs:  ", "\nfwd flops:  ", "\nbwd flops (counted):  ",
        "\nfwd latency:  ", "\nbwd latency:  ", "\nstep latency:  ", "\niter latency:  ",
        "\nsamples/second:  ", "\ndepth 0:\n    params      - {'tiny': '",
        "'layers.*.attention': '", "\n  (layers)  "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string flat = flops_report_text(flops_report(run.recording()), {.max_depth = 1});
  EXPECT_EQ(flat.find("(attention)"), std::string::npos);
  EXPECT_NE(flat.find("at steps 5 to 7 (means of a step)"), std::string::npos);
}

// A model of one module, over two steps: of one, 8 GFLOP forward in 2 ms, 18 backward in 3 ms and 2
// for the weights in 1 ms, of which kernels take 1, 2 and 0.5 ms; the whole step takes 10 ms.
FlopsReport made() {
  constexpr std::int64_t giga = 1'000'000'000, ms = 1'000'000;
  ModuleWork work{.parameters = 1'500'000};
  work.phases[0] = {.macs = 2 * 4 * giga, .flops = 2 * 8 * giga, .bytes = 1, .ns = 2 * 1 * ms};
  work.phases[1] = {.macs = 2 * 9 * giga, .flops = 2 * 18 * giga, .bytes = 1, .ns = 2 * 2 * ms};
  work.phases[2] = {.flops = 2 * 2 * giga, .bytes = 1, .ns = ms};
  FlopsReport report{.self = {work}, .total = {work}, .steps = 2, .first_step = 3, .last_step = 4};
  report.tree.modules.resize(1);
  report.phase_ns[0] = 2 * 2 * ms, report.phase_ns[1] = 2 * 3 * ms, report.phase_ns[2] = 2 * 1 * ms;
  report.step_ns = 2 * 10 * ms;
  return report;
}

// The figure behind a label of the summary.
std::string figure(const std::string& text, const std::string& label) {
  const std::size_t at = text.find("\n" + label + ":");
  if (at == std::string::npos) return "no such line";
  const std::size_t begin = text.find_first_not_of(' ', at + label.size() + 2);
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(FlopsReport, SummarizesOneStep) {
  const std::string text = flops_report_text(made(), {.samples_per_step = 5});
  for (const auto& [label, value] :
       {std::pair{"params", "1.50 M"},
        {"fwd MACs", "4.00 GMACs"},
        {"fwd flops", "8.00 G"},
        {"bwd flops (counted)", "18.00 G"},
        {"step flops", "2.00 G"},
        {"fwd+bwd+step flops", "28.00 G"},
        {"bwd flops / fwd flops", "2.250"},
        {"fwd latency", "2.00 ms"},
        {"bwd latency", "3.00 ms"},
        {"step latency", "1.00 ms"},
        {"iter latency", "10.00 ms"},
        {"fwd FLOPS = fwd flops / fwd latency", "4.00 TFLOPS"},
        {"bwd FLOPS = bwd flops / bwd latency", "6.00 TFLOPS"},
        {"fwd+bwd FLOPS = fwd+bwd flops / (fwd+bwd latency)", "5.20 TFLOPS"},
        {"FLOPS = fwd+bwd+step flops / iter latency", "2.80 TFLOPS"},
        {"samples/second", "500.00"}})
    EXPECT_EQ(figure(text, label), value) << label;
}

TEST(FlopsReport, SummarizesInferenceByItsForwardPassAlone) {
  FlopsReport report = made();
  report.total[0].phases[1] = report.total[0].phases[2] = {};
  const std::string text = flops_report_text(report);
  EXPECT_EQ(figure(text, "fwd FLOPS = fwd flops / fwd latency"), "4.00 TFLOPS");
  EXPECT_EQ(figure(text, "FLOPS = fwd flops / iter latency"), "800.00 GFLOPS");
  for (const char* absent : {"bwd", "step flops", "step latency"})
    EXPECT_EQ(text.find(std::string("\n") + absent), std::string::npos) << absent;
}

TEST(FlopsReport, WritesModulesOfOneStepAsJson) {
  const RealRecording run(2);
  const auto json = nlohmann::json::parse(modules_json(flops_report(run.recording())));
  const StepCost cost = cost_of_step(run.graph, 2);
  const auto& root = json["modules"][0];
  EXPECT_TRUE(root["parent"].is_null());
  EXPECT_EQ(root["total"]["all"]["flops"], cost.total().flops);
  EXPECT_EQ(root["total"]["backward"]["flops"], cost.backward.flops);
  std::int64_t sum = 0;
  for (const auto& module : json["modules"])
    sum += module["self"]["all"]["flops"].get<std::int64_t>();
  EXPECT_EQ(sum, cost.total().flops);
}

}  // namespace
}  // namespace ridge
