#pragma once

// Single calls of oneDNN's convolutions, which ridge/cpu/onednn_conv.cpp makes whole ones of.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ridge/cpu/onednn_conv.h"
#include "ridge/cpu/onednn_engine.h"

namespace ridge {

// A part of the work that one call does: some images, rows of y, and channels of it.
struct ConvPart {
  std::int64_t image = 0, images = 1;
  std::int64_t row = 0, rows = 1;
  std::int64_t channel = 0, channels = 1;
};

// What a part sees of x: rows [begin, begin + count), with so many rows of padding around.
struct SeenRows {
  std::int64_t begin = 0, count = 0, above = 0, below = 0;
};
SeenRows rows_seen(const ConvShape& shape, const ConvPart& part);

// The weights of `kernels` kernels as the operator has them.
dnnl::memory::desc plain_weights(const ConvShape& shape, std::int64_t kernels);

// A compiled call for parts of one form. Those with fewer channels than the shape's have neither
// residual nor epilogue, and results in f32 that lie by themselves.
class ConvPrimitive {
 public:
  // `weights` is the order that other primitives were made for; the library's choice if it is null.
  // dnnl::error if there is no such convolution.
  ConvPrimitive(const ConvShape& shape, const ConvPart& part, const dnnl::memory::desc* weights);

  const dnnl::memory::desc& weights() const { return weights_; }
  bool is_reference() const { return is_reference_; }
  std::size_t scratch_bytes() const { return scratch_.get_size(); }
  std::size_t result_bytes() const { return y_.get_size(); }

 private:
  friend class ConvCall;

  ConvShape::Kind kind_;
  dnnl::memory::desc x_, weights_, y_, bias_, scratch_;
  bool residual_ = false, is_reference_ = false;
  dnnl::primitive call_;
};

// A primitive with operands of its own, so that calls of one may run at the same time. What the
// library is told of them is put together once: it takes as long as a small convolution.
class ConvCall {
 public:
  explicit ConvCall(const ConvPrimitive& primitive);

  // DeviceError if it fails. `scratch` is of the primitive's scratch_bytes().
  void run(const ConvOperands& operands, void* scratch) const;

 private:
  enum Place : std::uint8_t { x, weights, y, scratch_memory, bias, residual, places };

  std::array<dnnl::memory, places> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  dnnl::primitive call_;
  mutable std::array<const void*, places> addresses_{};  // that the memories have now
};

// Copies weights from one order to another, in pieces that threads may share.
class WeightReorder {
 public:
  WeightReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  std::int64_t pieces() const { return static_cast<std::int64_t>(pieces_.size()); }
  void run(std::int64_t piece, const void* from, void* to) const;

 private:
  struct Piece {
    dnnl::memory::desc from, to, scratch;
    dnnl::reorder copy;
  };
  void add(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  std::vector<Piece> pieces_;
};

}  // namespace ridge
