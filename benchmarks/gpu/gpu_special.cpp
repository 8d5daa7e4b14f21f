// What the kernels for a special shape are worth: the layers of real networks that they take, timed
// with the special kernel and with the fastest of those that would run if it did not exist. Both
// take turns in one process, each inside a captured graph, on operands out of the cache; a round's
// times are summed over all layers of a network, and ratios are of sums of the same round. And what
// passes are worth that join operators for such kernels: networks in turns with and without them.
//
//   gpu_special [--json FILE] [--rounds N] [only rows that contain one of these texts ...]
//
// --json writes a results file for benchmarks/results_page.py.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/exit_status.h"
#include "benchmarks/gpu/results_json.h"
#include "ridge/analyze/interleaved.h"
#include "ridge/analyze/operator_timing.h"
#include "ridge/base/units.h"
#include "ridge/gpu/device.h"
#include "ridge/run/autotuner.h"
#include "ridge/run/execution.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

// A network, or the LLaMA of a size, as it runs.
struct Run {
  std::string name;  // "resnet50, 32 images, fp16"
  RunOptions options;
};

Run vision(std::string_view network, std::int64_t batch) {
  RunOptions o = default_options(network);
  o.mode = "inference";
  o.dtype = "fp16";
  o.version = "max-autotune";
  o.batch_size = batch;
  o.device = "cuda";
  o.resolve();
  return {fmt::format("{}, {} image{}", network, batch, batch == 1 ? "" : "s"), o};
}

std::vector<Run> visions(std::initializer_list<std::string_view> networks) {
  std::vector<Run> runs;
  for (const std::string_view network : networks)
    for (const std::int64_t batch : {1, 32, 256}) runs.push_back(vision(network, batch));
  return runs;
}

struct Size {
  const char* name;
  std::int64_t batch, seq, hidden, intermediate, heads, kv_heads, layers, vocabulary = 1000;
};
constexpr Size tiny{"tiny", 8, 128, 256, 512, 8, 4, 4},
    readme{"readme", 8, 128, 512, 2048, 8, 4, 8}, medium{"medium", 16, 512, 1024, 4096, 16, 8, 12},
    large{"large", 8, 1024, 2048, 8192, 16, 8, 16};
// Whose parameters need more memory than their activations.
constexpr Size many_parameters{"256 tokens, 1,024 x 12", 2, 128, 1024, 4096, 16, 8, 12},
    wide_and_short{"1,024 tokens, 4,096 x 4", 4, 256, 4096, 11008, 32, 8, 4, 32000};
// Whose rows of logits, or of the feed-forward, begin at no multiples of 16 bytes.
constexpr Size few_tokens{"584 tokens, 50,257 classes", 8, 73, 1000, 4480, 25, 25, 9, 50257},
    narrow{"3,274 tokens, 50,257 classes", 2, 1637, 320, 1344, 5, 5, 4, 50257},
    many_tokens{"32,700 tokens, 59,226 classes", 5, 6540, 672, 2048, 21, 3, 4, 59226},
    odd_inner{"inner width 4,437", 3, 512, 1088, 4437, 17, 17, 3, 50304},
    odd_inner_and_logits{"inner width 1,487, 50,257 classes", 3, 373, 640, 1487, 4, 4, 24, 50257};

Run llama(const Size& s, std::string_view dtype) {
  RunOptions o;
  o.batch_size = s.batch;
  o.seq_len = s.seq;
  o.hidden_dim = s.hidden;
  o.intermediate_dim = s.intermediate;
  o.n_heads = s.heads;
  o.n_kv_heads = s.kv_heads;
  o.n_layers = s.layers;
  o.vocab_size = s.vocabulary;
  o.dtype = dtype;
  o.version = "v4";
  o.device = "cuda";
  o.resolve();
  return {fmt::format("{} LLaMA, {}", s.name, dtype), o};
}

// A kernel for a special shape: candidates whose name begins so, for operators of one name. What
// stands against it are the candidates whose name begins with `other`, by default all others.
struct Special {
  std::string name;
  std::string_view op;
  std::string_view candidate, other;
  std::vector<Run> runs;
};

