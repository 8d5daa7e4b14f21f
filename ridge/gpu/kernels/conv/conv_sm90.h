#pragma once

// Convolutions by Hopper's own instructions, from ridge/gpu/sm90: of bf16 and f16, channels last,
// as products of matrices whose left operand the copy engine gathers from the image.

#include <memory>
#include <string>
#include <vector>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

// How the result, a matrix [N H W, O], is cut: tiles of `rows` x `columns`, of which `split` blocks
// each sum a part.
struct ConvTiles {
  int rows = 128, columns = 128, split = 1;
  bool paired = false;        // two blocks load the weight together
  bool few_channels = false;  // of an image whose pixels the copy engine cannot take
  bool patches = false;       // of the image, which is read once for all taps
  bool operator==(const ConvTiles&) const = default;
};

std::string to_string(const ConvTiles& tiles);

// The ways that there are kernels for and that may be worth their while, what is expected to be the
// fastest first; none for cards other than Hopper, gradients, groups, other types or layouts, and
// channels that are no multiples of 8, but for images of few.
std::vector<ConvTiles> conv90_ways(const Context& gpu, const ConvProblem& problem);

// One of these ways. `gpu` outlives it.
std::unique_ptr<FusedConv> conv90(const Context& gpu, const ConvProblem& problem,
                                  const ConvTiles& tiles);

// The same for convolutions of each channel for itself (is_depthwise() of conv_direct.h), and the
// gradients of x of those whose stride is 1. Infinity or NaN in x may make NaN of neighbouring
// pixels of up to 7 other channels besides.
bool depthwise90_supports(const Context& gpu, const ConvProblem& problem);
std::unique_ptr<FusedConv> depthwise90(const Context& gpu, const ConvProblem& problem);

}  // namespace ridge::gpu
