#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Accumulate::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0, dtypes);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost Accumulate::cost(Types in, Types out) const {
  // Per element: one sum.
  return streaming_cost(in[0].numel(), in, out);
}

std::optional<Alias> Accumulate::aliased_input(std::uint32_t, Types) const {
  return Alias{.input = 0};
}

void Accumulate::reference(ReferenceCall& call) const {
  const auto &acc = call.inputs[0], &x = call.inputs[1], &y = call.outputs[0];
  for (std::int64_t i = 0; i < acc.shape.numel(); ++i) y[i] = acc[i] + x[i];
}

std::vector<Sample<Accumulate>> Accumulate::samples() {
  std::vector<Sample<Accumulate>> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7, 5}, Shape{3, 20011}})
    samples.push_back({{}, {{{DType::f32, shape}}, {{DType::f32, shape}}}});
  return samples;
}

std::vector<TensorType> GlobalNorm::infer(Types in) const {
  if (in.empty()) throw ShapeError("global_norm takes at least 1 operand");
  for (std::size_t i = 0; i < in.size(); ++i) check_dtype(name, in, i);
  return {{DType::f32, {}}};
}

Cost GlobalNorm::cost(Types in, Types out) const {
  // Per element: square and sum. Once: the root.
  std::int64_t elements = 0;
  for (const TensorType& type : in) elements += type.numel();
  return streaming_cost(2 * elements + 1, in, out);
}

void GlobalNorm::reference(ReferenceCall& call) const {
  double sum = 0;
  for (const ReferenceTensor& x : call.inputs)
    for (std::int64_t i = 0; i < x.shape.numel(); ++i) sum += x[i] * x[i];
  call.outputs[0][0] = std::sqrt(sum);
}

std::vector<Sample<GlobalNorm>> GlobalNorm::samples() {
  auto f32 = [](Shape shape) { return SampleInput{{DType::f32, shape}}; };
  return {{{}, {f32({})}},
          {{}, {f32({7, 5}), f32({1}), f32({13})}},
          {{}, {f32({3, 20011}), f32({16384}), f32({257})}},
          {{}, {f32({5, 13}), {{DType::bf16, {3, 20011}}}, {{DType::f16, {257}}}}}};
}

namespace {

// A gradient may have another dtype than its parameter, but not another shape.
void check_gradient(std::string_view name, Types in, std::size_t grad, const Shape& shape) {
  check_dtype(name, in, grad);
  check_type(name, in, grad, {in[grad].dtype, shape});
}

// What the optimizers of one parameter have in common.
template <class Each>
std::vector<TensorType> infer_each(const Each& op, Types in) {
  const typename Each::Operands at = op.operands();
  check_count(Each::name, in, at.count);
  check_dtype(Each::name, in, at.param, Each::dtypes);
  check_gradient(Each::name, in, at.grad, in[at.param].shape);
  for (std::size_t i = at.grad + 1; i < at.schedule; ++i)
    check_same_type(Each::name, in, at.param, i);
  check_type(Each::name, in, at.schedule, op.schedule_type());
  if (op.max_norm > 0) check_type(Each::name, in, at.norm, {DType::f32, {}});
  return std::vector<TensorType>(1 + Each::moments, in[0]);
}

// The parameter's memory, then those of its moments, which come after the gradient.
std::optional<Alias> alias_of_each(std::uint32_t output) {
  return Alias{.input = output == 0 ? 0 : output + 1};
}

// What the gradient is multiplied by.
template <class Each>
double gradient_factor(const Each& op, const ReferenceCall& call) {
  const typename Each::Operands at = op.operands();
  const double unscale = op.scaled ? call.inputs[at.schedule][3] : 1.0;
  if (op.max_norm == 0) return unscale;
  return unscale * std::min(1.0, op.max_norm / (call.inputs[at.norm][0] * unscale + 1e-6));
}

// Whether the step is one to skip, which leaves all as it was.
template <class Each>
bool is_skipped(const Each& op, ReferenceCall& call) {
  if (!op.scaled || call.inputs[op.operands().schedule][3] != 0) return false;
  for (std::uint32_t out = 0; out < call.outputs.size(); ++out)
    std::ranges::copy(call.inputs[alias_of_each(out)->input].data, call.outputs[out].data.begin());
  return true;
}

// The least value of a sample's last moment.
template <class Each>
constexpr double least_last_moment = -1.0;
template <>
constexpr double least_last_moment<AdamW> = 0.01;  // that of squares

// Each of these options, on a single element, a few and several blocks.
template <class Each>
std::vector<Sample<Each>> samples_of_each(std::initializer_list<Each> ops) {
  std::vector<Sample<Each>> samples;
  const auto add = [&](const Each& op, const Shape& shape, DType gradient = DType::f32) {
    const TensorType type{DType::f32, shape};
    Sample<Each> sample{op, std::vector<SampleInput>(1 + Each::moments, {type})};
    sample.inputs[op.operands().grad].type.dtype = gradient;
    sample.inputs.push_back({type, least_last_moment<Each>, 1.0});
    sample.inputs.push_back({op.schedule_type(), 0.1, 0.9});
    // Norms on both sides of the limit.
    if (op.max_norm > 0) sample.inputs.push_back({{DType::f32, {}}, 0.5, 3.0});
    samples.push_back(sample);
  };
  for (const Each& op : ops)
    for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{3, 20011}}) add(op, shape);
  add(*ops.begin(), {3, 20011}, DType::bf16);
  add(*(ops.end() - 1), {7, 5}, DType::f16);
  return samples;
}

}  // namespace

