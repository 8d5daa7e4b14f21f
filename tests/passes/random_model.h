#pragma once

// Random models: valid forward graphs full of what the passes look for, of what only resembles it,
// and of what lies between. The same seed gives the same model.

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/op.h"

namespace ridge {

class RandomModel {
 public:
  RandomModel(Graph& graph, std::uint64_t seed) : graph_(graph), random_(seed) {
    batch_ = pick(1, 2);
    seq_ = pick(1, 5);
    kv_ = pick(1, 2);
    heads_ = kv_ * pick(1, 2);
    dim_ = 2 * pick(1, 2);
    width_ = heads_ * dim_;
    half_ = pick(0, 3) == 0;
    const Value tokens = graph.input("tokens", {DType::i32, {batch_, seq_}});
    const Value targets = graph.input("targets", {DType::i32, {batch_, seq_}});
    streams_.push_back(embedding(weight({vocabulary, width_}), tokens));
    const std::int64_t blocks = pick(1, 4);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const Scope scope(graph, fmt::format("layers.{}", i), ScopeKind::block);
      grow();
    }
    Value all = streams_[0];
    for (std::size_t i = 1; i < streams_.size(); ++i) all = add(all, streams_[i]);
    const Value logits = ridge::project(norm(all), cast(weight({vocabulary, width_}), compute()));
    loss = cross_entropy(logits, targets);
    graph.keep(loss, "loss");
  }

  static constexpr std::int64_t vocabulary = 5;
  Value loss;

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool maybe() { return pick(0, 3) == 0; }
  DType compute() const { return half_ ? DType::bf16 : DType::f32; }

  Value weight(Shape shape) {
    return graph_.parameter(fmt::format("w{}", parameters_++), shape, Init::normal(0.5f));
  }
  Value project(Value x, std::int64_t out, Value shared = {}) {
    const Scope scope(graph_, fmt::format("p{}", parameters_));
    const Value w = shared ? shared : weight({out, x.shape()[-1]});
    return ridge::project(x, cast(w, x.dtype()));
  }
  // Some values are used a second time, by another stream, or not at all.
  Value noted(Value x) {
    if (maybe() && x.shape() == streams_[0].shape()) streams_.push_back(cast(x, DType::f32));
    if (maybe()) scale(x, 2.0f);
    return x;
  }
  Value norm(Value x) {
    const Value y = noted(rms_norm(x, weight({width_}), maybe() ? 1e-5f : 1e-6f));
    return cast(y, compute());
  }
  Value split(Value x, std::int64_t heads) {
    return permute(reshape(x, {batch_, seq_, heads, dim_}), {0, 2, 1, 3});
  }

  Value attention(Value x) {
    const Scope scope(graph_, "attention", ScopeKind::attention);
    Value q = split(noted(project(x, heads_ * dim_)), heads_);
    Value k = split(project(x, kv_ * dim_), kv_);
    const Value v = split(noted(project(x, kv_ * dim_)), kv_);
    if (!maybe()) q = rope(q, 10000.0f);
    if (!maybe()) k = rope(k, maybe() ? 100.0f : 10000.0f);
    q = reshape(q, {batch_, kv_, heads_ / kv_ * seq_, dim_});
    Value scores = matmul(q, k, {.trans_b = true, .causal = CausalPart::output});
    if (!maybe()) scores = scale(scores, 0.5f);
    scores = noted(scores);
    scores = causal_mask(reshape(scores, {batch_, heads_, seq_, seq_}));
    const Value weights = noted(reshape(softmax(scores), {batch_, kv_, heads_ / kv_ * seq_, seq_}));
    Value y = matmul(weights, v, {.causal = CausalPart::lhs});
    y = permute(reshape(y, {batch_, heads_, seq_, dim_}), {0, 2, 1, 3});
    return project(noted(reshape(y, {batch_, seq_, width_})), width_);
  }

  Value feed_forward(Value x) {
    const Scope scope(graph_, "feed_forward");
    const std::int64_t inner = pick(1, 6);
    const Value g = project(x, inner);
    const Value gate = maybe() ? relu(g) : silu(g);
    const std::int64_t kind = pick(0, 10);
    const Value up = kind == 0 ? gate : kind == 1 ? silu(gate) : project(x, inner);
    return project(maybe() ? mul(up, gate) : mul(gate, up), width_);
  }

  // Linear layers with what may follow them in any order, and with what may not.
  Value layer(Value x, std::int64_t out) {
    Value y = project(x, out);
    const auto bias = [&] { return cast(weight({out}), x.dtype()); };
    const std::int64_t terms = pick(0, 3);
    if (terms == 1) y = add(y, bias());
    if (terms == 2 && x.shape() == y.shape()) y = maybe() ? add(x, y) : add(y, x);
    if (terms == 3) y = maybe() ? add(add(bias(), y), y) : add(add(y, bias()), project(x, out));
    y = noted(y);
    const std::int64_t kind = pick(0, 4);
    if (kind == 1) y = relu(y);
    if (kind == 2) y = silu(y);
    if (kind == 3) y = activation(y, ActivationKind::gelu);
    if (kind == 4) y = activation(y, ActivationKind::hard_swish);
    return y;
  }
  Value biased(Value x) {
    const Scope scope(graph_, "biased");
    return layer(layer(x, maybe() ? width_ : pick(1, 6)), width_);
  }

