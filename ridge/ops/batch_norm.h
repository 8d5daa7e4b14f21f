#pragma once

#include "ridge/ops/image.h"
#include "ridge/ops/operator.h"

namespace ridge {

// y = (x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c] for channel c (Ioffe and
// Szegedy, 2015), by the statistics that training left; max(y, 0) if `relu`. Takes an image and
// weight, bias, mean and variance, each [C] in f32. With channels last it may take several images,
// up to most_parts, whose channels, one after another, are those of the result. It has no gradient:
// training normalises by BatchNormTrain.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  static constexpr DTypes dtypes = f32_and_16_bit;

  static constexpr std::size_t most_parts = 64;

  float eps = 1e-5f;
  ImageLayout layout = ImageLayout::nchw;
  std::size_t parts = 1;
  bool relu = false;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<BatchNorm>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const BatchNorm&) const = default;
};

// The same by the mean and the (biased) variance of this batch. Takes what BatchNorm takes; gives
// y, the batch's mean[C] and rstd[C] = 1 / sqrt(variance + eps) in f32, for the gradient, and in
// the memory of the last two operands the running statistics, moved by `momentum` towards those of
// the batch, with its unbiased variance. The gradient reaches x, weight and bias.
struct BatchNormTrain {
  static constexpr std::string_view name = "batch_norm_train";
  static constexpr DTypes dtypes = f32_and_16_bit;

  float eps = 1e-5f;
  float momentum = 0.1f;
  ImageLayout layout = ImageLayout::nchw;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<BatchNormTrain>> samples();
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const BatchNormTrain&) const = default;
};

// Takes (dy, x, weight, mean, rstd) and gives dx of x's type, dweight[C] and dbias[C] in f32. With
// M elements of a channel and xhat = (x - mean) * rstd:
//   dbias = sum dy;  dweight = sum dy * xhat
//   dx = weight * rstd * (dy - dbias / M - xhat * dweight / M)
struct BatchNormGrad {
  static constexpr std::string_view name = "batch_norm_grad";
  static constexpr DTypes dtypes = f32_and_16_bit;

  ImageLayout layout = ImageLayout::nchw;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<BatchNormGrad>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const BatchNormGrad&) const = default;
};

Value batch_norm(Value x, Value weight, Value bias, Value mean, Value variance, float eps = 1e-5f);
// The normalised image; the running statistics are moved in place.
Value batch_norm_train(Value x, Value weight, Value bias, Value mean, Value variance,
                       float eps = 1e-5f, float momentum = 0.1f);

}  // namespace ridge