std::vector<Special> specials() {
  const std::vector<Run> short_llamas{llama(tiny, "bf16"), llama(readme, "bf16")};
  const std::vector<Run> llamas{llama(readme, "bf16"), llama(medium, "bf16"), llama(large, "bf16")};
  return {
      {"bottlenecks of residual networks", ResidualBottleneck::name, "one kernel", "",
       visions({"resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d"})},
      {"warps for the last rows of whole heads", Attention::name, "own kernels, whole heads",
       "own kernels, whole heads in tiles", visions({"vit_b_16"})},
      {"whole heads", Attention::name, "own kernels, whole heads", "own kernels, t",
       visions({"vit_b_16"})},
      {"3 x 3 patches", Conv2d::name, "patches of the image", "",
       visions({"resnet18", "densenet121", "vgg16"})},
      {"first layers of few channels", Conv2d::name, "tiles of 128 x 64 of few channels", "",
       visions({"resnet50", "vgg16"})},
      {"narrow first layers of few channels", Conv2d::name, "tiles of 128 x 32 of few channels", "",
       visions({"efficientnet_b0", "mobilenet_v2"})},
      {"banded products of depthwise convolutions", Conv2d::name, "banded products", "",
       visions({"mobilenet_v2", "efficientnet_b0", "mnasnet1_0"})},
      {"attention of one tile", Attention::name, "own kernels, one tile", "", short_llamas},
      {"attention of one tile, backward", AttentionGrad::name, "own kernels, one tile", "",
       short_llamas},
      {"products of split bf16",
       MatMul::name,
       "split bf16",
       "",
       {llama(readme, "fp32"), llama(medium, "fp32")}},
      {"SwiGLU in its product", LinearSwiGlu::name, "one kernel", "", llamas},
      {"SwiGLU's gradient in its product", LinearSwiGluGrad::name, "one kernel", "", llamas},
  };
}

// A pass, and the runs that it is measured in.
struct PassCase {
  std::string_view pass;
  std::vector<Run> runs;
};

std::vector<PassCase> pass_cases() {
  return {{"squeeze-excitation", visions({"efficientnet_b0", "mobilenet_v3_large"})},
          {"residual-bottlenecks", visions({"resnet50"})},
          {"linear-swiglu", {llama(readme, "bf16"), llama(medium, "bf16")}},
          {"aligned-rows",
           {llama(few_tokens, "bf16"), llama(narrow, "bf16"), llama(many_tokens, "bf16"),
            llama(odd_inner, "bf16"), llama(odd_inner_and_logits, "bf16")}},
          {"early-updates",
           {llama(tiny, "bf16"), llama(medium, "bf16"), llama(large, "bf16"),
            llama(many_parameters, "bf16"), llama(wide_and_short, "bf16")}},
          {"norm-results", {llama(readme, "bf16"), llama(medium, "bf16"), llama(large, "bf16")}}};
}

// Equal operators of a graph once.
struct Layer {
  OperatorCase what;
  int count = 0;
};

struct Layers {
  std::vector<Layer> all;
  KernelChoice kernels;  // as the run's schedule has them, without a tuner
};

Layers layers_of(const RunOptions& options, const Target& target, std::string_view op) {
  Graph graph;
  const BuiltGraph built = build_graph(graph, options, target);
  Layers layers{.kernels = execution_of(built.schedule).kernels};
  for (const Node& node : graph.nodes()) {
    if (name_of(*node.op) != op) continue;
    const std::vector<TensorType> in = graph.types_of(node.inputs);
    const auto same = std::ranges::find_if(layers.all, [&](const Layer& layer) {
      return layer.what.op.variant() == node.op->variant() && layer.what.in == in;
    });
    if (same == layers.all.end())
      layers.all.push_back({{fmt::format("{} {}", op, in[0].to_string()), *node.op, in}, 1});
    else
      ++same->count;
  }
  return layers;
}

// Answers what is asked first, about the operator itself, by the fastest of some candidates, and
// what kernels of its parts ask as the other tuner does.
class Among final : public Tuner {
 public:
  Among(std::vector<std::size_t> some, Tuner& inner) : some_(std::move(some)), inner_(inner) {}
  std::size_t choose(std::string_view key, std::size_t candidates,
                     const std::function<void(std::size_t)>& run) override {
    if (asked_++ > 0) return inner_.choose(key, candidates, run);
    all = candidates;
    std::erase_if(some_, [&](std::size_t i) { return i >= candidates; });
    if (some_.size() < 2) return some_.empty() ? 0 : some_[0];
    const auto of_some = fmt::format("{} among {}", key, fmt::join(some_, ", "));
    return some_[inner_.choose(of_some, some_.size(), [&](std::size_t i) { run(some_[i]); })];
  }
  void tell(std::string_view, std::string_view choice) override { told = choice; }

