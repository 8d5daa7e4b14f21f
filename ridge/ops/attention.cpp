#include "ridge/ops/attention.h"

#include <cmath>
#include <limits>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

TensorType with_columns(const TensorType& x, std::int64_t columns) {
  return {x.dtype, {x.shape[0], x.shape[1], columns}};
}

TensorType lse_type(const AttentionHeads& heads, const TensorType& x) {
  return {DType::f32, {x.shape[0], heads.n_heads, x.shape[1]}};
}

void check_heads(std::string_view op, const AttentionHeads& heads) {
  if (heads.n_heads < 1 || heads.n_kv_heads < 1 || heads.n_heads % heads.n_kv_heads != 0)
    throw ShapeError("{}: {} query heads do not divide among {} key heads", op, heads.n_heads,
                     heads.n_kv_heads);
  if (heads.head_dim < 1) throw ShapeError("{}: head_dim is {}, below 1", op, heads.head_dim);
  if (heads.rope_theta != 0.0f && heads.head_dim % 2 != 0)
    throw ShapeError("{}: the rotary embedding rotates pairs, and a head_dim of {} is odd", op,
                     heads.head_dim);
}

// Operands `first` and up are qkv, or q, k and v.
void check_qkv(std::string_view op, const AttentionHeads& heads, Types in, std::size_t first) {
  check_heads(op, heads);
  const bool packed = in.size() == first + 1;
  if (!packed) check_count(op, in, first + 3);
  check_dtype(op, in, first, f32_and_16_bit);
  if (in[first].shape.rank() != 3)
    throw ShapeError("{}: operand {} is not [batch, position, column]: {}", op, first, list_of(in));
  const std::int64_t q = heads.q_dim(), kv = heads.kv_dim();
  check_type(op, in, first, with_columns(in[first], packed ? q + 2 * kv : q));
  for (std::size_t i = first + 1; i < in.size(); ++i)
    check_type(op, in, i, with_columns(in[first], kv));
}

// The work of `products` products of [S, d] and [d, S] extents for each query head, and
// `each_score` operations on each score besides. As in MatMul, the mask spares products only.
Cost cost_of(const AttentionHeads& heads, Types in, Types out, const TensorType& x,
             std::int64_t products, std::int64_t each_score, std::int64_t other) {
  const std::int64_t seq = x.shape[1], matrices = x.shape[0] * heads.n_heads;
  const std::int64_t macs = products * matrices * heads.head_dim;
  const std::int64_t rest = matrices * seq * seq * each_score + other;
  Cost cost = streaming_cost(2 * macs * seq * seq + rest, in, out);
  cost.macs = macs * seq * seq;
  if (heads.causal) cost.causal_flops = 2 * macs * (seq * (seq + 1) / 2) + rest;
  return cost;
}

// Six operations for each pair of the queries and keys, as in Rope.
std::int64_t rotation_flops(const AttentionHeads& heads, const TensorType& x) {
  if (heads.rope_theta == 0.0f) return 0;
  return 6 * (x.shape[0] * x.shape[1] * (heads.q_dim() + heads.kv_dim()) / 2);
}

// One head's [position, column] matrix within a tensor of the oracle.
struct HeadMatrix {
  const ReferenceTensor* tensor;
  std::int64_t offset, stride;

  double& operator()(std::int64_t s, std::int64_t c) const {
    return (*tensor)[offset + s * stride + c];
  }
};

HeadMatrix head_matrix(std::span<const ReferenceTensor> tensors, const HeadColumns& layout,
                       std::int64_t batch, std::int64_t head, std::int64_t head_dim) {
  const ReferenceTensor& tensor = tensors[layout.operand];
  const std::int64_t first = batch * tensor.shape[1];
  return {&tensor, layout.offset + first * layout.stride + head * head_dim, layout.stride};
}

using Matrix = std::vector<std::vector<double>>;

// Rotates the pairs of row s by s * theta^(-c / d), or back.
void rotate(Matrix& x, double theta, double direction) {
  for (std::size_t s = 0; s < x.size(); ++s)
    for (std::size_t c = 0; c + 1 < x[s].size(); c += 2) {
      const double exponent = -static_cast<double>(c) / static_cast<double>(x[s].size());
      const double angle = direction * static_cast<double>(s) * std::pow(theta, exponent);
      const double x0 = x[s][c], x1 = x[s][c + 1];
      x[s][c] = x0 * std::cos(angle) - x1 * std::sin(angle);
      x[s][c + 1] = x0 * std::sin(angle) + x1 * std::cos(angle);
    }
}

Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return Matrix(static_cast<std::size_t>(rows),
                std::vector<double>(static_cast<std::size_t>(columns), 0.0));
}

Matrix rotated(const HeadMatrix& x, std::int64_t rows, std::int64_t columns, double theta) {
  Matrix y = zeros(rows, columns);
  for (std::size_t s = 0; s < y.size(); ++s)
    for (std::size_t c = 0; c < y[s].size(); ++c)
      y[s][c] = x(static_cast<std::int64_t>(s), static_cast<std::int64_t>(c));
  if (theta != 0.0) rotate(y, theta, 1.0);
  return y;
}

