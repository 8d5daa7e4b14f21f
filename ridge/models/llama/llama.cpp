#include "ridge/models/llama/llama.h"

#include <fmt/format.h>

#include <cmath>

#include "ridge/base/error.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/cross_entropy.h"
#include "ridge/ops/embedding.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/rms_norm.h"
#include "ridge/ops/rope.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/softmax.h"
#include "ridge/ops/unary.h"

namespace ridge {
namespace {

struct Builder {
  Graph& graph;
  const LlamaConfig& config;
  DType compute;
  std::int64_t batch, seq;

  Value project(Value x, std::string_view name, std::int64_t out,
                ScopeKind kind = ScopeKind::plain) const {
    const Scope scope(graph, name, kind);
    const Value weight =
        graph.parameter("weight", {out, x.shape()[-1]}, Init::normal(config.init_std));
    return ridge::project(x, cast(weight, compute));
  }

  Value norm(Value x, std::string_view name) const {
    const Scope scope(graph, name);
    const Value weight = graph.parameter("weight", {x.shape()[-1]}, Init::ones());
    return cast(rms_norm(x, weight, config.norm_eps), compute);
  }

  // [batch, seq, heads * head_dim] -> [batch, heads, seq, head_dim]
  Value split_heads(Value x, std::int64_t heads) const {
    return permute(reshape(x, {batch, seq, heads, config.head_dim()}), {0, 2, 1, 3});
  }

  Value attention(Value x) const {
    const Scope scope(graph, "attention", ScopeKind::attention);
    const std::int64_t kv = config.n_kv_heads, group = config.n_heads / kv, d = config.head_dim();
    Value q = split_heads(project(x, "q_proj", config.n_heads * d), config.n_heads);
    Value k = split_heads(project(x, "k_proj", kv * d), kv);
    const Value v = split_heads(project(x, "v_proj", kv * d), kv);
    q = rope(q, config.rope_theta);
    k = rope(k, config.rope_theta);
    // The query heads of one group follow each other, so a group's queries are one taller matrix
    // against the key head they share: no key or value is ever repeated.
    q = reshape(q, {batch, kv, group * seq, d});
    Value scores = matmul(q, k, {.trans_b = true, .causal = CausalPart::output});
    scores = scale(scores, static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))));
    scores = causal_mask(reshape(scores, {batch, config.n_heads, seq, seq}));
    const Value weights = reshape(softmax(scores), {batch, kv, group * seq, seq});
    Value y = matmul(weights, v, {.causal = CausalPart::lhs});
    y = permute(reshape(y, {batch, config.n_heads, seq, d}), {0, 2, 1, 3});
    return project(reshape(y, {batch, seq, config.hidden_dim}), "o_proj", config.hidden_dim);
  }

  Value feed_forward(Value x) const {
    const Scope scope(graph, "feed_forward", ScopeKind::feed_forward);
    const Value gate = silu(project(x, "gate_proj", config.intermediate_dim));
    const Value up = project(x, "up_proj", config.intermediate_dim);
    return project(mul(gate, up), "down_proj", config.hidden_dim);
  }

  Value block(Value x, std::int64_t layer) const {
    const Scope scope(graph, fmt::format("layers.{}", layer), ScopeKind::block);
    x = add(x, cast(attention(norm(x, "attention_norm")), DType::f32));
    return add(x, cast(feed_forward(norm(x, "ffn_norm")), DType::f32));
  }
};

void check_size(std::string_view name, std::int64_t value, std::int64_t limit) {
  if (value < 1 || value > limit)
    throw UsageError("{} is {}; it must be from 1 to {}", name, value, limit);
}

}  // namespace

void LlamaConfig::check() const {
  check_size("vocab_size", vocab_size, std::int64_t{1} << 24);
  check_size("hidden_dim", hidden_dim, std::int64_t{1} << 17);
  check_size("n_layers", n_layers, 1024);
  check_size("n_heads", n_heads, std::int64_t{1} << 12);
  check_size("n_kv_heads", n_kv_heads, std::int64_t{1} << 12);
  check_size("intermediate_dim", intermediate_dim, std::int64_t{1} << 20);
  if (hidden_dim % n_heads != 0)
    throw UsageError("hidden_dim {} does not divide into n_heads {} heads: {} are left over",
                     hidden_dim, n_heads, hidden_dim % n_heads);
  if (n_heads % n_kv_heads != 0)
    throw UsageError(
        "n_heads {} is no multiple of n_kv_heads {}: each key head serves equally many query heads",
        n_heads, n_kv_heads);
  if (head_dim() % 2 != 0)
    throw UsageError(
        "hidden_dim {} over n_heads {} gives an odd head size {}; rotary embedding rotates pairs",
        hidden_dim, n_heads, head_dim());
  if (!(norm_eps > 0 && rope_theta > 0 && init_std >= 0))
    throw UsageError("norm_eps {}, rope_theta {} and init_std {} must be positive", norm_eps,
                     rope_theta, init_std);
}

std::int64_t LlamaConfig::parameter_count() const {
  const std::int64_t kv_dim = n_kv_heads * head_dim();
  const std::int64_t layer = 2 * hidden_dim + 2 * hidden_dim * hidden_dim +
                             2 * hidden_dim * kv_dim + 3 * hidden_dim * intermediate_dim;
  return (tie_embeddings ? 1 : 2) * vocab_size * hidden_dim + n_layers * layer + hidden_dim;
}

Model build_llama(Graph& graph, const LlamaConfig& config, std::int64_t batch_size,
                  std::int64_t seq_len, DType compute) {
  config.check();
  const Builder b{graph, config, compute, batch_size, seq_len};
  Model model;
  model.input = graph.input("tokens", {DType::i32, {batch_size, seq_len}});
  model.targets = graph.input("targets", {DType::i32, {batch_size, seq_len}});

  Value table, x;
  {
    const Scope scope(graph, "embedding", ScopeKind::embedding);
    table = graph.parameter("weight", {config.vocab_size, config.hidden_dim},
                            Init::normal(config.init_std));
    x = embedding(table, model.input);
  }
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) x = b.block(x, layer);
  x = b.norm(x, "norm");
  if (config.tie_embeddings) {
    const Scope scope(graph, "output", ScopeKind::head);
    model.logits = project(x, cast(table, compute));
  } else {
    model.logits = b.project(x, "output", config.vocab_size, ScopeKind::head);
  }
  model.class_dim = 2;
  const Scope scope(graph, "loss", ScopeKind::head);
  model.loss = cross_entropy(model.logits, model.targets);
  graph.keep(model.loss, "loss");
  return model;
}

}  // namespace ridge