std::vector<TensorType> AdamW::infer(Types in) const { return infer_each(*this, in); }
std::vector<TensorType> Sgd::infer(Types in) const { return infer_each(*this, in); }

std::int64_t AdamW::flops_per_element() const {
  // Decay (1), exp_avg (3), exp_avg_sq (4), root, correction and eps (3), quotient, step and
  // difference (3), clipping or scaling (1). The few scalars made once a launch are not counted.
  return max_norm > 0 || scaled ? 15 : 14;
}

std::int64_t Sgd::flops_per_element() const {
  // Momentum (2), step and difference (2); decay of the weight, Nesterov's look ahead, clipping or
  // scaling.
  return 4 + (weight_decay != 0 ? 2 : 0) + (nesterov ? 2 : 0) + (max_norm > 0 || scaled ? 1 : 0);
}

Cost AdamW::cost(Types in, Types out) const {
  return streaming_cost(flops_per_element() * in[0].numel(), in, out);
}

Cost Sgd::cost(Types in, Types out) const {
  return streaming_cost(flops_per_element() * in[0].numel(), in, out);
}

std::optional<Alias> AdamW::aliased_input(std::uint32_t output, Types) const {
  return alias_of_each(output);
}

std::optional<Alias> Sgd::aliased_input(std::uint32_t output, Types) const {
  return alias_of_each(output);
}

void AdamW::reference(ReferenceCall& call) const {
  const Operands at = operands();
  const auto &param = call.inputs[at.param], &grad = call.inputs[at.grad];
  const auto &m = call.inputs[at.exp_avg], &v = call.inputs[at.exp_avg_sq];
  const auto& schedule = call.inputs[at.schedule];
  if (is_skipped(*this, call)) return;
  const double factor = gradient_factor(*this, call);
  for (std::int64_t i = 0; i < param.shape.numel(); ++i) {
    const double g = grad[i] * factor;
    const double new_m = beta1 * m[i] + (1.0 - beta1) * g;
    const double new_v = beta2 * v[i] + (1.0 - beta2) * g * g;
    const double decayed = param[i] - schedule[0] * weight_decay * param[i];
    const double step = new_m / schedule[1] / (std::sqrt(new_v / schedule[2]) + eps);
    call.outputs[0][i] = decayed - schedule[0] * step;
    call.outputs[1][i] = new_m;
    call.outputs[2][i] = new_v;
  }
}