// to += x rotated back.
void add_rotated_back(Matrix x, const HeadMatrix& to, double theta) {
  if (theta != 0.0) rotate(x, theta, -1.0);
  for (std::size_t s = 0; s < x.size(); ++s)
    for (std::size_t c = 0; c < x[s].size(); ++c)
      to(static_cast<std::int64_t>(s), static_cast<std::int64_t>(c)) += x[s][c];
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

}  // namespace

AttentionLayout attention_layout(const AttentionHeads& heads, bool packed) {
  const std::int64_t q = heads.q_dim(), kv = heads.kv_dim(), row = q + 2 * kv;
  if (packed) return {{0, 0, row}, {0, q, row}, {0, q + kv, row}};
  return {{0, 0, q}, {1, 0, kv}, {2, 0, kv}};
}

std::vector<TensorType> Attention::infer(Types in) const {
  check_qkv(name, *this, in, 0);
  return {with_columns(in[0], q_dim()), lse_type(*this, in[0])};
}

Cost Attention::cost(Types in, Types out) const {
  // Products: q k, p v. Per score: scale, and as in Softmax. Per query: the logarithm and a sum.
  return cost_of(*this, in, out, in[0], 2, 5, 2 * out[1].numel() + rotation_flops(*this, in[0]));
}

std::vector<Value> Attention::grad(GradBuilder& b) const {
  std::vector<Value> operands{b.grad(), b.output(0), b.output(1)};
  for (std::size_t i = 0; i < b.input_count(); ++i) operands.push_back(b.input(i));
  return b.graph().apply(AttentionGrad{*this}, operands);
}

void Attention::reference(ReferenceCall& call) const {
  const auto &y = call.outputs[0], &lse = call.outputs[1];
  const AttentionLayout at = attention_layout(*this, call.inputs.size() == 1);
  const std::int64_t batch = y.shape[0], seq = y.shape[1], d = head_dim;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < n_heads; ++h) {
      const Matrix q = rotated(head_matrix(call.inputs, at.q, b, h, d), seq, d, rope_theta);
      const Matrix k =
          rotated(head_matrix(call.inputs, at.k, b, h / group(), d), seq, d, rope_theta);
      const Matrix v = rotated(head_matrix(call.inputs, at.v, b, h / group(), d), seq, d, 0.0);
      const HeadMatrix out = head_matrix(call.outputs, {0, 0, q_dim()}, b, h, d);
      for (std::int64_t i = 0; i < seq; ++i) {
        const std::int64_t keys = causal ? i + 1 : seq;
        std::vector<double> s(static_cast<std::size_t>(keys));
        double max = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::size_t j = 0; j < s.size(); ++j) {
          s[j] = scale * dot(q[static_cast<std::size_t>(i)], k[j]);
          max = std::max(max, s[j]);
        }
        for (double& p : s) sum += p = std::exp(p - max);
        for (std::int64_t c = 0; c < d; ++c) {
          out(i, c) = 0;
          for (std::size_t j = 0; j < s.size(); ++j)
            out(i, c) += s[j] / sum * v[j][static_cast<std::size_t>(c)];
        }
        lse[(b * n_heads + h) * seq + i] = max + std::log(sum);
      }
    }
}

std::vector<TensorType> AttentionGrad::infer(Types in) const {
  const Operands at = operands(in.size());
  check_count(name, in, at.count);
  check_qkv(name, *this, in, at.q);
  const TensorType& x = in[at.q];
  check_type(name, in, at.dy, with_columns(x, q_dim()));
  check_same_type(name, in, at.y, at.dy);
  check_type(name, in, at.lse, lse_type(*this, x));
  return {in.begin() + at.q, in.end()};
}

Cost AttentionGrad::cost(Types in, Types out) const {
  const TensorType& x = in[operands(in.size()).q];
  // Products: q k again, dy v, and those of dq, dk and dv. Per score: scale, less lse, exp; then
  // less the sum of dy y, times p. Per element of y: a product and a sum. Queries and keys are
  // rotated, and their gradients are rotated back and scaled.
  const std::int64_t scaled = x.shape[0] * x.shape[1] * (q_dim() + kv_dim());
  return cost_of(*this, in, out, x, 5, 5,
                 2 * in[operands(in.size()).y].numel() + scaled + 2 * rotation_flops(*this, x));
}

