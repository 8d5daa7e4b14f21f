#include "ridge/ops/window_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// Operand `at` is qkv, and the one after it the bias. Returns the type of y.
TensorType check_operands(std::string_view op, const WindowHeads& heads, Types in, std::size_t at) {
  check_rank(op, in, at, 4);
  check_dtype(op, in, at, f32_and_16_bit);
  const Shape& x = in[at].shape;
  if (heads.n_heads < 1 || x[3] % (3 * heads.n_heads) != 0)
    throw ShapeError("{}: the channels of {} are no queries, keys and values of {} heads", op,
                     in[at].to_string(), heads.n_heads);
  if (heads.side < 1 || x[1] % heads.side != 0 || x[2] % heads.side != 0)
    throw ShapeError("{}: {} does not divide into windows of {} x {}", op, in[at].to_string(),
                     heads.side, heads.side);
  for (const std::int64_t shift : {heads.shift_down, heads.shift_across})
    if (shift < 0 || shift >= heads.side || (heads.spread && shift != 0))
      throw ShapeError("{}: no shift by {} of {}windows of side {}", op, shift,
                       heads.spread ? "spread " : "", heads.side);
  check_type(op, in, at + 1, {in[at].dtype, {heads.n_heads, heads.positions(), heads.positions()}});
  return {in[at].dtype, {x[0], x[1], x[2], x[3] / 3}};
}

// `products` of two matrices for each window and head, and `each_score` operations on scores.
Cost cost_of(const WindowHeads& heads, const Shape& y, std::int64_t products,
             std::int64_t each_score, Types in, Types out) {
  const std::int64_t pixels = y[0] * y[1] * y[2], scores = pixels * heads.positions();
  const std::int64_t macs = products * scores * y[3];
  Cost cost = streaming_cost(2 * macs + each_score * scores * heads.n_heads, in, out);
  cost.macs = macs;
  return cost;
}

// One head of one window.
class Patch {
 public:
  Patch(const WindowHeads& heads, const Shape& y, std::int64_t n, int window, std::int64_t head)
      : heads_(heads),
        grid_(heads, y),
        window_(window),
        head_(head),
        head_dim_(y[3] / heads.n_heads),
        first_(n * y[1] * y[2]) {}

  std::int64_t positions() const { return heads_.positions(); }
  std::int64_t head_dim() const { return head_dim_; }
  // Element (p, c) of an operand of `parts` times the channels of y, in its part `part`.
  std::int64_t at(std::int64_t p, std::int64_t c, std::int64_t parts, std::int64_t part) const {
    const std::int64_t pixel = first_ + grid_.pixel(window_, static_cast<int>(p));
    return ((pixel * parts + part) * heads_.n_heads + head_) * head_dim_ + c;
  }
  std::int64_t bias_at(std::int64_t p, std::int64_t q) const {
    return (head_ * positions() + p) * positions() + q;
  }

  // The probabilities [p, q].
  std::vector<double> probabilities(const ReferenceTensor& qkv, const ReferenceTensor& bias) const {
    std::vector<double> all;
    for (std::int64_t p = 0; p < positions(); ++p) {
      std::vector<double> row;
      for (std::int64_t q = 0; q < positions(); ++q) row.push_back(score(qkv, bias, p, q));
      const double max = *std::ranges::max_element(row);
      double sum = 0;
      for (double& s : row) sum += s = std::exp(s - max);
      for (const double s : row) all.push_back(s / sum);
    }
    return all;
  }

 private:
  double score(const ReferenceTensor& qkv, const ReferenceTensor& bias, std::int64_t p,
               std::int64_t q) const {
    const auto part = [&](std::int64_t i) { return grid_.part(static_cast<int>(i)); };
    if (((part(p) ^ part(q)) & grid_.seams(window_)) != 0)
      return -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (std::int64_t c = 0; c < head_dim_; ++c) sum += qkv[at(p, c, 3, 0)] * qkv[at(q, c, 3, 1)];
    return heads_.scale * sum + bias[bias_at(p, q)];
  }

  const WindowHeads& heads_;
  WindowGrid grid_;
  int window_;
  std::int64_t head_, head_dim_, first_;
};

// Calls f(patch) for each head of each window of the images whose y has this shape.
template <class F>
void for_each_patch(const WindowHeads& heads, const Shape& y, const F& f) {
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (int w = 0; w < WindowGrid(heads, y).windows(); ++w)
      for (std::int64_t h = 0; h < heads.n_heads; ++h) f(Patch(heads, y, n, w, h));
}

struct SampleCase {
  WindowHeads heads;
  std::int64_t n, rows, columns, head_dim;  // windows of an image
};

std::vector<SampleCase> sample_cases() {
  std::vector<SampleCase> cases{
      {{.n_heads = 1, .side = 1}, 1, 1, 1, 1},
      {{.n_heads = 2, .side = 2, .shift_down = 1, .shift_across = 1}, 2, 2, 3, 5},
      {{.n_heads = 1, .side = 3, .shift_across = 2}, 1, 1, 2, 8},
      {{.n_heads = 3, .side = 2, .spread = true}, 2, 3, 2, 4},
      {{.n_heads = 3, .side = 7}, 1, 2, 2, 32},
      {{.n_heads = 2, .side = 7, .shift_down = 3, .shift_across = 3}, 2, 2, 3, 32},
      {{.n_heads = 2, .side = 7, .spread = true}, 1, 2, 2, 32},
      {{.n_heads = 2, .side = 8, .shift_down = 4}, 1, 2, 2, 32},
      {{.n_heads = 1, .side = 5, .shift_down = 2, .shift_across = 2}, 1, 2, 1, 24},
  };
  for (SampleCase& c : cases)
    c.heads.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
  return cases;
}

