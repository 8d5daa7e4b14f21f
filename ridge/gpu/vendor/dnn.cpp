#include "ridge/gpu/vendor/dnn.h"

#include <utility>

#include "ridge/base/error.h"

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

}  // namespace ridge::gpu