void AttentionGrad::reference(ReferenceCall& call) const {
  const Operands operand = operands(call.inputs.size());
  const auto &dy = call.inputs[operand.dy], &lse = call.inputs[operand.lse];
  const auto qkv = call.inputs.subspan(operand.q);
  const AttentionLayout at = attention_layout(*this, qkv.size() == 1);
  const std::int64_t batch = dy.shape[0], seq = dy.shape[1], d = head_dim;
  for (const ReferenceTensor& out : call.outputs)
    for (std::int64_t i = 0; i < out.shape.numel(); ++i) out[i] = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < n_heads; ++h) {
      const std::int64_t kv = h / group();
      const Matrix q = rotated(head_matrix(qkv, at.q, b, h, d), seq, d, rope_theta);
      const Matrix k = rotated(head_matrix(qkv, at.k, b, kv, d), seq, d, rope_theta);
      const Matrix v = rotated(head_matrix(qkv, at.v, b, kv, d), seq, d, 0.0);
      const HeadColumns of_y{0, 0, q_dim()};
      const Matrix g =
          rotated(head_matrix(call.inputs.subspan(operand.dy), of_y, b, h, d), seq, d, 0.0);
      const Matrix y =
          rotated(head_matrix(call.inputs.subspan(operand.y), of_y, b, h, d), seq, d, 0.0);
      Matrix dq = zeros(seq, d), dk = zeros(seq, d), dv = zeros(seq, d);
      for (std::size_t i = 0; i < q.size(); ++i)
        for (std::size_t j = 0; j < (causal ? i + 1 : k.size()); ++j) {
          const double log_sum = lse[(b * n_heads + h) * seq + static_cast<std::int64_t>(i)];
          const double p = std::exp(scale * dot(q[i], k[j]) - log_sum);
          const double ds = scale * p * (dot(g[i], v[j]) - dot(g[i], y[i]));
          for (std::size_t c = 0; c < q[i].size(); ++c) {
            dq[i][c] += ds * k[j][c];
            dk[j][c] += ds * q[i][c];
            dv[j][c] += p * g[i][c];
          }
        }
      add_rotated_back(dq, head_matrix(call.outputs, at.q, b, h, d), rope_theta);
      add_rotated_back(dk, head_matrix(call.outputs, at.k, b, kv, d), rope_theta);
      add_rotated_back(dv, head_matrix(call.outputs, at.v, b, kv, d), 0.0);
    }
}

namespace {

struct SampleCase {
  AttentionHeads heads;
  std::int64_t batch, seq;
  bool packed;
};

// Every size that is less, as much or more than a vector, a tile or a block; groups of 1, 2 and 4.
std::vector<SampleCase> sample_cases() {
  std::vector<SampleCase> cases{
      {{1, 1, 8}, 1, 1, true},    {{2, 1, 6}, 2, 17, false},  {{4, 2, 8}, 1, 33, true},
      {{4, 1, 32}, 1, 70, true},  {{2, 2, 64}, 1, 70, false}, {{4, 2, 32}, 2, 17, false},
      {{1, 1, 64}, 1, 130, true}, {{2, 1, 1}, 3, 5, true},    {{1, 1, 34}, 1, 64, false},
  };
  const std::size_t plain = cases.size();
  for (std::size_t i = 0; i < plain; ++i) {
    SampleCase c = cases[i];
    cases[i].heads.causal = i % 2 == 0;
    c.heads.causal = i % 2 != 0;
    if (c.heads.head_dim % 2 == 0) c.heads.rope_theta = i % 3 == 0 ? 500.0f : 10000.0f;
    c.packed = !c.packed;
    cases.push_back(c);
  }
  for (SampleCase& c : cases)
    c.heads.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.heads.head_dim)));
  cases[2].heads.scale = 1.0f;  // any will do
  return cases;
}

std::vector<SampleInput> qkv_inputs(const SampleCase& c) {
  auto input = [&](std::int64_t columns) {
    return SampleInput{{DType::f32, {c.batch, c.seq, columns}}};
  };
  const std::int64_t q = c.heads.q_dim(), kv = c.heads.kv_dim();
  if (c.packed) return {input(q + 2 * kv)};
  return {input(q), input(kv), input(kv)};
}

}  // namespace

std::vector<Sample<Attention>> Attention::samples() {
  std::vector<Sample<Attention>> samples;
  for (const SampleCase& c : sample_cases()) samples.push_back({{c.heads}, qkv_inputs(c)});
  return samples;
}

std::vector<Sample<AttentionGrad>> AttentionGrad::samples() {
  std::vector<Sample<AttentionGrad>> samples;
  for (const SampleCase& c : sample_cases()) {
    const SampleInput y{{DType::f32, {c.batch, c.seq, c.heads.q_dim()}}};
    // About as large as that of S scores around 0, so that no probability is far from 1 / S.
    const double typical = std::log(static_cast<double>(c.seq));
    std::vector<SampleInput> inputs{y, y, {lse_type(c.heads, y.type), typical, typical + 1.0}};
    for (const SampleInput& input : qkv_inputs(c)) inputs.push_back(input);
    samples.push_back({{c.heads}, inputs});
  }
  return samples;
}

Value attention(Value qkv, const AttentionHeads& heads) {
  return qkv.graph->apply(Attention{heads}, std::array{qkv})[0];
}

Value attention(Value q, Value k, Value v, const AttentionHeads& heads) {
  return q.graph->apply(Attention{heads}, std::array{q, k, v})[0];
}

static_assert(Operator<Attention> && Differentiable<Attention>);
static_assert(Operator<AttentionGrad>);

}  // namespace ridge