void Sgd::reference(ReferenceCall& call) const {
  const Operands at = operands();
  const auto &param = call.inputs[at.param], &grad = call.inputs[at.grad];
  const auto &buffer = call.inputs[at.buffer], &schedule = call.inputs[at.schedule];
  if (is_skipped(*this, call)) return;
  const double factor = gradient_factor(*this, call);
  for (std::int64_t i = 0; i < param.shape.numel(); ++i) {
    const double g = grad[i] * factor + weight_decay * param[i];
    const double moved = momentum * buffer[i] + g;
    call.outputs[0][i] = param[i] - schedule[0] * (nesterov ? g + momentum * moved : moved);
    call.outputs[1][i] = moved;
  }
}

std::vector<Sample<AdamW>> AdamW::samples() {
  return samples_of_each({AdamW{}, AdamW{.max_norm = 1.0}, AdamW{.scaled = true},
                          AdamW{.max_norm = 0.5, .scaled = true}});
}

std::vector<Sample<Sgd>> Sgd::samples() {
  return samples_of_each({Sgd{}, Sgd{.momentum = 0.5, .weight_decay = 0.1, .max_norm = 1.0},
                          Sgd{.weight_decay = 0.01, .nesterov = true, .scaled = true},
                          Sgd{.max_norm = 0.5, .scaled = true}});
}

namespace {
constexpr DType f32_or_split[] = {DType::f32, DType::split_f32};
}

template <class Each>
std::size_t UpdateAll<Each>::copies() const {
  return static_cast<std::size_t>(std::ranges::count(copied, true));
}

template <class Each>
std::vector<TensorType> UpdateAll<Each>::infer(Types in) const {
  const std::size_t first = shared_operands(), others = first + copies();
  if (in.size() < others + operands_each || (in.size() - others) % operands_each != 0)
    throw ShapeError("{} takes {} operands and {} for each parameter: {}", name, others,
                     operands_each, list_of(in));
  const std::size_t count = parameters(in.size());
  if (!copied.empty() && copied.size() != count)
    throw ShapeError("{}: copied marks {} parameters of {}", name, copied.size(), count);
  check_type(name, in, 0, each.schedule_type());
  if (first == 2) check_type(name, in, 1, {DType::f32, {}});
  std::vector<TensorType> out;
  for (std::size_t p = first; p < first + operands_each * count; p += operands_each) {
    check_dtype(name, in, p, f32_or_split);
    const TensorType state{DType::f32, in[p].shape};
    if (zero_grad)
      check_type(name, in, p + 1, state);
    else
      check_gradient(name, in, p + 1, in[p].shape);
    for (std::size_t i = 2; i < operands_each; ++i) check_type(name, in, p + i, state);
    out.push_back(in[p]);
    out.insert(out.end(), outputs_each() - 1, state);
  }
  std::size_t copy = first + operands_each * count;
  for (std::size_t p = 0; p < copied.size(); ++p)
    if (copied[p]) {
      check_dtype(name, in, copy, only_16_bit);
      check_type(name, in, copy, {in[copy].dtype, in[first + operands_each * p].shape});
      out.push_back(in[copy++]);
    }
  return out;
}

template <class Each>
Cost UpdateAll<Each>::cost(Types in, Types out) const {
  std::int64_t elements = 0;
  const std::size_t read = in.size() - copies();
  for (std::size_t p = shared_operands(); p < read; p += operands_each) elements += in[p].numel();
  return streaming_cost(each.flops_per_element() * elements, in.first(read), out);
}

template <class Each>
std::optional<Alias> UpdateAll<Each>::aliased_input(std::uint32_t output, Types) const {
  const std::uint32_t p = output / outputs_each(), own = output % outputs_each();
  if (const auto count = static_cast<std::uint32_t>(copied.size()); count > 0 && p >= count)
    return Alias{shared_operands() + operands_each * count + output - count * outputs_each()};
  const std::uint32_t operand = own > Each::moments ? 1 : alias_of_each(own)->input;
  return Alias{shared_operands() + operands_each * p + operand};
}

