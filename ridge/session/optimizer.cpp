#include "ridge/session/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"

namespace ridge {

namespace {

std::vector<Value> parts_of(Graph& graph, Value trainable) {
  std::vector<Value> parts;
  for (const ValueId part : graph.info(trainable.id).parts) parts.push_back(graph.value(part));
  return parts.empty() ? std::vector{trainable} : parts;
}

// What autodiff would pass over in silence: a loss that depends on a part not only through the
// packed value.
void check_reads_no_part(const Graph& graph, ValueId loss) {
  std::vector<bool> wanted(graph.value_count(), false);
  wanted[loss] = true;
  for (std::size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    if (std::ranges::none_of(node.outputs, [&](ValueId out) { return wanted[out]; })) continue;
    for (const ValueId in : node.inputs) {
      wanted[in] = true;
      if (const ValueInfo& info = graph.info(in); info.whole != no_value)
        throw UsageError("{} is read by a {}, though it is packed into {}: slice that one",
                         info.name, name_of(*node.op), graph.info(info.whole).name);
    }
  }
}

// Per parameter, in the order of graph.parameters(), its share of the values given by trainable:
// the value itself or, of a packed parameter's, slices.
std::vector<Value> by_parameter(Graph& graph, std::span<const Value> trainables,
                                std::span<const Value> values) {
  std::map<ValueId, Value> shares;
  for (std::size_t i = 0; i < trainables.size(); ++i) {
    std::int64_t row = 0;
    const std::vector<Value> parts = parts_of(graph, trainables[i]);
    for (const Value& part : parts) {
      const Scope scope(graph, graph.info(part.id).scope);
      const bool whole = part == trainables[i];
      shares[part.id] = whole ? values[i] : slice(values[i], row, part.shape()[0]);
      if (!whole) row += part.shape()[0];
    }
  }
  std::vector<Value> result;
  for (const Value& parameter : graph.parameters()) result.push_back(shares.at(parameter.id));
  return result;
}

// The persistent value that is to a trainable what "p<suffix>" is to each parameter p.
Value companion_of(Graph& graph, Value trainable, std::string_view suffix) {
  const std::string name = fmt::format("{}{}", graph.info(trainable.id).name, suffix);
  std::vector<Value> parts = parts_of(graph, trainable);
  if (parts.front() == trainable) return graph.find(name);
  for (Value& part : parts)
    part = graph.find(fmt::format("{}{}", graph.info(part.id).name, suffix));
  return graph.pack(parts, name);
}

// The persistent sum of gradients that is called "p<suffix>", for each parameter p.
std::vector<Value> add_sums(Graph& graph, const TrainingStep& step, std::string_view suffix) {
  std::vector<Value> sums;
  for (const Value& p : step.parameters) {
    const Scope scope(graph, graph.info(p.id).scope);
    sums.push_back(graph.state(fmt::format("{}{}", graph.info(p.id).name, suffix), p.type(),
                               Role::gradient, Init::zeros()));
  }
  return sums;
}

// Adds the gradients to persistent sums and returns these.
std::vector<Value> accumulate(Graph& graph, TrainingStep& step, std::span<const Value> trainables,
                              std::span<const Value> grads) {
  step.accumulators = add_sums(graph, step, ".grad");
  std::vector<Value> sums;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const Scope scope(graph, graph.info(trainables[i].id).scope);
    const Value sum = companion_of(graph, trainables[i], ".grad");
    sums.push_back(graph.apply1(Accumulate{}, {sum, grads[i]}));
  }
  return sums;
}

// The same pairwise: the parts of a sum that wait for others are persistent too.
std::vector<Value> accumulate_pairwise(Graph& graph, TrainingStep& step,
                                       std::span<const Value> trainables,
                                       std::span<const Value> grads,
                                       const Accumulation& accumulation) {
  const PairwiseSum op{.run = accumulation.run};
  std::uint32_t count = op.run > 1 ? 1 : 0;
  while (op.calls(count) < accumulation.batches) ++count;
  step.batch = graph.input("batch", {DType::i32, {}});
  std::vector<std::string> suffixes;
  for (std::uint32_t level = 0; level + 1 < count; ++level)
    suffixes.push_back(fmt::format(".grad.{}", level));
  for (const std::string& suffix : suffixes) add_sums(graph, step, suffix);
  step.accumulators = add_sums(graph, step, suffixes.emplace_back(".grad"));
  std::vector<Value> sums;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const Scope scope(graph, graph.info(trainables[i].id).scope);
    std::vector<Value> operands{step.batch, grads[i]};
    for (const std::string& suffix : suffixes)
      operands.push_back(companion_of(graph, trainables[i], suffix));
    sums.push_back(graph.apply(op, operands).back());
  }
  return sums;
}

// The operator that updates a parameter, and what its state is called after the parameter's name.
AdamW operator_of(const AdamWConfig& config) {
  return {.beta1 = config.beta1,
          .beta2 = config.beta2,
          .eps = config.eps,
          .weight_decay = config.weight_decay,
          .max_norm = config.max_grad_norm,
          .scaled = config.loss_scaling.has_value()};
}

