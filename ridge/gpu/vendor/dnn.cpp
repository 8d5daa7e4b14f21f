#include "ridge/gpu/vendor/dnn.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/shape.h"

namespace ridge::gpu {
namespace {

class DnnOrPortable final : public Dnn {
 public:
  DnnOrPortable(std::shared_ptr<Dnn> library, const Card& card)
      : library_(std::move(library)), card_(card) {}

  std::string version() override { return chosen().version(); }
  bool is_portable() const override { return chosen().is_portable(); }
  bool supports(DType dtype, const FlashShape& shape) const override {
    return chosen().supports(dtype, shape);
  }
  std::unique_ptr<FusedAttention> attention(DType dtype, const FlashShape& shape,
                                            const FlashOperands& operands) override {
    return chosen().attention(dtype, shape, operands);
  }
  std::unique_ptr<FusedAttentionGrad> attention_grad(DType dtype, const FlashShape& shape,
                                                     const FlashOperands& operands,
                                                     const FlashGradients& gradients,
                                                     bool deterministic) override {
    return chosen().attention_grad(dtype, shape, operands, gradients, deterministic);
  }
  std::shared_ptr<FusedConv> conv(const ConvProblem& problem, std::size_t rank) override {
    return chosen().conv(problem, rank);
  }

 private:
  Dnn& chosen() const {
    if (!chosen_) {
      try {
        library_->version();
        chosen_ = library_;
      } catch (const DeviceError&) {  // `ridge doctor` says why
        chosen_ = make_portable_dnn(card_);
      }
    }
    return *chosen_;
  }

  std::shared_ptr<Dnn> library_;
  mutable std::shared_ptr<Dnn> chosen_;
  Card card_;
};

}  // namespace

std::shared_ptr<Dnn> library_or_portable(std::shared_ptr<Dnn> library, const Card& card) {
  return std::make_shared<DnnOrPortable>(std::move(library), card);
}

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
