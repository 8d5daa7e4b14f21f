#include "ridge/ops/residual_bottleneck.h"

#include <cmath>
#include <vector>

#include "ridge/ops/check.h"
#include "ridge/ops/residual_bottleneck_parts.h"

namespace ridge {
namespace {

using Parts = ResidualBottleneckParts;

void check_one_by_one(Types in, std::size_t i, ImageLayout layout) {
  if (ImageShape(in[i].shape, layout).pixels() != 1)
    throw ShapeError("{}: operand {} of {} is no weight of 1 x 1", ResidualBottleneck::name, i,
                     list_of(in));
}

}  // namespace

std::vector<TensorType> ResidualBottleneck::infer(Types in) const {
  const Operands at = operands();
  check_count(name, in, at.count);
  check_dtype(name, in, 0);
  const Parts parts(*this);
  const TensorType z = parts.inner.infer(parts.of_inner(in))[0];
  const TensorType residual =
      projects ? parts.projection.infer(parts.of_projection(in))[0] : in[at.residual];
  std::vector<TensorType> out = parts.expansion.infer(parts.of_expansion(in, z, residual));
  check_one_by_one(in, at.w2, layout);
  if (projects) check_one_by_one(in, at.wp, layout);
  if (reduces) {
    out.push_back(parts.reduction.infer(parts.of_reduction(in, out[0]))[0]);
    check_one_by_one(in, at.w3, layout);
  }
  return out;
}

// All parts' work, with each operand and result of the whole moved once.
Cost ResidualBottleneck::cost(Types in, Types out) const {
  const Parts parts(*this);
  const TensorType z = parts.inner.infer(parts.of_inner(in))[0], &y = out[0];
  std::vector<Cost> costs{parts.inner.cost(parts.of_inner(in), {&z, 1}),
                          parts.expansion.cost(parts.of_expansion(in, z, y), {&y, 1})};
  if (projects) costs.push_back(parts.projection.cost(parts.of_projection(in), {&y, 1}));
  if (reduces) costs.push_back(parts.reduction.cost(parts.of_reduction(in, y), out.last(1)));
  std::int64_t flops = 0, macs = 0;
  for (const Cost& cost : costs) {
    flops += cost.flops;
    macs += cost.macs;
  }
  Cost all = streaming_cost(flops, in, out);
  all.macs = macs;
  return all;
}

void ResidualBottleneck::reference(ReferenceCall& call) const {
  const Parts parts(*this);
  const auto run = [](const Conv2d& conv, std::span<const ReferenceTensor> in,
                      const ReferenceTensor& out) {
    ReferenceCall part{in, {&out, 1}};
    conv.reference(part);
  };
  const auto in = call.inputs;
  const ReferenceTensor& y = call.outputs[0];
  const Operands at = operands();
  const ImageShape image(y.shape, layout), w(in[at.w1].shape, layout);
  const Shape inner_shape = ImageShape(image.n, w.n, image.h, image.w).in(layout);
  std::vector<double> inner_data(static_cast<std::size_t>(inner_shape.numel())),
      projected_data(projects ? static_cast<std::size_t>(y.shape.numel()) : 0);
  const ReferenceTensor z{inner_shape, inner_data}, projected{y.shape, projected_data};
  run(parts.inner, parts.of_inner(in), z);
  if (projects) run(parts.projection, parts.of_projection(in), projected);
  run(parts.expansion, parts.of_expansion(in, z, projects ? projected : in[at.residual]), y);
  if (reduces) run(parts.reduction, parts.of_reduction(in, y), call.outputs[1]);
}

std::vector<Sample<ResidualBottleneck>> ResidualBottleneck::samples() {
  struct Sizes {
    std::int64_t n, pixels, channels, inner, expanded, reduced, projected = 0;
    Pair stride{1, 1};
  };
  std::vector<Sample<ResidualBottleneck>> samples;
  for (const ImageLayout layout : {ImageLayout::nhwc, ImageLayout::nchw})
    for (const Sizes& s : {Sizes{2, 5, 3, 4, 6, 0},
                           {1, 8, 8, 16, 24, 8, 12, {2, 2}},
                           {2, 9, 64, 64, 64, 0},
                           {1, 7, 64, 64, 128, 64},
                           {1, 14, 64, 64, 64, 64, 64}}) {
      const auto of = [](const Shape& shape, double range = 1.0) {
        return SampleInput{{DType::f32, shape}, -range, range};
      };
      const auto weight = [&](std::int64_t out, std::int64_t in, std::int64_t size) {
        // Such that sums are about as large as the operands.
        const double terms = static_cast<double>(in * size * size);
        return of(ImageShape(out, in, size, size).in(layout), 1.5 / std::sqrt(terms));
      };
      const std::int64_t rows = (s.pixels - 1) / s.stride[0] + 1;
      Sample<ResidualBottleneck> sample{
          {{.stride = s.stride, .padding = {1, 1}, .layout = layout},
           s.projected > 0,
           s.reduced > 0},
          {of(ImageShape(s.n, s.channels, s.pixels, s.pixels).in(layout)),
           weight(s.inner, s.channels, 3), of({s.inner}), weight(s.expanded, s.inner, 1),
           of({s.expanded})}};
      if (s.projected > 0) {
        sample.inputs.push_back(of(ImageShape(s.n, s.projected, s.pixels, s.pixels).in(layout)));
        sample.inputs.push_back(weight(s.expanded, s.projected, 1));
        sample.inputs.push_back(of({s.expanded}));
      } else {
        sample.inputs.push_back(of(ImageShape(s.n, s.expanded, rows, rows).in(layout)));
      }
      if (s.reduced > 0) {
        sample.inputs.push_back(weight(s.reduced, s.expanded, 1));
        sample.inputs.push_back(of({s.reduced}));
      }
      samples.push_back(std::move(sample));
    }
  return samples;
}

static_assert(Operator<ResidualBottleneck>);

}  // namespace ridge