  // Elementwise operators in a row, some of them twice the same.
  Value pointwise(Value x) {
    const Value first = x;
    const std::int64_t length = pick(1, 5);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t kind = pick(0, 7);
      if (kind == 5) x = add(cast(weight({width_}), x.dtype()), x);
      if (kind == 6) x = mul(x, cast(weight({seq_, 1}), x.dtype()));
      if (kind == 7) x = activation(x, ActivationKind::gelu);
      if (kind == 0) x = scale(x, 0.75f);
      if (kind == 1) x = silu(x);
      if (kind == 2) x = add(x, first);
      if (kind == 3) x = mul(x, first);
      if (kind == 4) x = add(silu(x), silu(x));
    }
    return x;
  }

  // Channels as torchvision has them, before positions, in one column.
  Value image(Value x) {
    const Scope scope(graph_, "image");
    x = reshape(permute(x, {0, 2, 1}), {batch_, width_, seq_, 1});
    const Value first = x;
    const std::int64_t length = pick(2, 6);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t kind = pick(0, 10);
      if (kind <= 1) x = noted_image(convolved(x));
      if (kind <= 2) x = noted_image(maybe() ? silu(x) : relu(x));
      if (kind == 3) x = noted_image(maybe() ? add(first, x) : add(x, first));
      if (kind == 4) x = mul(silu(convolved(adaptive_avg_pool2d(x, {1, 1}))), x);
      if (kind == 5) x = shuffled(x);
      if (kind == 6) x = max_pool2d(x, {.kernel = {3, 1}, .padding = {1, 0}});
      if (kind >= 7 && batch_ * seq_ > 1) x = normed_image(x);
    }
    return permute(reshape(x, {batch_, width_, seq_}), {0, 2, 1});
  }
  // With what may follow a norm, and with what may not.
  Value normed_image(Value x) {
    const Value y = noted_image(batch_norm(x));
    const std::int64_t kind = pick(0, 6);
    if (kind == 0) return add(x, y);
    if (kind == 1) return noted_image(relu(maybe() ? add(y, x) : add(y, batch_norm(x))));
    if (kind == 2) return activation(y, maybe() ? ActivationKind::relu6 : ActivationKind::tanh);
    if (kind == 3) return silu(maybe() ? add(y, x) : y);
    if (kind == 4) return add(y, y);
    return add(convolved(y), y);  // whose gradient arrives along two paths
  }
  Value batch_norm(Value x) {
    const auto state = [&](const char* name) {
      return graph_.state(fmt::format("{}{}", name, parameters_++), {DType::f32, {width_}},
                          Role::buffer, Init::zeros());
    };
    return batch_norm_train(x, weight({width_}), weight({width_}), state("mean"),
                            state("variance"));
  }
  Value noted_image(Value x) {
    if (maybe()) scale(x, 2.0f);
    return x;
  }
  Value convolved(Value x) {
    const std::int64_t rows = maybe() ? 1 : 3, groups = maybe() ? width_ : 1;
    const Value w = cast(weight({width_, width_ / groups, rows, 1}), x.dtype());
    const Value bias = maybe() ? cast(weight({width_}), x.dtype()) : Value{};
    return conv2d(x, w, bias, {.padding = {rows / 2, 0}, .groups = groups});
  }
  // Channels of two halves in turn, or the halves exchanged.
  Value shuffled(Value x) {
    const std::int64_t half = width_ / 2;
    if (maybe()) return concat({{window(x, 1, half, half), window(x, 1, 0, half)}}, 1);
    x = permute(reshape(x, {batch_, 2, half, seq_}), {0, 2, 1, 3});
    return reshape(x, {batch_, width_, seq_, 1});
  }

  void grow() {
    const auto from =
        static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(streams_.size()) - 1));
    const Value x = streams_[from];
    const Value h = norm(x);
    const std::int64_t kind = pick(0, 5);
    Value delta = h;
    if (kind <= 1) delta = attention(h);
    if (kind == 2) delta = feed_forward(h);
    if (kind == 3) delta = pointwise(h);
    if (kind == 4) delta = image(h);
    if (kind == 5) delta = maybe() ? biased(h) : add(h, window(biased(h), 1, pick(0, seq_ - 1), 1));
    const Value sum = maybe() ? add(cast(delta, DType::f32), x) : add(x, cast(delta, DType::f32));
    streams_.push_back(kind == 0 && maybe() ? add(sum, cast(feed_forward(h), DType::f32)) : sum);
  }

  Graph& graph_;
  std::mt19937_64 random_;
  std::int64_t batch_, seq_, heads_, kv_, dim_, width_;
  bool half_;
  int parameters_ = 0;
  std::vector<Value> streams_;  // all of them reach the loss
};

}  // namespace ridge
