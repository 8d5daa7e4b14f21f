#pragma once

// What a few steps of a session give, on one rank and on several.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ridge/session/gradient_reader.h"
#include "ridge/session/session.h"
#include "tests/dist/ranks.h"
#include "tests/session/runs.h"

namespace ridge {

using FloatTensors = std::vector<std::vector<float>>;

// What a few steps gave: by step; gradients of the first and weights after the last, by parameter.
struct Course {
  std::vector<double> losses, norms;
  FloatTensors gradients, parameters;
};

inline FloatTensors read(Session& session, const std::vector<Value>& values) {
  FloatTensors tensors;
  for (const Value& value : values) tensors.push_back(session.executor().read_floats(value));
  return tensors;
}

inline Course course_on(Device& device, const RunOptions& options, int steps) {
  Session session(options, device);
  Course course;
  const auto step = [&] {
    const StepReport report = session.step();
    course.losses.push_back(report.loss);
    course.norms.push_back(report.grad_norm.value_or(0));
  };
  {
    course.gradients.resize(session.training().parameters.size());
    const GradientReader reader(session, [&](std::size_t parameter, Value gradient, float) {
      course.gradients[parameter] = session.executor().read_floats(gradient);
    });
    step();
  }
  while (static_cast<int>(course.losses.size()) < steps) step();
  course.parameters = read(session, session.training().parameters);
  return course;
}

// By rank.
inline std::vector<Course> courses(RunOptions options, int ranks, int steps,
                                   const OpenRank& open = cpu_of_rank) {
  options.ranks = ranks;
  options.resolve();
  std::vector<Course> all(static_cast<std::size_t>(ranks));
  const auto run = [&](Device& device) {
    all[static_cast<std::size_t>(device.rank())] = course_on(device, options, steps);
  };
  on_ranks(ranks, run, open);
  return all;
}

// The distance of two tensors over the size of the first.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(a[i]) * a[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

inline double worst(const FloatTensors& a, const FloatTensors& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, distance(a[i], b[i]));
  return most;
}

struct Limits {
  double loss, gradient;
};

inline void expect_as_one(const RunOptions& options, const std::vector<int>& counts, Limits limits,
                          int steps = 3, const OpenRank& open = cpu_of_rank) {
  const Course one = courses(options, 1, steps, open).front();
  for (const int ranks : counts) {
    const std::vector<Course> all = courses(options, ranks, steps, open);
    for (const Course& rank : all) {
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(rank.losses[i], one.losses[i], limits.loss) << ranks << " ranks, step " << i;
        EXPECT_NEAR(rank.norms[i], one.norms[i], limits.gradient * (1 + one.norms[i]));
      }
      EXPECT_LT(worst(one.gradients, rank.gradients), limits.gradient) << ranks << " ranks";
      // And all ranks are alike, to the bit.
      EXPECT_EQ(rank.losses, all.front().losses);
      EXPECT_EQ(rank.norms, all.front().norms);
      EXPECT_EQ(rank.parameters, all.front().parameters) << ranks << " ranks";
    }
  }
}

inline RunOptions llama(const std::string& version) {
  RunOptions o = small_llama({.batch_size = 24, .seq_len = 12});
  o.version = version;
  o.optimizer = "sgd";  // AdamW's first steps are signs of gradients, near 0 too
  o.learning_rate = 1e-2;
  return o;
}

inline RunOptions synchronized_resnet18(const std::string& mode) {
  RunOptions o = network_options("resnet18", Use::training, mode);
  o.batch_size = 8;
  o.sync_batch_norm = true;
  o.learning_rate = 1e-3;
  return o;
}

// To the bit what one rank computes.
inline void expect_same_bits(const RunOptions& options, const std::vector<int>& counts,
                             int steps = 3, const OpenRank& open = cpu_of_rank) {
  const Course one = courses(options, 1, steps, open).front();
  for (const int ranks : counts)
    for (const Course& rank : courses(options, ranks, steps, open)) {
      EXPECT_EQ(rank.losses, one.losses) << ranks << " ranks";
      EXPECT_EQ(rank.norms, one.norms) << ranks << " ranks";
      EXPECT_EQ(rank.parameters, one.parameters) << ranks << " ranks";
    }
}

inline RunOptions deterministic_llama(const std::string& version) {
  RunOptions o = llama(version);
  o.deterministic = true;
  o.optimizer = "adamw";
  o.max_grad_norm = 0.1;
  return o;
}

}  // namespace ridge
