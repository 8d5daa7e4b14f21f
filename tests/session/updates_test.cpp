// What a step changes: by the rate of its own number, and along the gradient of all its batches.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

RunOptions small() {
  RunOptions o = small_llama(one_layer);
  o.weight_decay = 0;
  return o;
}

std::vector<double> parameters_of(Session& session) {
  std::vector<double> all;
  for (const Value& parameter : session.graph().parameters()) {
    std::vector<float> values(static_cast<std::size_t>(parameter.type().numel()));
    session.executor().read(parameter, std::span(values));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// By how much each parameter changes in the next step.
std::vector<double> changes_of_a_step(Session& session) {
  const std::vector<double> before = parameters_of(session);
  session.step();
  std::vector<double> changes = parameters_of(session);
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] -= before[i];
  return changes;
}

// AdamW that remembers nothing moves a parameter by the learning rate, whatever its gradient is.
// Its epsilon keeps those at rest whose gradient is so small that its square has few bits left.
TEST(Updates, AreByTheLearningRateOfTheirStep) {
  RunOptions o = small();
  o.beta1 = o.beta2 = 0;
  o.adam_eps = 1e-8;
  o.num_steps = 8;
  o.learning_rate = 1e-2;
  o.min_learning_rate = 1e-3;
  o.lr_warmup_steps = 3;
  o.lr_schedule = "cosine";
  for (const char* version : {"v1", "v4"}) {
    o.version = version;
    o.resolve();
    CpuDevice device(1);
    Session session(o, device);
    double last = 0;
    for (std::int64_t step = 1; step <= o.num_steps; ++step) {
      double most = 0;
      for (const double change : changes_of_a_step(session))
        most = std::max(most, std::abs(change));
      const double rate = learning_rate_at(o, step);
      EXPECT_NEAR(most / rate, 1, 1e-3) << version << ", step " << step;
      EXPECT_NE(rate, last) << "each step has a rate of its own";
      last = rate;
    }
  }
}

// SGD at rate 1 moves the parameters by the gradient, whose norm is clipped.
TEST(Updates, AreClippedByTheNormOfAllBatches) {
  RunOptions o = small();
  o.optimizer = "sgd";
  o.momentum = 0;
  o.learning_rate = 1;
  o.max_grad_norm = 0.01;
  for (const std::int64_t batches : {1, 2, 5})
    for (const char* version : {"v1", "v4"}) {
      o.version = version;
      o.gradient_accumulation_steps = batches;
      o.resolve();
      CpuDevice device(1);
      Session session(o, device);
      double squares = 0;
      for (const double change : changes_of_a_step(session)) squares += change * change;
      EXPECT_NEAR(std::sqrt(squares) / o.max_grad_norm, 1, 1e-3) << version << ", " << batches;
    }
}

}  // namespace
}  // namespace ridge
