#pragma once

#include "ridge/ops/epilogue.h"
#include "ridge/ops/image.h"
#include "ridge/ops/operator.h"

namespace ridge {

// y = (x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c] for channel c (Ioffe and
// Szegedy, 2015), by the statistics that training left; max(y, 0) if `relu`. Takes an image and
// weight, bias, mean and variance, each [C] in f32. With channels last it may take several images,
// up to most_parts, whose channels, one after another, are those of the result. It has no gradient:
// training normalizes by BatchNormTrain.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  static constexpr WorkKind work = WorkKind::norm;

  static constexpr std::size_t most_parts = 64;

  float eps = 1e-5f;
  ImageLayout layout = ImageLayout::nchw;
  std::size_t parts = 1;
  bool relu = false;

  // Which operand is which: first come the images.
  struct Operands {
    std::size_t weight, bias, mean, variance, count;
  };
  constexpr Operands operands() const {
    return {parts, parts + 1, parts + 2, parts + 3, parts + 4};
  }

  RIDGE_OPERATOR(BatchNorm);
  std::string_view aten_name(Types in) const;
};

// The same by the mean and the (biased) variance of this batch:
//   y = epilogue((x - mean[c]) * rstd[c] * weight[c] + bias[c] + residual)
// Takes what BatchNorm takes of one image and, if `residual`, last a tensor of x's type, with which
// the epilogue is none or relu. Gives y, the batch's mean[C] and rstd[C] = 1 / sqrt(variance + eps)
// in f32, for the gradient, and in the memory of the running mean and variance these, moved by
// `momentum` towards those of the batch, with its unbiased variance. The gradient reaches x,
// weight, bias and residual. With several `ranks` the batch is what all of them have: each gives
// the moments of its part to the others.
struct BatchNormTrain {
  static constexpr std::string_view name = "batch_norm_train";
  static constexpr WorkKind work = WorkKind::norm;

  float eps = 1e-5f;
  float momentum = 0.1f;
  ImageLayout layout = ImageLayout::nchw;
  bool residual = false;
  Epilogue epilogue = Epilogue::none;
  std::int64_t ranks = 1;

  // Which operand is which; a residual that is not there is past the end.
  struct Operands {
    std::size_t x = 0, weight = 1, bias = 2, mean = 3, variance = 4, residual = 5, count = 6;
  };
  constexpr Operands operands() const { return {.count = 5u + residual}; }
  static constexpr bool is_state(std::size_t operand) {
    return operand == Operands().mean || operand == Operands().variance;
  }

  RIDGE_OPERATOR(BatchNormTrain);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  std::int64_t sent_bytes(Types in) const;
  BatchNormTrain repetition() const;  // which leaves the running statistics as they are
  std::string_view aten_name(Types in) const;
};

// Takes dy, if `summed` a second tensor that is to be added to it, then x, weight, mean and rstd,
// and for an epilogue one more: the result y, if `residual`, else the bias. Gives dx of x's type,
// dweight[C] and dbias[C] in f32 and, if `residual`, that of the residual, g below. With M elements
// of a channel and xhat = (x - mean) * rstd:
//   g = (dy + its second part) * epilogue'(xhat * weight + bias)
//       (of a relu behind a residual: * (y > 0))
//   dbias = sum g;  dweight = sum g * xhat
//   dx = weight * rstd * (g - dbias / M - xhat * dweight / M)
// With several `ranks` those of dx are sums over what all of them have, and so is M; dweight and
// dbias stay those of this one. Where g is a result, dx is made of what it was rounded to.
struct BatchNormGrad {
  static constexpr std::string_view name = "batch_norm_grad";
  static constexpr WorkKind work = WorkKind::norm;

  ImageLayout layout = ImageLayout::nchw;
  bool summed = false;
  bool residual = false;  // then the epilogue is relu: without one the residual's gradient is dy
  Epilogue epilogue = Epilogue::none;
  std::int64_t ranks = 1;

  // Which operand is which; `summand` is the second tensor of the sum, `kinks` what an epilogue
  // needs: the result, or the bias. What is not there is past the end.
  struct Operands {
    std::size_t dy, summand, x, weight, mean, rstd, kinks, count;
  };
  constexpr Operands operands() const {
    const std::size_t x = summed ? 2 : 1, end = x + 4 + (epilogue != Epilogue::none);
    return {0, summed ? 1 : end, x, x + 1, x + 2, x + 3, x + 4, end};
  }

  RIDGE_OPERATOR(BatchNormGrad);
  std::int64_t sent_bytes(Types in) const;
  int roundings() const { return summed && residual ? 2 : 1; }  // g too
};

Value batch_norm(Value x, Value weight, Value bias, Value mean, Value variance, float eps = 1e-5f);
// The normalized image; the running statistics are moved in place.
Value batch_norm_train(Value x, Value weight, Value bias, Value mean, Value variance,
                       float eps = 1e-5f, float momentum = 0.1f);

}  // namespace ridge