  std::size_t all = 0;  // candidates; 0 if nothing was asked
  std::string told;     // the name of the choice

 private:
  std::vector<std::size_t> some_;
  Tuner& inner_;
  int asked_ = 0;
};

// Times by round, in seconds.
struct Series {
  std::vector<double> with, without;
};

struct Measured {
  Series series;
  std::string instead;  // the candidate without the special one
};

class Bench {
 public:
  Bench(Device& device, std::int64_t rounds) : device_(device), rounds_(rounds), tuner_({}) {}

  // One launch of a layer. Nothing if it has no such candidates.
  std::optional<Measured> measure(const Special& special, const OperatorCase& what,
                                  const KernelChoice& kernels) {
    std::vector<std::size_t> chosen, others;
    sort_out(special, what, kernels, chosen, others);
    if (chosen.empty() || others.empty()) return std::nullopt;
    Among with_it(chosen, tuner_), without_it(others, tuner_);
    TimedOperator with(device_, what, timing(kernels, with_it));
    TimedOperator without(device_, what, timing(kernels, without_it));
    for (int warmup = 0; warmup < 2; ++warmup) with.seconds(), without.seconds();
    Measured measured{.instead = without_it.told};
    interleave(2, rounds_, [&](std::size_t run, std::int64_t) {
      if (run == 0)
        measured.series.with.push_back(with.seconds());
      else
        measured.series.without.push_back(without.seconds());
    });
    return measured;
  }

  Device& device() const { return device_; }
  std::int64_t rounds() const { return rounds_; }

 private:
  static OperatorTiming timing(KernelChoice kernels, Tuner& tuner) {
    kernels.tuner = &tuner;
    return {.kernels = kernels};
  }

  // The numbers of the special candidates, and of those that stand against them.
  void sort_out(const Special& special, const OperatorCase& what, const KernelChoice& kernels,
                std::vector<std::size_t>& chosen, std::vector<std::size_t>& others) {
    const std::vector<TensorType> out = infer(what.op, what.in);
    std::size_t all = 1;
    for (std::size_t candidate = 0; candidate < all; ++candidate) {
      Among one({candidate}, tuner_);
      device_.prepare(what.op, what.in, out, timing(kernels, one).kernels);
      all = one.all;
      const bool stands_against = !special.other.empty() && one.told.starts_with(special.other);
      if (one.told.starts_with(special.candidate) && !stands_against)
        chosen.push_back(candidate);
      else if (special.other.empty() || stands_against)
        others.push_back(candidate);
    }
  }

  Device& device_;
  std::int64_t rounds_;
  Autotuner tuner_;
};

std::string microseconds(std::span<const double> seconds) {
  return fmt::format("{:.1f}", statistics_of(seconds).median * 1e6);
}

std::string ratio_text(const Series& series) {
  const Ratio ratio = paired_ratio(series.without, series.with);
  if (!ratio.interval) return fmt::format("{:.3f}", ratio.value);
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", ratio.value, ratio.interval->low,
                     ratio.interval->high);
}

void print(const std::vector<std::string>& row) {
  fmt::print("{}\n", fmt::join(row, " | "));
  std::fflush(stdout);
}

bool is_wanted(std::string_view row, std::span<const std::string_view> texts) {
  return texts.empty() || std::ranges::any_of(texts, [&](std::string_view text) {
           return row.find(text) != std::string_view::npos;
         });
}

// The layers of a run that the special kernel takes, summed; nothing if there are none. What other
// runs have measured is not measured again.
struct Sum {
  Series series;
  int layers = 0;
  std::string instead;
};
using Known = std::vector<std::pair<OperatorCase, std::optional<Measured>>>;

