#include "ridge/cpu/split_conv.h"

#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/split_gemm.h"

namespace ridge {
namespace {

using Kind = ConvShape::Kind;

GemmShape product_of(const ConvShape& s) {
  const std::int64_t pixels = s.x.n * s.x.pixels();
  switch (s.kind) {
    case Kind::forward:
      return {.m = pixels, .n = s.y.c, .k = s.x.c, .trans_b = true};
    case Kind::input_grad:
      return {.m = pixels, .n = s.x.c, .k = s.y.c};
    case Kind::weight_grad:
      break;
  }
  return {.m = s.y.c, .n = s.x.c, .k = pixels, .trans_a = true};
}

class SplitConv final : public Conv {
 public:
  explicit SplitConv(const ConvShape& shape)
      : shape_(shape),
        gemm_(make_split_gemm(product_of(shape), default_split_plan(product_of(shape)))) {}

  std::size_t workspace() const override { return gemm_->workspace(); }

  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override {
    if (shape_.kind == Kind::input_grad) return gemm_->run(pool, o.y, o.weight, o.x, workspace);
    if (shape_.kind == Kind::weight_grad) return gemm_->run(pool, o.y, o.x, o.weight, workspace);
    with_epilogue(shape_.epilogue, [&](const auto& function) {
      auto* const y = static_cast<float*>(o.y);
      const auto* const bias = static_cast<const float*>(o.bias);
      const auto* const residual = static_cast<const float*>(o.residual);
      gemm_->run(pool, o.x, o.weight, y, workspace, [&](const GemmTile& tile) {
        for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i) {
          const std::int64_t first = i * shape_.y.c + tile.column;
          finish_row(y + first, bias ? bias + tile.column : nullptr,
                     residual ? residual + first : nullptr, y + first, tile.columns, function);
        }
      });
    });
  }

 private:
  ConvShape shape_;
  GemmPtr gemm_;
};

}  // namespace

bool has_split_conv(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  return s.dtype == DType::f32 && !s.int8 && g.layout == ImageLayout::nhwc && g.groups == 1 &&
         s.weight.pixels() == 1 && g.stride == Pair{1, 1} && g.padding == Pair{0, 0} &&
         !split_gemm_plans(product_of(s)).empty();
}

ConvPtr make_split_conv(const ConvShape& shape) { return std::make_unique<SplitConv>(shape); }

}  // namespace ridge
