#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "ridge/base/thread_pool.h"
#include "ridge/ops/conv.h"

namespace ridge {

// What is made of the sums of a convolution of s8: see ops/int8.h.
struct Int8Scales {
  DType out = DType::s8;
  float x = 1.0f, residual = 1.0f, y = 1.0f;
};

// A convolution, or a gradient of one, of given shapes.
struct ConvShape {
  enum class Kind : std::uint8_t { forward, input_grad, weight_grad };

  Kind kind = Kind::forward;
  ConvGeometry geometry;  // its layout is that of x and y
  ImageShape x, y;
  ImageShape weight;  // [O, C / G, R, S], as ops/conv.h has it
  ImageLayout weight_layout = ImageLayout::nchw;
  DType dtype = DType::f32;
  // Whether Kind::forward adds a bias and a residual.
  bool bias = false, residual = false;
  Epilogue epilogue = Epilogue::none;
  bool f32_result = false;  // y in f32, whatever the dtype of the others
  // Set for s8 operands, with scales of the weights and biases in f32.
  std::optional<Int8Scales> int8 = {};
};

// Dense tensors of the shape's types. What the kind of convolution computes is written, the others
// are read: y, or the gradient of x or of weight with y standing for its gradient.
struct ConvOperands {
  void *x = nullptr, *weight = nullptr, *y = nullptr;
  const void *bias = nullptr, *residual = nullptr;
  const float* weight_scale = nullptr;  // of s8
};

class Conv {
 public:
  virtual ~Conv() = default;
  // Weights that are read can be brought into the order that the library likes best, of so many
  // bytes; 0 if they are in it, or are what is computed.
  virtual std::size_t packed_bytes() const { return 0; }
  virtual void pack(ThreadPool&, const void* /*weight*/, void* /*packed*/) const {}
  // Whether the library has only its portable reference for it here.
  virtual bool is_slow() const { return false; }
  // Bytes that run() wants at `workspace`, which like all memory here is aligned to 64.
  virtual std::size_t workspace() const = 0;
  // The operands' weight is the packed one, if packed_bytes() is not 0. One at a time.
  virtual void run(ThreadPool& pool, const ConvOperands& operands, void* workspace) const = 0;
};

using ConvPtr = std::unique_ptr<Conv>;

// Convolutions by oneDNN, each library call on one thread: we share out images, and of few images
// rows and channels of the result, in parts that depend on the shape alone, so the result has the
// same bits on any number of threads. DeviceError if the library has no such convolution on this
// CPU.
ConvPtr make_onednn_conv(const ConvShape& shape);

// Whether this CPU and library convolve bf16 operands, forward and backward.
bool onednn_convolves_bf16();

}  // namespace ridge
