#include "ridge/base/error.h"
#include "ridge/gpu/kernels/attention/unit_attention.h"
#include "ridge/gpu/kernels/conv/portable_conv.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {
namespace {

class PortableDnn final : public Dnn {
 public:
  explicit PortableDnn(const Card& card) : card_(card) {}

  // Counts up where kernels become others, so that times of old ones are not taken for theirs.
  std::string version() override { return "portable kernels 1"; }
  bool is_portable() const override { return true; }
  bool supports(DType dtype, const FlashShape& shape) const override {
    return unit_attention_supports(dtype, shape);
  }
  std::unique_ptr<FusedAttention> attention(DType dtype, const FlashShape& shape,
                                            const FlashOperands&) override {
    require_support(dtype, shape);
    return unit_attention(card_, dtype, shape);
  }
  std::unique_ptr<FusedAttentionGrad> attention_grad(DType dtype, const FlashShape& shape,
                                                     const FlashOperands&, const FlashGradients&,
                                                     bool) override {
    require_support(dtype, shape);
    return unit_attention_grad(card_, dtype, shape);
  }
  std::shared_ptr<FusedConv> conv(const ConvProblem& problem, std::size_t rank) override {
    std::shared_ptr<FusedConv> conv = portable_conv(card_, problem, rank);
    if (!conv) throw DeviceError("no portable kernel has plan {} for {}", rank, to_string(problem));
    return conv;
  }

 private:
  static void require_support(DType dtype, const FlashShape& shape) {
    if (!unit_attention_supports(dtype, shape))
      throw DeviceError("no portable kernel has attention on matrix units for heads of {} in {}",
                        shape.head_dim, name_of(dtype));
  }

  Card card_;
};

}  // namespace

std::shared_ptr<Dnn> make_portable_dnn(const Card& card) {
  return std::make_shared<PortableDnn>(card);
}

}  // namespace ridge::gpu
