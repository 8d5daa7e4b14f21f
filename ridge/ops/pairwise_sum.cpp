#include "ridge/ops/pairwise_sum.h"

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> PairwiseSum::infer(Types in) const {
  if (in.size() < 3)
    throw ShapeError("{} takes a number, a tensor and at least one sum, not {}", name, list_of(in));
  if (run < 1) throw ShapeError("{}: a run is of at least 1 tensor, not {}", name, run);
  check_type(name, in, 0, {DType::i32, {}});
  check_dtype(name, in, 1, dtypes);
  for (std::size_t i = 2; i < in.size(); ++i) check_same_type(name, in, 1, i);
  const std::uint32_t depth = levels(in.size() - 2);
  if (depth > most_levels)
    throw ShapeError("{}: a tree has at most {} levels, not {}", name, most_levels, depth);
  return {in.begin() + 2, in.end()};
}

// Counts an average call: each but the first of a sum adds one tensor, and each writes one.
Cost PairwiseSum::cost(Types in, Types) const {
  const std::int64_t count = calls(in.size() - 2);
  const auto share = [&](std::int64_t all) { return all * (count - 1) / count; };
  const auto bytes = static_cast<std::int64_t>(in[1].bytes());
  return {.flops = share(in[1].numel()),
          .causal_flops = share(in[1].numel()),
          .bytes_read = static_cast<std::int64_t>(in[0].bytes()) + bytes + share(bytes),
          .bytes_written = bytes};
}

std::optional<Alias> PairwiseSum::aliased_input(std::uint32_t output, Types) const {
  return Alias{.input = 2 + output};
}

void PairwiseSum::reference(ReferenceCall& call) const {
  const auto sums = static_cast<std::uint32_t>(call.inputs.size() - 2);
  const PairwiseStep step(*this, sums, static_cast<std::int64_t>(call.inputs[0][0]));
  const ReferenceTensor& x = call.inputs[1];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) {
    double s = x[i];
    if (step.adds_to_chain) s += call.inputs[1 + sums][i];
    for (std::uint32_t level = 0; level < step.carries; ++level) s += call.inputs[2 + level][i];
    for (std::uint32_t t = 0; t < sums; ++t) call.outputs[t][i] = call.inputs[2 + t][i];
    call.outputs[step.to][i] = s;
  }
}

std::vector<Sample<PairwiseSum>> PairwiseSum::samples() {
  std::vector<Sample<PairwiseSum>> samples;
  const auto add = [&](std::int64_t run, std::size_t sums, double number, const Shape& shape) {
    std::vector<SampleInput> inputs{{{DType::i32, {}}, number, number + 1}};
    inputs.resize(2 + sums, {{DType::f32, shape}});
    samples.push_back({{.run = run}, std::move(inputs)});
  };
  for (const double number : {0, 1, 2, 3, 6, 7, 15}) add(1, 3, number, {7, 5});
  for (const double number : {0, 2, 3, 5, 8, 11, 12}) add(3, 3, number, {64, 33});
  add(1, 1, 1, {});
  add(1, 2, 3, {3, 20011});
  add(4, 1, 2, {1});
  return samples;
}

static_assert(Operator<PairwiseSum> && Aliasing<PairwiseSum>);

}  // namespace ridge
