// Tests that hold for every operator. The operators come from the closed list and the operands from
// their samples: a new operator is tested as soon as it is in the list.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <ostream>
#include <type_traits>
#include <variant>

#include "ridge/cpu/device.h"
#include "ridge/ops/check.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/reference.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::operand_values;
using testing::Reals;

// An operator of the list with all that the tests below ask of its type. They are run with values
// of this, not with types: a typed test is compiled again for each of 80 operators.
struct Operator {
  struct AnySample {
    Op op;
    std::vector<SampleInput> inputs;
    bool has_gradient = false;
  };

  std::string_view name;
  std::vector<AnySample> (*samples)();
  DTypes dtypes;
  bool partial = false;
  bool differentiable = false;
  std::size_t differentiable_outputs = 1;
  bool (*is_state)(std::size_t operand);
  testing::Tolerance (*tolerance)(const Op& op, const TensorType& result, Types in);

  friend void PrintTo(const Operator& o, std::ostream* stream) { *stream << o.name; }
};

template <class T>
std::vector<Operator::AnySample> samples_of() {
  std::vector<Operator::AnySample> all;
  for (const Sample<T>& sample : T::samples()) {
    all.push_back({sample.op, sample.inputs, Differentiable<T>});
    if constexpr (PartlyDifferentiable<T>) all.back().has_gradient = sample.op.has_gradient();
  }
  return all;
}

template <class T>
testing::Tolerance tolerance_of_results(const Op& op, const TensorType& result, Types in) {
  return testing::tolerance_of_result(std::get<T>(op.variant()), result, in);
}

template <class... T>
std::vector<Operator> operators_of(std::type_identity<std::variant<T...>>) {
  return {{T::name, samples_of<T>, dtypes_of<T>(), Partial<T>, Differentiable<T>,
           differentiable_outputs<T>(), is_state<T>, tolerance_of_results<T>}...};
}

std::vector<Operator> all_operators() { return operators_of(std::type_identity<OpVariant>()); }
std::vector<Operator> differentiable_operators() {
  std::vector<Operator> all = all_operators();
  std::erase_if(all, [](const Operator& o) { return !o.differentiable; });
  return all;
}
std::string name_of_case(const ::testing::TestParamInfo<Operator>& info) {
  return std::string(info.param.name);
}

class EveryOperator : public ::testing::TestWithParam<Operator> {};
INSTANTIATE_TEST_SUITE_P(List, EveryOperator, ::testing::ValuesIn(all_operators()), name_of_case);

class EveryDifferentiable : public ::testing::TestWithParam<Operator> {};
INSTANTIATE_TEST_SUITE_P(List, EveryDifferentiable, ::testing::ValuesIn(differentiable_operators()),
                         name_of_case);

// A sample with its operands in one dtype.
struct Case {
  const Op& op;
  std::span<const SampleInput> inputs;
  Types in;
  std::vector<TensorType> out = infer(op, in);
  std::vector<Reals> values = operand_values(inputs, in);
};

// Calls check(case) for every sample in every dtype.
template <class F>
void for_each_case(const Operator& o, const F& check) {
  const std::vector<Operator::AnySample> samples = o.samples();
  testing::for_each_case(
      o.name, samples.size(), o.dtypes,
      [&](std::size_t s, DType dtype) {
        return testing::operand_types(samples[s].op, samples[s].inputs, dtype);
      },
      [&](std::size_t s, Types in) {
        check(Case{samples[s].op, samples[s].inputs, in});
      });
}

TEST_P(EveryOperator, KernelAgreesWithReference) {
  CpuDevice one(1), two(2), four(4);
  for_each_case(GetParam(), [&](const Case& c) {
    const std::vector<Reals> expected = testing::run_reference(c.op, c.in, c.out, c.values);
    const auto actual = testing::run_kernel(one, c.op, c.in, c.out, c.values);
    for (std::size_t o = 0; o < c.out.size(); ++o) {
      SCOPED_TRACE(fmt::format("output {}: {}", o, c.out[o].to_string()));
      testing::expect_close(testing::decode(actual[o], c.out[o].dtype), expected[o],
                            GetParam().tolerance(c.op, c.out[o], c.in));
    }
    EXPECT_EQ(testing::run_kernel(two, c.op, c.in, c.out, c.values), actual) << "on 2 threads";
    EXPECT_EQ(testing::run_kernel(four, c.op, c.in, c.out, c.values), actual) << "on 4 threads";
  });
}

TEST_P(EveryOperator, CostsWhatItTouches) {
  CpuDevice device(1);
  for_each_case(GetParam(), [&](const Case& c) {
    const Cost cost = ridge::cost(c.op, c.in, c.out);
    EXPECT_GE(cost.flops, 0);
    EXPECT_GE(cost.causal_flops, 0);
    EXPECT_LE(cost.causal_flops, cost.flops);
    if (!device.prepare(c.op, c.in, c.out).kernel) {
      EXPECT_EQ(cost, Cost{}) << "no kernel, no cost";
      return;
    }
    if (GetParam().partial) return;  // see Traits.PartialOperatorsCountWhatTheyTouch
    std::int64_t read = 0, written = 0;
    for (const TensorType& type : c.in) read += static_cast<std::int64_t>(type.bytes());
    for (const TensorType& type : c.out) written += static_cast<std::int64_t>(type.bytes());
    EXPECT_EQ(cost.bytes_read, read);
    EXPECT_EQ(cost.bytes_written, written);
  });
}

