#include "ridge/ops/collective.h"

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> AllReduce::infer(Types in) const {
  if (in.empty()) throw ShapeError("{} takes at least 1 operand", name);
  if (ranks < 1) throw ShapeError("{}: there is at least 1 rank, not {}", name, ranks);
  for (std::size_t i = 0; i < in.size(); ++i) check_dtype(name, in, i);
  return {in.begin(), in.end()};
}

// Of an element ranks - 1 additions, which the ranks share, and a product for the mean.
Cost AllReduce::cost(Types in, Types out) const {
  if (ranks == 1) return {};
  std::int64_t elements = 0;
  for (const TensorType& type : in) elements += type.numel();
  return streaming_cost((ranks - 1) * elements / ranks + (mean ? elements : 0), in, out);
}

std::optional<Alias> AllReduce::aliased_input(std::uint32_t output, Types) const {
  return Alias{.input = output};
}

void AllReduce::reference(ReferenceCall& call) const { reference_over({&call, 1}); }

void AllReduce::reference_over(std::span<ReferenceCall> calls) const {
  const std::span<const ReferenceTensor> tensors = calls.front().inputs;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (std::int64_t i = 0; i < tensors[t].shape.numel(); ++i) {
      double sum = 0;
      for (const ReferenceCall& call : calls) sum += call.inputs[t][i];
      for (ReferenceCall& call : calls)
        call.outputs[t][i] = mean ? sum / static_cast<double>(calls.size()) : sum;
    }
}

std::vector<Sample<AllReduce>> AllReduce::samples() {
  std::vector<Sample<AllReduce>> samples;
  for (const bool mean : {false, true}) {
    samples.push_back({{.mean = mean}, {{{DType::f32, {}}}}});
    samples.push_back({{.mean = mean}, {{{DType::f32, {3, 20011}}}}});
    samples.push_back(
        {{.mean = mean}, {{{DType::f32, {7, 5}}}, {{DType::f32, {1}}}, {{DType::f32, {64, 33}}}}});
  }
  return samples;
}

std::vector<Value> all_reduce(std::span<const Value> x, const AllReduce& op) {
  return x.front().graph->apply(op, x);
}

static_assert(Operator<AllReduce> && Aliasing<AllReduce>);

}  // namespace ridge