std::vector<SampleInput> operands(const SampleCase& c) {
  const std::int64_t side = c.heads.side, positions = c.heads.positions();
  return {{{DType::f32, {c.n, c.rows * side, c.columns * side, 3 * c.heads.n_heads * c.head_dim}}},
          {{DType::f32, {c.heads.n_heads, positions, positions}}}};
}

}  // namespace

WindowGrid::WindowGrid(const WindowHeads& heads, const Shape& image)
    : height(static_cast<int>(image[1])),
      width(static_cast<int>(image[2])),
      rows(static_cast<int>(image[1] / heads.side)),
      columns(static_cast<int>(image[2] / heads.side)),
      side(static_cast<int>(heads.side)),
      shift_down(static_cast<int>(heads.shift_down)),
      shift_across(static_cast<int>(heads.shift_across)),
      spread(heads.spread) {}

std::vector<TensorType> WindowAttention::infer(Types in) const {
  check_count(name, in, 2);
  return {check_operands(name, *this, in, 0)};
}

Cost WindowAttention::cost(Types in, Types out) const {
  // Per score: scale, bias, and as in Softmax.
  return cost_of(*this, out[0].shape, 2, 6, in, out);
}

std::vector<Value> WindowAttention::grad(GradBuilder& b) const {
  return b.graph().apply(WindowAttentionGrad{*this}, std::array{b.grad(), b.input(0), b.input(1)});
}

void WindowAttention::reference(ReferenceCall& call) const {
  const auto &qkv = call.inputs[0], &bias = call.inputs[1], &y = call.outputs[0];
  for_each_patch(*this, y.shape, [&](const Patch& patch) {
    const std::int64_t positions = patch.positions();
    const std::vector<double> weights = patch.probabilities(qkv, bias);
    for (std::int64_t p = 0; p < positions; ++p)
      for (std::int64_t c = 0; c < patch.head_dim(); ++c) {
        double sum = 0;
        for (std::int64_t q = 0; q < positions; ++q)
          sum += weights[static_cast<std::size_t>(p * positions + q)] * qkv[patch.at(q, c, 3, 2)];
        y[patch.at(p, c, 1, 0)] = sum;
      }
  });
}

std::vector<Sample<WindowAttention>> WindowAttention::samples() {
  std::vector<Sample<WindowAttention>> samples;
  for (const SampleCase& c : sample_cases()) samples.push_back({{c.heads}, operands(c)});
  return samples;
}

std::vector<TensorType> WindowAttentionGrad::infer(Types in) const {
  check_count(name, in, 3);
  check_type(name, in, 0, check_operands(name, *this, in, 1));
  return {in[1], in[2]};
}

Cost WindowAttentionGrad::cost(Types in, Types out) const {
  // Products: scores, dp, dq, dk and dv. Per score: scale, bias, softmax (4), a product and a sum
  // over the row, a difference, a product, and the sum over windows.
  return cost_of(*this, in[0].shape, 5, 11, in, out);
}

void WindowAttentionGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &qkv = call.inputs[1], &bias = call.inputs[2];
  const auto &dqkv = call.outputs[0], &dbias = call.outputs[1];
  std::ranges::fill(dqkv.data, 0.0);
  std::ranges::fill(dbias.data, 0.0);
  for_each_patch(*this, dy.shape, [&](const Patch& patch) {
    const std::int64_t positions = patch.positions(), d = patch.head_dim();
    const std::vector<double> weights = patch.probabilities(qkv, bias);
    for (std::int64_t p = 0; p < positions; ++p) {
      const double* const row = &weights[static_cast<std::size_t>(p * positions)];
      std::vector<double> dp(static_cast<std::size_t>(positions), 0.0);
      double mean = 0;
      for (std::size_t q = 0; q < dp.size(); ++q) {
        for (std::int64_t c = 0; c < d; ++c)
          dp[q] += dy[patch.at(p, c, 1, 0)] * qkv[patch.at(static_cast<std::int64_t>(q), c, 3, 2)];
        mean += row[q] * dp[q];
      }
      for (std::int64_t q = 0; q < positions; ++q) {
        const double ds = row[q] * (dp[static_cast<std::size_t>(q)] - mean);
        dbias[patch.bias_at(p, q)] += ds;
        for (std::int64_t c = 0; c < d; ++c) {
          dqkv[patch.at(p, c, 3, 0)] += scale * ds * qkv[patch.at(q, c, 3, 1)];
          dqkv[patch.at(q, c, 3, 1)] += scale * ds * qkv[patch.at(p, c, 3, 0)];
          dqkv[patch.at(q, c, 3, 2)] += row[q] * dy[patch.at(p, c, 1, 0)];
        }
      }
    }
  });
}

std::vector<Sample<WindowAttentionGrad>> WindowAttentionGrad::samples() {
  std::vector<Sample<WindowAttentionGrad>> samples;
  for (const SampleCase& c : sample_cases()) {
    std::vector<SampleInput> inputs = operands(c);
    const Shape& x = inputs[0].type.shape;
    inputs.insert(inputs.begin(), SampleInput{{DType::f32, {x[0], x[1], x[2], x[3] / 3}}});
    samples.push_back({{c.heads}, inputs});
  }
  return samples;
}

Value window_attention(Value qkv, Value bias, const WindowHeads& heads) {
  return qkv.graph->apply1(WindowAttention{heads}, {qkv, bias});
}

static_assert(Operator<WindowAttention> && Differentiable<WindowAttention>);
static_assert(Operator<WindowAttentionGrad>);

}  // namespace ridge
