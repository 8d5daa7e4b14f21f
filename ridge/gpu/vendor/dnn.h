#pragma once

// Attention and convolutions by the vendor's library of fused kernels, which one file implements
// for each vendor; in its place, portable kernels.

#include <cstddef>
#include <memory>
#include <string>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/problems.h"

namespace ridge::gpu {

// As flash_sm90_forward: the same layouts of operands, y and lse, whichever computes them.
class FusedAttention {
 public:
  virtual ~FusedAttention() = default;
  virtual std::size_t workspace() const = 0;  // bytes
  // With the strides that it was made for.
  virtual void run(Stream stream, const FlashOperands& operands, void* y, float* lse,
                   void* workspace) const = 0;
};

// As flash_sm90_backward, but for the rotation: gradients are those of q and k as they are given.
class FusedAttentionGrad {
 public:
  virtual ~FusedAttentionGrad() = default;
  virtual std::size_t workspace() const = 0;  // bytes
  virtual void run(Stream stream, const FlashOperands& operands, const void* y, const float* lse,
                   const void* dy, const FlashGradients& gradients, void* workspace) const = 0;
};

class FusedConv {
 public:
  virtual ~FusedConv() = default;
  virtual std::size_t workspace() const = 0;  // bytes
  virtual void run(Stream stream, const ConvPointers& operands, void* workspace) const = 0;
};

// The library, opened at first use: any function but supports() throws DeviceError if it is not
// there. One for each device, which outlives what it makes.
class Dnn {
 public:
  virtual ~Dnn() = default;
  virtual std::string version() = 0;  // "cuDNN 9.14.0"
  // Whether it is the portable kernels below.
  virtual bool is_portable() const { return false; }
  // Whether the library may have kernels for this.
  virtual bool supports(DType dtype, const FlashShape& shape) const = 0;
  // DeviceError if it has none. Of operands and gradients only the strides count.
  virtual std::unique_ptr<FusedAttention> attention(DType dtype, const FlashShape& shape,
                                                    const FlashOperands& operands) = 0;
  virtual std::unique_ptr<FusedAttentionGrad> attention_grad(DType dtype, const FlashShape& shape,
                                                             const FlashOperands& operands,
                                                             const FlashGradients& gradients,
                                                             bool deterministic) = 0;
  // By the plan that the library expects to be the fastest of those that it can prepare, or exactly
  // by that of another rank. DeviceError if it has none. Asked again, it gives the same plan, since
  // many are compiled when they are prepared.
  virtual std::shared_ptr<FusedConv> conv(const ConvProblem& problem, std::size_t rank = 0) = 0;
};

// The vendor's library.
std::shared_ptr<Dnn> make_vendor_dnn();

// Portable kernels of ours: kernels/conv/portable_conv.h and kernels/attention/unit_attention.h.
std::shared_ptr<Dnn> make_portable_dnn(const Card& card);

// A library, or where it turns out not to be there when it is first asked, the portable kernels.
std::shared_ptr<Dnn> library_or_portable(std::shared_ptr<Dnn> library, const Card& card);

// The vendor's library so, or the portable kernels if libraries are not wanted
// (device/libraries.h).
std::shared_ptr<Dnn> make_dnn(const Card& card);

}  // namespace ridge::gpu
