#pragma once

// Convolutions by the instructions of sm90, from ridge/gpu/sm90: of bf16 and f16, channels last, as
// products of matrices whose left operand the copy engine gathers from the image.

#include <memory>
#include <optional>
#include <string>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

// How the result, a matrix [N H W, O], is cut: tiles of `rows` x `columns`, of which `split` thread
// blocks each sum a part.
struct ConvTiles {
  int rows = 128, columns = 128, split = 1;
  bool paired = false;        // two thread blocks load the weight together
  bool few_channels = false;  // of an image whose pixels the copy engine cannot take
  bool patches = false;       // of the image, which is read once for all taps
  bool operator==(const ConvTiles&) const = default;
};

std::string to_string(const ConvTiles& tiles);

// Whether there is a kernel with such tiles and it may be worth its while: on sm90, for the forward
// pass without groups, channels last, and channels that are multiples of 8, or few.
bool conv_sm90_supports(const Context& gpu, const ConvProblem& problem, const ConvTiles& tiles);

// The tiles expected to be the fastest, patches aside; none where none are supported.
std::optional<ConvTiles> conv_sm90_expected_best(const Context& gpu, const ConvProblem& problem);

// Whether patches are expected to be faster than any tiles.
bool conv_sm90_prefers_patches(const Context& gpu, const ConvProblem& problem);

// The convolution with tiles that are supported. `gpu` outlives it.
std::unique_ptr<FusedConv> conv_sm90(const Context& gpu, const ConvProblem& problem,
                                     const ConvTiles& tiles);

// The same for convolutions of each channel for itself (is_depthwise() of conv_direct.h), and the
// gradients of x of those whose stride is 1. Infinity or NaN in x may make NaN of neighboring
// pixels of up to 7 other channels besides.
bool depthwise_sm90_supports(const Context& gpu, const ConvProblem& problem);
std::unique_ptr<FusedConv> depthwise_sm90(const Context& gpu, const ConvProblem& problem);

}  // namespace ridge::gpu