// loss = sum of sum(weights * output) over the differentiable outputs, where the operands are the
// first values of the graph and the weights the next. Where an output is infinite, its softmax
// stands for it.
Value build_loss(Graph& graph, const Case& c, const Operator& facts, bool infinite) {
  std::vector<Value> operands, weights;
  for (const SampleInput& input : c.inputs) {
    const std::string name = fmt::format("operand {}", operands.size());
    const Role role = facts.is_state(operands.size()) ? Role::optimizer_state : Role::parameter;
    operands.push_back(is_floating(input.type.dtype)
                           ? graph.state(name, input.type, role, Init::zeros())
                           : graph.input(name, input.type));
  }
  for (std::size_t o = 0; o < facts.differentiable_outputs; ++o)
    weights.push_back(graph.input(fmt::format("weights {}", o), {DType::f32, c.out[o].shape}));
  const std::vector<Value> results = graph.apply(c.op, operands);
  Value loss;
  for (std::size_t o = 0; o < weights.size(); ++o) {
    Value result = cast(results[o], DType::f32);
    if (infinite) result = softmax(result);
    const Value part = sum_to(mul(result, weights[o]), {});
    loss = loss ? add(loss, part) : part;
  }
  return loss;
}

// How many elements of an operand are perturbed one by one: as many as keep the test quick.
std::int64_t probes(const Case& c) {
  std::int64_t work = cost(c.op, c.in, c.out).flops + 1;
  for (const TensorType& type : c.in) work += 10 * type.numel();
  return std::clamp<std::int64_t>(20'000'000 / work, 3, 24);
}

void check_gradient(const Case& c, const Operator& facts) {
  const Reals result = testing::run_reference(c.op, c.in, c.out, c.values)[0];
  const bool infinite = !std::ranges::all_of(result, [](double x) { return std::isfinite(x); });

  // One graph for the losses and one, with the same first values, for the gradient too.
  Graph forward, both;
  const Value loss = build_loss(forward, c, facts, infinite);
  const Value loss_again = build_loss(both, c, facts, infinite);
  const std::vector<Value> wrt = both.parameters();
  const std::vector<Value> grads = gradients(loss_again, wrt);

  ReferenceValues fed;
  for (ValueId id = 0; id < c.in.size(); ++id) fed[id] = c.values[id];
  for (std::size_t o = 0; o < facts.differentiable_outputs; ++o) {
    const auto weights = static_cast<ValueId>(c.in.size() + o);
    fed[weights] = testing::sample_values({c.out[o]}, DType::f32, weights);
  }
  const ReferenceValues computed = evaluate_reference(both, fed);

  auto loss_at = [&](ValueId operand, const Reals& direction, double step) {
    ReferenceValues moved = fed;
    for (std::size_t i = 0; i < direction.size(); ++i) moved[operand][i] += step * direction[i];
    return evaluate_reference(forward, std::move(moved)).at(loss.id)[0];
  };
  auto check_along = [&](ValueId operand, const Reals& grad, const Reals& direction) {
    constexpr double step = 1e-6;
    const double numeric =
        (loss_at(operand, direction, step) - loss_at(operand, direction, -step)) / (2 * step);
    const double analytic = std::inner_product(grad.begin(), grad.end(), direction.begin(), 0.0);
    EXPECT_NEAR(analytic, numeric, 1e-5 + 1e-3 * std::abs(numeric));
  };
  for (std::size_t p = 0; p < wrt.size(); ++p) {
    SCOPED_TRACE(both.info(wrt[p].id).name);
    const Reals& grad = computed.at(grads[p].id);
    const auto n = static_cast<std::int64_t>(grad.size());
    ASSERT_EQ(n, wrt[p].shape().numel());
    // All elements at once, in a random direction; then some, one by one.
    check_along(wrt[p].id, grad, testing::sample_values({wrt[p].type()}, DType::f32, 99));
    const std::int64_t count = std::min(n, probes(c));
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t element = count == 1 ? 0 : k * (n - 1) / (count - 1);
      SCOPED_TRACE(fmt::format("element {}", element));
      Reals direction(grad.size(), 0.0);
      direction[static_cast<std::size_t>(element)] = 1.0;
      check_along(wrt[p].id, grad, direction);
    }
  }
}

TEST_P(EveryDifferentiable, GradientAgreesWithFiniteDifferences) {
  const std::vector<Operator::AnySample> samples = GetParam().samples();
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (!samples[s].has_gradient) continue;
    std::vector<TensorType> types;
    for (const SampleInput& input : samples[s].inputs) types.push_back(input.type);
    SCOPED_TRACE(fmt::format("{}, sample {}: {}", GetParam().name, s, list_of(types)));
    check_gradient({samples[s].op, samples[s].inputs, types}, GetParam());
  }
}

}  // namespace
}  // namespace ridge
