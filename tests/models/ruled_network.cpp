#include "tests/models/ruled_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "ridge/base/thread_pool.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"
#include "ridge/session/session.h"
#include "tests/models/vision_golden.h"
#include "tests/models/vision_rule.h"

namespace ridge::testing {
namespace {

using nlohmann::json;

// One image by the rule.
class RuledImages final : public Batches {
 public:
  void fill(Split, std::uint64_t, std::span<std::byte> input,
            std::span<std::byte> targets) override {
    const std::uint64_t stream = stream_of("images");
    const std::span images(reinterpret_cast<float*>(input.data()), input.size() / sizeof(float));
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = rule_uniform(stream, i) * 4.0f - 2.0f;
    std::ranges::fill(targets, std::byte{0});
  }
  bool always_same() const override { return true; }
  std::string description() const override { return "an image by the rule"; }
};

bool is_weight(const ValueInfo& info) {
  return (info.role == Role::parameter || info.role == Role::buffer) &&
         info.init.kind != Init::Kind::values;
}

}  // namespace

const json& vision_golden() {
  static const json all = json::parse(vision_golden_text);
  return all;
}

std::int64_t ruled_image_size(std::string_view network) {
  const std::int64_t usual = vision_network(network).input_size;
  const auto golden = vision_golden().find(network);
  return golden == vision_golden().end() ? usual : golden->value("image_size", usual);
}

void RuledNetwork::set_weights(Graph& graph) {
  std::vector<ValueId> ids, fresh;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    if (!is_weight(graph.info(id))) continue;
    ids.push_back(id);
    if (weights_.try_emplace(graph.info(id).name).second) fresh.push_back(id);
  }
  ThreadPool pool(available_processors());
  pool.run(static_cast<std::int64_t>(fresh.size()), [&](std::int64_t i) {
    const ValueInfo& info = graph.info(fresh[static_cast<std::size_t>(i)]);
    std::vector<float>& values = weights_.at(info.name);
    values.resize(static_cast<std::size_t>(info.type.numel()));
    fill_by_rule(values, info.name, info.type.shape);
  });
  for (const ValueId id : ids)
    graph.set_init(graph.value(id), Init::of(weights_.at(graph.info(id).name)));
}

namespace {

RunOptions options_of(const std::string& network, std::string_view dtype) {
  RunOptions options = default_options(network);
  options.mode = name_of(Use::inference);
  options.version = dtype == "int8" ? "default" : "none";
  options.enable_pass = planned_memory;
  options.dtype = dtype;
  options.batch_size = 1;
  options.image_size = ruled_image_size(network);
  options.resolve();
  return options;
}

}  // namespace

std::vector<float> RuledNetwork::logits(Device& device, std::string_view dtype) {
  const RunOptions options = options_of(name_, dtype);
  Workload workload = workload_of(options);
  workload.open = [] { return std::make_unique<RuledImages>(); };
  Session session(std::move(workload), options, device,
                  {.initialize = [this](Graph& graph) { set_weights(graph); }});
  session.step();
  return session.logits();
}

const RuledNetwork::Expected& RuledNetwork::expected() {
  if (expected_) return *expected_;
  Expected& e = expected_.emplace();
  if (vision_golden().contains(name_)) {
    const json& golden = vision_golden()[name_];
    e.rms = golden["rms"];
    e.elements = golden["elements"].get<std::vector<std::size_t>>();
    e.values = golden["values"].get<std::vector<double>>();
    return e;
  }
  CpuDevice cpu;
  for (const float logit : logits(cpu, "fp32")) {
    e.elements.push_back(e.elements.size());
    e.values.push_back(logit);
    e.rms += static_cast<double>(logit) * logit;
  }
  e.rms = std::sqrt(e.rms / static_cast<double>(e.values.size()));
  return e;
}

double RuledNetwork::error(const std::vector<float>& logits) {
  const Expected& e = expected();
  double worst = 0;
  for (std::size_t i = 0; i < e.elements.size(); ++i) {
    const double difference = std::abs(logits[e.elements[i]] - e.values[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst / e.rms;
}

RuledNetwork::Step RuledNetwork::training_step(Device& device, std::string_view dtype) {
  const Precision& precision = precision_named(dtype);
  Graph graph;
  const Model model =
      build_vision(graph, name_, {.batch_size = 2, .compute = precision.compute, .training = true});
  set_weights(graph);
  const std::vector<Value> parameters = graph.parameters();
  const std::vector<Value> grads = gradients(model.loss, parameters);
  const PhaseScope after(graph, Phase::optimizer);
  const Value norm = graph.apply(Op(GlobalNorm{}), grads)[0];
  graph.keep(norm, "gradient norm");
  Execution execution{.planned = true};
  execution.kernels.tf32 = precision.products == Precision::Products::tf32;
  Executor executor(graph, device, execution);
  executor.initialize(0);
  std::vector<std::byte> images(model.input.type().bytes()), targets(model.targets.type().bytes());
  RuledImages().fill(Split::train, 0, images, targets);
  executor.write(model.input, std::span<const std::byte>(images));
  executor.write(model.targets, std::span<const std::byte>(targets));
  if (model.step) executor.write(model.step, std::span<const std::int32_t>(std::vector{1}));
  executor.run();
  return {executor.read_scalar(model.loss), executor.read_scalar(norm)};
}

// In fp32 two orders of summation through a hundred layers. Else rounding: a number rounded to a
// unit u is off by up to u of itself, u / sqrt(3) in the root mean square, and the sums and norms
// that follow keep errors as large beside what they are errors of as they were. They are
// independent, so that n roundings one after another make sqrt(n / 3) u, of which the largest of a
// thousand logits has some 3.5 times: 2 u sqrt(n). In 16 bits all that is written is rounded; tf32
// rounds the two operands of products, which tensor cores cut off rather than round. In int8 one
// step is a 127th of the largest magnitude, which is up to some eight times the root mean square:
// an error of 8 / 127 / sqrt(12) of that, as a unit of 2^-5 makes.
double logits_tolerance(std::string_view network, std::string_view dtype) {
  if (dtype == "fp32") return 1e-4;
  const bool int8 = dtype == "int8";
  const DType computed = int8 ? DType::s8 : precision_named(dtype).compute;
  Graph graph;
  const BuiltGraph built = build_graph(graph, options_of(std::string(network), dtype));
  double n = 0;
  const auto count = [&](const Graph& part) {
    for (const Node& node : part.nodes()) {
      const Cost work = cost(part, node);
      if (dtype == "tf32")
        n += work.macs > 0 ? 2 : 0;
      else if (work.bytes_written > 0 && part.info(node.outputs[0]).type.dtype == computed)
        n += 1;
    }
  };
  count(graph);
  if (built.frozen) count(*built.frozen->setup);
  const double unit = int8              ? 0x1p-5
                      : dtype == "tf32" ? 0x1p-10
                      : dtype == "bf16" ? 0x1p-9
                                        : 0x1p-12;
  return 2 * unit * std::sqrt(n);
}

}  // namespace ridge::testing
