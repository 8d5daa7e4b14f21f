#include "ridge/train/optimizer.h"

#include <cmath>

#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"

namespace ridge {

TrainingStep add_training_step(Value loss, const AdamWConfig& config,
                               std::int64_t accumulation_steps) {
  Graph& graph = *loss.graph;
  TrainingStep step;
  step.parameters = graph.parameters();
  step.schedule = graph.input("schedule", {DType::f32, {3}});
  step.gradients = gradients(loss, step.parameters, 1.0f / static_cast<float>(accumulation_steps));

  std::vector<Value> grads = step.gradients;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const std::string name = graph.info(step.parameters[i].id).name + ".grad";
    if (accumulation_steps == 1) {
      graph.set_role(grads[i], Role::gradient, name);
      continue;
    }
    const PhaseScope phase(graph, Phase::backward);
    const Scope scope(graph, graph.info(step.parameters[i].id).scope);
    step.accumulators.push_back(graph.state(name, grads[i].type(), Role::gradient, Init::zeros()));
    grads[i] = graph.apply1(Accumulate{}, {step.accumulators.back(), grads[i]});
  }

  const PhaseScope phase(graph, Phase::optimizer);
  const Scope scope(graph, "optimizer");
  if (config.max_grad_norm > 0) {
    step.grad_norm = graph.apply(GlobalNorm{}, grads).front();
    graph.keep(step.grad_norm, "grad_norm");
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const Value p = step.parameters[i];
    const std::string name = graph.info(p.id).name;
    std::vector<Value> operands{
        p, grads[i], graph.state(name + ".exp_avg", p.type(), Role::optimizer_state, Init::zeros()),
        graph.state(name + ".exp_avg_sq", p.type(), Role::optimizer_state, Init::zeros()),
        step.schedule};
    if (step.grad_norm) operands.push_back(step.grad_norm);
    graph.apply(AdamW{.beta1 = config.beta1,
                      .beta2 = config.beta2,
                      .eps = config.eps,
                      .weight_decay = config.weight_decay,
                      .max_norm = config.max_grad_norm},
                operands);
  }
  return step;
}

std::vector<float> adamw_schedule(const AdamWConfig& config, double learning_rate, std::int64_t t) {
  const auto steps = static_cast<double>(t);
  return {static_cast<float>(learning_rate),
          static_cast<float>(1.0 - std::pow(config.beta1, steps)),
          static_cast<float>(1.0 - std::pow(config.beta2, steps))};
}

}  // namespace ridge
