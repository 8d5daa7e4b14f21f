#include "ridge/models/llama/llama.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/reference.h"
#include "ridge/session/optimizer.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

struct Case {
  LlamaConfig config;
  std::int64_t batch, seq;
};

std::vector<Case> cases() {
  return {
      {{}, 8, 128},
      {{.vocab_size = 11,
        .hidden_dim = 12,
        .n_layers = 1,
        .n_heads = 2,
        .n_kv_heads = 1,
        .intermediate_dim = 7},
       1,
       1},
      {{.vocab_size = 50,
        .hidden_dim = 48,
        .n_layers = 3,
        .n_heads = 6,
        .n_kv_heads = 3,
        .intermediate_dim = 33,
        .tie_embeddings = true},
       3,
       17},
      {{.hidden_dim = 512, .n_layers = 8, .n_kv_heads = 8, .intermediate_dim = 2048}, 2, 64},
  };
}

TEST(Llama, TheDefaultHasExactlyTheWorkshopsParameters) {
  EXPECT_EQ(LlamaConfig{}.parameter_count(), 2'873'600);
}

TEST(Llama, TheGraphHoldsAsManyParametersAsTheFormulaSays) {
  for (const Case& c : cases()) {
    Graph graph;
    build_llama(graph, c.config, c.batch, c.seq);
    std::int64_t count = 0;
    for (const Value& p : graph.parameters()) count += p.type().numel();
    EXPECT_EQ(count, c.config.parameter_count());
  }
}

// Closed forms of the work of one step, written down from the model's equations and not from the
// operators' own rules. Symbols: n = B S tokens, D hidden, K key width, F intermediate, V
// vocabulary, H heads, d head size, L layers.
struct ClosedForm {
  std::int64_t n, D, K, F, V, H, S, L, B;
  bool tied;

  explicit ClosedForm(const Case& c)
      : n(c.batch * c.seq),
        D(c.config.hidden_dim),
        K(c.config.n_kv_heads * c.config.head_dim()),
        F(c.config.intermediate_dim),
        V(c.config.vocab_size),
        H(c.config.n_heads),
        S(c.seq),
        L(c.config.n_layers),
        B(c.batch),
        tied(c.config.tie_embeddings) {}

  std::int64_t projections() const {
    return 2 * n * (L * (2 * D * D + 2 * D * K + 3 * D * F) + D * V);
  }
  // Two products of every query with `keys` key positions in all, per head: 2 * 2 * d each.
  std::int64_t attention(std::int64_t pairs_per_head) const {
    return L * B * pairs_per_head * 4 * D;
  }
  std::int64_t full_pairs() const { return S * S; }
  std::int64_t causal_pairs() const { return S * (S + 1) / 2; }

  std::int64_t forward_rest() const {
    const std::int64_t norms = (2 * L + 1) * (4 * n * D + 4 * n);
    const std::int64_t rotary = L * 6 * (n * D + n * K) / 2;
    const std::int64_t scores = L * B * H * S * S * (1 + 4);  // scale and softmax
    const std::int64_t swiglu = L * n * F * (4 + 1);
    const std::int64_t residual = L * 2 * n * D;
    const std::int64_t loss = 3 * n * V + 4 * n + 1;
    return norms + rotary + scores + swiglu + residual + loss;
  }
  std::int64_t backward_rest() const {
    const std::int64_t norms = (2 * L + 1) * (9 * n * D + n);
    const std::int64_t rotary = L * 6 * (n * D + n * K) / 2;
    const std::int64_t scores = L * B * H * S * S * (1 + 4);
    const std::int64_t swiglu = L * n * F * (2 + 8);  // two products, the derivative of SiLU
    // Gradients that meet: q, k and v in the norm's output; gate and up; each residual twice.
    const std::int64_t sums = L * n * D * (2 + 1 + 2);
    const std::int64_t embedding = n * D + (tied ? V * D : 0);
    const std::int64_t loss = 3 * n * V + n + 1;
    return norms + rotary + scores + swiglu + sums + embedding + loss;
  }
};