std::optional<Sum> sum_of(Bench& bench, const Special& special, const Run& run, Known& known) {
  const Layers layers = layers_of(run.options, bench.device().target(), special.op);
  Sum sum{.series = {std::vector<double>(static_cast<std::size_t>(bench.rounds())),
                     std::vector<double>(static_cast<std::size_t>(bench.rounds()))}};
  for (const Layer& layer : layers.all) {
    auto found = std::ranges::find_if(known, [&](const auto& entry) {
      return entry.first.op.variant() == layer.what.op.variant() && entry.first.in == layer.what.in;
    });
    if (found == known.end())
      found = known.emplace(known.end(), layer.what,
                            bench.measure(special, layer.what, layers.kernels));
    const std::optional<Measured>& measured = found->second;
    if (!measured) continue;
    print({"", special.name, layer.what.label, fmt::format("x {}", layer.count),
           microseconds(measured->series.with), microseconds(measured->series.without),
           measured->instead});
    for (std::size_t r = 0; r < sum.series.with.size(); ++r) {
      sum.series.with[r] += layer.count * measured->series.with[r];
      sum.series.without[r] += layer.count * measured->series.without[r];
    }
    sum.layers += layer.count;
    if (sum.instead.empty())
      sum.instead = measured->instead;
    else if (sum.instead != measured->instead)
      sum.instead = "several";
  }
  if (sum.layers == 0) return std::nullopt;
  return sum;
}

ResultsTable kernels_table(Bench& bench, std::span<const std::string_view> texts) {
  ResultsTable table{.caption =
                         "Layers with the special kernel, and with the fastest candidate "
                         "without it: sums over a network's layers that it takes.",
                     .columns = {"Special kernel", "Network", "Layers", "With, µs", "Without, µs",
                                 "Without / with", "Instead"}};
  for (const Special& special : specials()) {
    Known known;
    for (const Run& run : special.runs) {
      if (!is_wanted(fmt::format("{} {}", special.name, run.name), texts)) continue;
      const std::optional<Sum> sum = sum_of(bench, special, run, known);
      if (!sum) {
        fmt::print("{}: takes no layer of {}\n", special.name, run.name);
        continue;
      }
      table.add(
          {special.name, run.name, fmt::to_string(sum->layers), microseconds(sum->series.with),
           microseconds(sum->series.without), ratio_text(sum->series), sum->instead},
          {{"with", sum->series.with}, {"without", sum->series.without}});
      print(table.rows.back());
    }
  }
  return table;
}

ResultsTable passes_table(Bench& bench, std::span<const std::string_view> texts) {
  ResultsTable table{.caption =
                         "Runs with a pass that such kernels are for, and without it: a "
                         "step's time, and the most bytes of tensors alive at once.",
                     .columns = {"Pass", "Run", "With, µs", "Without, µs", "Without / with",
                                 "Memory with", "Memory without"}};
  for (const PassCase& of : pass_cases())
    for (const Run& run : of.runs) {
      if (!is_wanted(fmt::format("{} {}", of.pass, run.name), texts)) continue;
      RunOptions with = run.options, without = run.options;
      with.enable_pass = of.pass;
      without.disable_pass = of.pass;
      const auto results = time_interleaved({{"with", with}, {"without", without}}, bench.device(),
                                            {.rounds = bench.rounds()});
      if (!results[0].measured() || !results[1].measured()) {
        fmt::print("{}, {}: {}{}\n", of.pass, run.name, results[0].fault, results[1].fault);
        continue;
      }
      const Series series{results[0].by_round(), results[1].by_round()};
      table.add(
          {std::string(of.pass), run.name, microseconds(series.with), microseconds(series.without),
           ratio_text(series), format_bytes(results[0].peak_tensor_bytes),
           format_bytes(results[1].peak_tensor_bytes)},
          {{"with", series.with}, {"without", series.without}});
      print(table.rows.back());
    }
  return table;
}

void run(std::span<char* const> arguments) {
  std::string json;
  std::int64_t rounds = 15;
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument == "--json" && has_value)
      json = arguments[++i];
    else if (argument == "--rounds" && has_value)
      rounds = std::max(1, std::atoi(arguments[++i]));
    else
      texts.push_back(argument);
  }
  const std::unique_ptr<Device> device = open_gpu({.deterministic = false});
  Bench bench(*device, rounds);
  std::vector<ResultsTable> tables{kernels_table(bench, texts), passes_table(bench, texts)};
  if (!json.empty())
    write_results(json,
                  {.section = "GPU kernels",
                   .title = "Special kernels, with and without",
                   .device = fmt::format("{}, {}", device->hardware(), device->tools().driver()),
                   .command = results_command("benchmarks/gpu/gpu_special", arguments),
                   .notes = {fmt::format("Medians of {} rounds in which both take turns; the ratio "
                                         "is of the times of a round, with its 95 % interval. A "
                                         "special kernel whose ratios are not clearly above 1 "
                                         "should go.",
                                         rounds)}},
                  tables);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  return ridge::exit_status_of([&] { ridge::run({argv + 1, argv + argc}); });
}
