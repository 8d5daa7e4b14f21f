#include "ridge/gpu/device/problems.h"

#include <fmt/format.h>

namespace ridge::gpu {

std::string to_string(const ConvProblem& p) {
  const ConvGeometry& g = p.geometry;
  const auto pair = [](const char* what, const Pair& values, std::int64_t usual) {
    if (values == Pair{usual, usual}) return std::string();
    return values[0] == values[1] ? fmt::format(", {} {}", what, values[0])
                                  : fmt::format(", {} {} x {}", what, values[0], values[1]);
  };
  return fmt::format(
      "{} to {}, {} x {}{}{}{}{}{}{}{}{}{}{}", TensorType{p.dtype, p.x.in(g.layout)}.to_string(),
      p.y.c, p.weight.h, p.weight.w, pair("stride", g.stride, 1), pair("padding", g.padding, 0),
      pair("dilation", g.dilation, 1), g.groups == 1 ? "" : fmt::format(", {} groups", g.groups),
      g.layout == ImageLayout::nchw ? ", channels first" : "", p.bias ? ", bias" : "",
      p.residual ? ", residual" : "",
      p.epilogue == Epilogue::none ? "" : fmt::format(", {}", name_of(p.epilogue)),
      p.tf32 ? ", tf32" : "", p.deterministic ? ", deterministic" : "");
}

}  // namespace ridge::gpu