Sgd operator_of(const SgdConfig& config) {
  return {.momentum = config.momentum,
          .weight_decay = config.weight_decay,
          .max_norm = config.max_grad_norm,
          .nesterov = config.nesterov,
          .scaled = config.loss_scaling.has_value()};
}

constexpr std::array<const char*, 2> moments_of(const AdamW&) {
  return {".exp_avg", ".exp_avg_sq"};
}
constexpr std::array<const char*, 1> moments_of(const Sgd&) { return {".momentum_buffer"}; }

UpdateLossScale loss_scale_update(const AdamWConfig& config) {
  return {.rule = *config.loss_scaling, .beta1 = config.beta1, .beta2 = config.beta2};
}

// SGD reads no more of the schedule than the learning rate and the scale.
UpdateLossScale loss_scale_update(const SgdConfig& config) {
  return {.rule = *config.loss_scaling};
}

// Appends the update of the loss scale, by the norm of all gradients; the schedule for the
// optimizer.
Value scaled_schedule(TrainingStep& step, const UpdateLossScale& op, Value norm) {
  Graph& graph = *norm.graph;
  const Value counters =
      graph.state("loss_scale.counters", {DType::f32, {2}}, Role::optimizer_state, Init::zeros());
  const std::vector<Value> out =
      graph.apply(op, std::array{step.loss_scale, counters, step.schedule, norm});
  step.scale_report = out[3];
  graph.keep(step.scale_report, "loss_scale.report");
  return out[2];
}

// Appends the update of every trainable by its gradient.
template <class Config>
void update(TrainingStep& step, const Config& config, std::span<const Value> trainables,
            std::span<const Value> grads) {
  Graph& graph = *step.schedule.graph;
  const PhaseScope phase(graph, Phase::optimizer);
  const Scope scope(graph, "optimizer");
  const bool clips = config.max_grad_norm > 0;
  Value norm, schedule = step.schedule;
  if (clips || config.loss_scaling) norm = graph.apply(GlobalNorm{}, grads).front();
  if (config.loss_scaling) schedule = scaled_schedule(step, loss_scale_update(config), norm);
  if (clips) {
    step.grad_norm = step.scale_report ? reshape(slice(step.scale_report, 0, 1), {}) : norm;
    graph.keep(step.grad_norm, "grad_norm");
  }
  const auto op = operator_of(config);
  const auto moments = moments_of(op);
  for (const Value& p : step.parameters)
    for (const char* moment : moments)
      graph.state(graph.info(p.id).name + moment, p.type(), Role::optimizer_state, Init::zeros());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    std::vector<Value> operands{trainables[i], grads[i]};
    for (const char* moment : moments)
      operands.push_back(companion_of(graph, trainables[i], moment));
    operands.push_back(schedule);
    if (clips) operands.push_back(norm);
    graph.apply(op, operands);
  }
}

template <class Config>
TrainingStep add_step(Value loss, const Config& config, const Accumulation& accumulation) {
  Graph& graph = *loss.graph;
  check_reads_no_part(graph, loss.id);
  TrainingStep step;
  step.parameters = graph.parameters();
  step.schedule = graph.input("schedule", {DType::f32, {3}});
  const std::vector<Value> trainables = graph.trainables();
  if (config.loss_scaling)
    step.loss_scale = graph.state("loss_scale", {DType::f32, {}}, Role::optimizer_state,
                                  Init::constant(config.loss_scaling->initial));
  std::vector<Value> grads =
      gradients(loss, trainables, 1.0f / static_cast<float>(accumulation.of_all), step.loss_scale);
  {
    const PhaseScope phase(graph, Phase::backward);
    step.gradients = by_parameter(graph, trainables, grads);
    if (accumulation.batches > 1 && accumulation.run > 0) {
      grads = accumulate_pairwise(graph, step, trainables, grads, accumulation);
    } else if (accumulation.batches > 1) {
      grads = accumulate(graph, step, trainables, grads);
    } else {
      for (std::size_t i = 0; i < grads.size(); ++i)
        graph.set_role(grads[i], Role::gradient, graph.info(trainables[i].id).name + ".grad");
      for (std::size_t i = 0; i < step.gradients.size(); ++i)
        graph.set_role(step.gradients[i], Role::gradient,
                       graph.info(step.parameters[i].id).name + ".grad");
    }
  }
  update(step, config, trainables, grads);
  return step;
}

}  // namespace

TrainingStep add_training_step(Value loss, const OptimizerConfig& config,
                               const Accumulation& accumulation) {
  return std::visit([&](const auto& c) { return add_step(loss, c, accumulation); }, config);
}

std::vector<float> optimizer_schedule(const OptimizerConfig& config, double learning_rate,
                                      std::int64_t t) {
  const auto rate = static_cast<float>(learning_rate);
  const auto* const adamw = std::get_if<AdamWConfig>(&config);
  if (!adamw) return {rate, 1.0f, 1.0f};
  const auto steps = static_cast<double>(t);
  return {rate, static_cast<float>(1.0 - std::pow(adamw->beta1, steps)),
          static_cast<float>(1.0 - std::pow(adamw->beta2, steps))};
}

}  // namespace ridge