TEST(Llama, FlopsOfAStepEqualTheClosedForms) {
  for (const Case& c : cases()) {
    Graph graph;
    const Model model = build_llama(graph, c.config, c.batch, c.seq);
    add_training_step(model.loss, {});
    const StepCost cost = cost_of_step(graph, 1);
    const ClosedForm f(c);
    const std::int64_t full = f.projections() + f.attention(f.full_pairs());
    const std::int64_t causal = f.projections() + f.attention(f.causal_pairs());
    EXPECT_EQ(cost.forward.flops, full + f.forward_rest());
    EXPECT_EQ(cost.forward.causal_flops, causal + f.forward_rest());
    EXPECT_EQ(cost.backward.flops, 2 * full + f.backward_rest());
    EXPECT_EQ(cost.backward.causal_flops, 2 * causal + f.backward_rest());
    EXPECT_EQ(cost.optimizer.flops, 14 * c.config.parameter_count());
    EXPECT_EQ(cost.total().flops, cost.forward.flops + cost.backward.flops + cost.optimizer.flops);
  }
}

TEST(Llama, AccumulationRepeatsForwardAndBackwardOnly) {
  Graph graph;
  const Model model = build_llama(graph, {}, 2, 16);
  add_training_step(model.loss, {}, {3});
  const StepCost once = cost_of_step(graph, 1), thrice = cost_of_step(graph, 3);
  EXPECT_EQ(thrice.forward.flops, 3 * once.forward.flops);
  EXPECT_EQ(thrice.backward.flops, 3 * once.backward.flops);
  EXPECT_EQ(thrice.optimizer.flops, once.optimizer.flops);
}

// The whole model's gradient against finite differences, in double precision.
TEST(Llama, GradientsAgreeWithFiniteDifferences) {
  for (const bool tied : {false, true}) {
    Graph graph;
    const LlamaConfig config{.vocab_size = 9,
                             .hidden_dim = 8,
                             .n_layers = 2,
                             .n_heads = 4,
                             .n_kv_heads = 2,
                             .intermediate_dim = 6,
                             .init_std = 0.5f,
                             .tie_embeddings = tied};
    const Model model = build_llama(graph, config, 2, 5);
    const std::vector<Value> parameters = graph.parameters();
    const std::vector<Value> grads = gradients(model.loss, parameters);

    ReferenceValues fed;
    for (std::uint64_t i = 0; i < 10; ++i) {
      fed[model.input.id].push_back(uniform_integer(9, 1, 1, i));
      fed[model.targets.id].push_back(uniform_integer(9, 1, 2, i));
    }
    for (const Value& p : parameters) {
      std::vector<float> values(static_cast<std::size_t>(p.type().numel()));
      fill_normal(values, 0.5f, 5, p.id);
      fed[p.id].assign(values.begin(), values.end());
    }
    const ReferenceValues at = evaluate_reference(graph, fed);
    constexpr double h = 1e-6;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const ValueId id = parameters[i].id;
      for (std::size_t e = 0; e < fed[id].size(); e += 5) {
        auto loss_at = [&](double shift) {
          ReferenceValues moved = fed;
          moved[id][e] += shift;
          return evaluate_reference(graph, std::move(moved)).at(model.loss.id)[0];
        };
        const double numeric = (loss_at(h) - loss_at(-h)) / (2 * h);
        const double analytic = at.at(grads[i].id)[e];
        EXPECT_NEAR(analytic, numeric, 1e-5 + 1e-3 * std::abs(numeric))
            << graph.info(id).name << " element " << e;
      }
    }
  }
}

TEST(Llama, RefusesInconsistentSizesWithTheReason) {
  auto message = [](const LlamaConfig& config) -> std::string {
    try {
      config.check();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({}), "");
  EXPECT_NE(message({.hidden_dim = 100, .n_heads = 3}).find("100"), std::string::npos);
  EXPECT_NE(message({.n_heads = 8, .n_kv_heads = 3}).find("multiple"), std::string::npos);
  EXPECT_NE(message({.hidden_dim = 24, .n_heads = 8}).find("odd head size 3"), std::string::npos);
  EXPECT_NE(message({.n_layers = 0}).find("n_layers is 0"), std::string::npos);
  EXPECT_NE(message({.vocab_size = -5}).find("-5"), std::string::npos);
}

}  // namespace
}  // namespace ridge
