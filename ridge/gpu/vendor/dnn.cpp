#include "ridge/gpu/vendor/dnn.h"

#include <utility>

#include "ridge/gpu/vendor/stand_in.h"

namespace ridge::gpu {
namespace {

class DnnOrPortable final : public Dnn {
 public:
  DnnOrPortable(std::shared_ptr<Dnn> library, const Card& card)
      : dnn_(std::move(library), make_portable_dnn(card)) {}

  std::string version() override { return dnn_->version(); }
  bool is_portable() const override { return dnn_->is_portable(); }
  bool supports(DType dtype, const FlashShape& shape) const override {
    return dnn_->supports(dtype, shape);
  }
  std::unique_ptr<FusedAttention> attention(DType dtype, const FlashShape& shape,
                                            const FlashOperands& operands) override {
    return dnn_->attention(dtype, shape, operands);
  }
  std::unique_ptr<FusedAttentionGrad> attention_grad(DType dtype, const FlashShape& shape,
                                                     const FlashOperands& operands,
                                                     const FlashGradients& gradients,
                                                     bool deterministic) override {
    return dnn_->attention_grad(dtype, shape, operands, gradients, deterministic);
  }
  std::shared_ptr<FusedConv> conv(const ConvProblem& problem, std::size_t rank) override {
    return dnn_->conv(problem, rank);
  }

 private:
  WithStandIn<Dnn> dnn_;  // `ridge doctor` says why a library is not used
};

}  // namespace

std::shared_ptr<Dnn> library_or_portable(std::shared_ptr<Dnn> library, const Card& card) {
  return std::make_shared<DnnOrPortable>(std::move(library), card);
}

}  // namespace ridge::gpu