template <class Each>
void UpdateAll<Each>::reference(ReferenceCall& call) const {
  const std::size_t first = shared_operands(), count = parameters(call.inputs.size());
  const bool skipped = each.scaled && call.inputs[0][3] == 0;
  std::size_t copy = count * outputs_each();
  for (std::size_t p = 0; p < count; ++p) {
    const auto parameter = call.inputs.subspan(first + operands_each * p, operands_each);
    std::vector<ReferenceTensor> operands(parameter.begin(), parameter.end());
    operands.insert(operands.end(), call.inputs.begin(), call.inputs.begin() + first);
    const auto outputs = call.outputs.subspan(p * outputs_each(), outputs_each());
    ReferenceCall alone{operands, outputs.first(1 + Each::moments)};
    each.reference(alone);
    if (zero_grad) std::ranges::fill(outputs.back().data, 0.0);
    if (copied.empty() || !copied[p]) continue;
    const std::size_t held = first + operands_each * count + copy - count * outputs_each();
    std::ranges::copy(skipped ? call.inputs[held].data : outputs[0].data,
                      call.outputs[copy++].data.begin());
  }
}

template <class Each>
std::vector<Sample<UpdateAll<Each>>> UpdateAll<Each>::samples() {
  std::vector<Sample<UpdateAll>> samples;
  // In samples with split parameters, or gradients in 16 bits, the first one has f32.
  auto add = [&](const UpdateAll& op, const std::vector<Shape>& shapes, DType dtype = DType::bf16,
                 DType parameter = DType::f32, DType gradient = DType::f32) {
    Sample<UpdateAll> sample{op, {{op.each.schedule_type(), 0.1, 0.9}}};
    if (op.each.max_norm > 0) sample.inputs.push_back({{DType::f32, {}}, 0.5, 3.0});
    for (const Shape& shape : shapes) {
      const TensorType type{DType::f32, shape};
      sample.inputs.push_back({{&shape == &shapes.front() ? DType::f32 : parameter, shape}});
      sample.inputs.push_back({{&shape == &shapes.front() ? DType::f32 : gradient, shape}});
      sample.inputs.insert(sample.inputs.end(), Each::moments - 1, {type});
      sample.inputs.push_back({type, least_last_moment<Each>, 1.0});
    }
    for (std::size_t p = 0; p < op.copied.size(); ++p)
      if (op.copied[p]) sample.inputs.push_back({{dtype, shapes[p]}});
    samples.push_back(sample);
  };
  const std::vector<Shape> several{{7, 5}, {1}, {3, 20011}};
  add({}, {{13}});
  add({}, several);
  add({.each = {.max_norm = 1.0}, .zero_grad = true}, several);
  add({.zero_grad = true, .copied = {true, false, true}}, several);
  add({.each = {.max_norm = 1.0}, .copied = {false, true, false}}, several);
  add({.zero_grad = true, .copied = {true, false, true}}, several, DType::f16);
  add({.each = {.max_norm = 0.5, .scaled = true}, .copied = {false, true, true}}, several,
      DType::f16);
  add({.each = {.max_norm = 1.0}, .zero_grad = true, .copied = {true, false, false}}, several,
      DType::bf16, DType::split_f32);
  add({.each = {.scaled = true}}, {{3}, {4, 2049}, {8, 2048}}, DType::bf16, DType::split_f32);
  add({.each = {.max_norm = 1.0}, .copied = {true, false, false, false}},
      {{13}, {7, 5}, {1}, {3, 20011}}, DType::bf16, DType::split_f32, DType::bf16);
  add({}, several, DType::bf16, DType::f32, DType::f16);
  return samples;
}

template struct UpdateAll<AdamW>;
template struct UpdateAll<Sgd>;

static_assert(Operator<Accumulate> && Aliasing<Accumulate>);
static_assert(Operator<GlobalNorm>);
static_assert(Operator<AdamW> && Aliasing<AdamW>);
static_assert(Operator<AdamWAll> && Aliasing<AdamWAll>);
static_assert(Operator<Sgd> && Aliasing<Sgd>);
static_assert(Operator<SgdAll> && Aliasing<SgdAll>);

}  // namespace ridge
