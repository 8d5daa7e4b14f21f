// What kernels of sm90 are where there are none, in a build for HIP: choices among kernels ask for
// these and are told that there are none.

#include <string>

#include "ridge/base/error.h"
#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/kernels/attention/window_sm90.h"
#include "ridge/gpu/kernels/conv/bottleneck_sm90.h"
#include "ridge/gpu/kernels/conv/conv_sm90.h"
#include "ridge/gpu/kernels/conv/int8_conv.h"
#include "ridge/gpu/kernels/product/products_sm90.h"

namespace ridge::gpu {
namespace {

// Ends functions that nobody calls who has asked for the kernel before.
[[noreturn]] void left_out(const char* what) {
  throw DeviceError("there is no {} in this build", what);
}

}  // namespace

// Products.
ProductPtr product_sm90(const Context&, const ProductShape&) { return nullptr; }
ProductPtr split_product_sm90(const Context&, const ProductShape&) { return nullptr; }
bool gate_products_sm90_support(const Context&, const GateProduct&) { return false; }
void swiglu_product_sm90(const Context&, const GateProduct&, const void*, const void*, void*,
                         void*) {
  left_out("a product of sm90");
}
void swiglu_grad_product_sm90(const Context&, const GateProduct&, GradBuffers, const void*,
                              const void*, const void*, void*, void*) {
  left_out("a product of sm90");
}
bool linear_product_sm90_supports(const Context&, const LinearProduct&) { return false; }
std::string to_string(const LinearTiles&) { return {}; }
LinearTiles linear_product_sm90_expected_best(const Card&, const LinearProduct&) { return {}; }
void linear_product_sm90(const Context&, const LinearProduct&, const LinearTiles&, const void*,
                         const void*, const void*, const void*, void*) {
  left_out("a product of sm90");
}

// Convolutions.
std::string to_string(const ConvTiles&) { return {}; }
std::string to_string(const Int8Tiles&) { return {}; }
bool conv_sm90_supports(const Context&, const ConvProblem&, const ConvTiles&) { return false; }
std::optional<ConvTiles> conv_sm90_expected_best(const Context&, const ConvProblem&) { return {}; }
bool conv_sm90_prefers_patches(const Context&, const ConvProblem&) { return false; }
std::unique_ptr<FusedConv> conv_sm90(const Context&, const ConvProblem&, const ConvTiles&) {
  left_out("a convolution of sm90");
}
bool depthwise_sm90_supports(const Context&, const ConvProblem&) { return false; }
std::unique_ptr<FusedConv> depthwise_sm90(const Context&, const ConvProblem&) {
  left_out("a convolution of sm90");
}
bool int8_conv_sm90_supports(const Context&, const Int8Problem&, const Int8Tiles&) { return false; }
Int8Tiles int8_conv_sm90_expected_best(const Context&, const Int8Problem&) { return {}; }
void int8_conv_sm90(const Context&, const Int8Problem&, const Int8Tiles&, const Int8Pointers&) {
  left_out("a convolution of sm90");
}
bool bottleneck_sm90_supports(const Context&, const ResidualBottleneck&, const BottleneckProblem&,
                              BottleneckTiles) {
  return false;
}
std::int64_t bottleneck_sm90_tiles(const BottleneckProblem&) { return 0; }
void bottleneck_sm90(const Context&, const BottleneckProblem&, BottleneckTiles,
                     const BottleneckPointers&) {
  left_out("a bottleneck of sm90");
}

// Attention.
std::size_t flash_sm90_workspace(FlashBackward, const FlashShape&) { return 0; }
void flash_sm90_forward(FlashForward, const FlashShape&, const FlashOperands&, void*, float*,
                        Stream) {
  left_out("attention of sm90");
}
void flash_sm90_backward(FlashBackward, const FlashShape&, const FlashOperands&, const void*,
                         const float*, const void*, const FlashGradients&, void*, Stream) {
  left_out("attention of sm90");
}
void flash_sm90_scaled_forward(FlashForward, const ScaledFlash&, float*, float*, Stream) {
  left_out("attention of sm90");
}
void flash_sm90_scaled_backward(const ScaledFlash&, const float*, const float*, const void*,
                                const float*, const FlashGradients&, void*, Stream) {
  left_out("attention of sm90");
}
bool window_attention_sm90_supports(const Context&, DType, const WindowShape&) { return false; }
void window_attention_sm90(const Context&, DType, const WindowShape&, const void*, const void*,
                           void*) {
  left_out("attention of sm90");
}

}  // namespace ridge::gpu
