// Tests that hold for every operator. The operators come from the closed list and the operands from
// their samples: a new operator is tested as soon as it is in the list.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <tuple>
#include <variant>

#include "ridge/cpu/device.h"
#include "ridge/ops/check.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/reference.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::for_each_case;
using testing::operand_values;
using testing::OperatorName;
using testing::Reals;
using testing::TypesOf;

template <class Variant>
struct DifferentiableOf;
template <class... T>
struct DifferentiableOf<std::variant<T...>> {
  using type = decltype(std::tuple_cat(
      std::declval<std::conditional_t<Differentiable<T>, std::tuple<T>, std::tuple<>>>()...));
};

template <class T>
class EveryOperator : public ::testing::Test {};
TYPED_TEST_SUITE(EveryOperator, TypesOf<OpVariant>::type, OperatorName);

template <class T>
class EveryDifferentiable : public ::testing::Test {};
TYPED_TEST_SUITE(EveryDifferentiable, TypesOf<DifferentiableOf<OpVariant>::type>::type,
                 OperatorName);

TYPED_TEST(EveryOperator, KernelAgreesWithReference) {
  CpuDevice one(1), two(2), four(4);
  for_each_case<TypeParam>([&](const Sample<TypeParam>& sample, Types in) {
    const Op op(sample.op);
    const std::vector<TensorType> out = sample.op.infer(in);
    const std::vector<Reals> values = operand_values(sample, in);
    const std::vector<Reals> expected = testing::run_reference(op, in, out, values);
    const auto actual = testing::run_kernel(one, op, in, out, values);
    for (std::size_t o = 0; o < out.size(); ++o) {
      SCOPED_TRACE(fmt::format("output {}: {}", o, out[o].to_string()));
      testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                            testing::tolerance_of_result(sample.op, out[o], in));
    }
    EXPECT_EQ(testing::run_kernel(two, op, in, out, values), actual) << "on 2 threads";
    EXPECT_EQ(testing::run_kernel(four, op, in, out, values), actual) << "on 4 threads";
  });
}

TYPED_TEST(EveryOperator, CostsWhatItTouches) {
  CpuDevice device(1);
  for_each_case<TypeParam>([&](const Sample<TypeParam>& sample, Types in) {
    const std::vector<TensorType> out = sample.op.infer(in);
    const Cost cost = sample.op.cost(in, out);
    EXPECT_GE(cost.flops, 0);
    EXPECT_GE(cost.causal_flops, 0);
    EXPECT_LE(cost.causal_flops, cost.flops);
    if (!device.prepare(Op(sample.op), in, out).kernel) {
      EXPECT_EQ(cost, Cost{}) << "no kernel, no cost";
      return;
    }
    if (Partial<TypeParam>) return;  // see Traits.PartialOperatorsCountWhatTheyTouch
    std::int64_t read = 0, written = 0;
    for (const TensorType& type : in) read += static_cast<std::int64_t>(type.bytes());
    for (const TensorType& type : out) written += static_cast<std::int64_t>(type.bytes());
    EXPECT_EQ(cost.bytes_read, read);
    EXPECT_EQ(cost.bytes_written, written);
  });
}

// loss = sum of sum(weights * output) over the differentiable outputs, where the operands are the
// first values of the graph and the weights the next. Where an output is infinite, its softmax
// stands for it.
template <class T>
Value build_loss(Graph& graph, const Sample<T>& sample, bool infinite) {
  std::vector<Value> operands, weights;
  for (const SampleInput& input : sample.inputs) {
    const std::string name = fmt::format("operand {}", operands.size());
    const Role role = is_state<T>(operands.size()) ? Role::optimizer_state : Role::parameter;
    operands.push_back(is_floating(input.type.dtype)
                           ? graph.state(name, input.type, role, Init::zeros())
                           : graph.input(name, input.type));
  }
  std::vector<ValueId> ids(operands.size());
  std::iota(ids.begin(), ids.end(), ValueId{0});
  const std::vector<TensorType> types = sample.op.infer(graph.types_of(ids));
  for (std::size_t o = 0; o < differentiable_outputs<T>(); ++o)
    weights.push_back(graph.input(fmt::format("weights {}", o), {DType::f32, types[o].shape}));
  const std::vector<Value> results = graph.apply(Op(sample.op), operands);
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
template <class T>
std::int64_t probes(const Sample<T>& sample, Types in, Types out) {
  std::int64_t work = sample.op.cost(in, out).flops + 1;
  for (const TensorType& type : in) work += 10 * type.numel();
  return std::clamp<std::int64_t>(20'000'000 / work, 3, 24);
}

template <class T>
void check_gradient(const Sample<T>& sample, Types in) {
  const std::vector<TensorType> out = sample.op.infer(in);
  const std::vector<Reals> values = operand_values(sample, in);
  const Reals result = testing::run_reference(Op(sample.op), in, out, values)[0];
  const bool infinite = !std::ranges::all_of(result, [](double x) { return std::isfinite(x); });

  // One graph for the losses and one, with the same first values, for the gradient too.
  Graph forward, both;
  const Value loss = build_loss(forward, sample, infinite);
  const Value loss_again = build_loss(both, sample, infinite);
  const std::vector<Value> wrt = both.parameters();
  const std::vector<Value> grads = gradients(loss_again, wrt);

  ReferenceValues fed;
  for (ValueId id = 0; id < in.size(); ++id) fed[id] = values[id];
  for (std::size_t o = 0; o < differentiable_outputs<T>(); ++o) {
    const auto weights = static_cast<ValueId>(in.size() + o);
    fed[weights] = testing::sample_values({out[o]}, DType::f32, weights);
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
    const std::int64_t count = std::min(n, probes(sample, in, out));
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t element = count == 1 ? 0 : k * (n - 1) / (count - 1);
      SCOPED_TRACE(fmt::format("element {}", element));
      Reals direction(grad.size(), 0.0);
      direction[static_cast<std::size_t>(element)] = 1.0;
      check_along(wrt[p].id, grad, direction);
    }
  }
}

TYPED_TEST(EveryDifferentiable, GradientAgreesWithFiniteDifferences) {
  const std::vector<Sample<TypeParam>> samples = TypeParam::samples();
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if constexpr (PartlyDifferentiable<TypeParam>)
      if (!samples[s].op.has_gradient()) continue;
    std::vector<TensorType> types;
    for (const SampleInput& input : samples[s].inputs) types.push_back(input.type);
    SCOPED_TRACE(fmt::format("{}, sample {}: {}", TypeParam::name, s, list_of(types)));
    check_gradient(samples[s], types);
  }
}

}  // namespace
}  // namespace ridge
