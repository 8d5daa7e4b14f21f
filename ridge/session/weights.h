#pragma once

// Where the weights of a network come from, and go to. What is read becomes the initial values of
// its graph (Graph::set_init), to which the graph may then be rewritten, frozen or trained.

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "ridge/models/vision/vision.h"
#include "ridge/run/executor.h"

namespace ridge {

// Gives the parameters and running statistics of the network called `network` the values of a
// safetensors file that has torchvision's names for them, in F64, F32, F16 or BF16. What networks
// have besides only while they are trained in torchvision (num_batches_tracked, auxiliary
// classifiers) is passed over. FormatError for a file that is damaged, lacks a tensor, has one of
// another shape, or one more than the network: it names the tensor and the networks that the file
// fits.
void load_weights(Graph& graph, std::string_view network, const std::filesystem::path& path);

// Writes parameters and buffers, as they are now, for load_weights() and torchvision.
void save_weights(const std::filesystem::path& path, Graph& graph, Executor& executor);

// Gives a network's graph what another graph of it holds now.
void copy_weights(Graph& from, Executor& executor, Graph& to);

// Gives the running statistics of a network with fresh weights the values that they have over a few
// images, so that it computes what it would soon after its training began: with the values that
// training begins with, means 0 and variances 1, activations grow from layer to layer. `options`
// are those that the graph was built with, `seed` the one that its weights will be drawn from. Does
// nothing to a network without batch norm.
void settle_statistics(Graph& graph, std::string_view network, const VisionOptions& options,
                       std::uint64_t seed, Device& device);

}  // namespace ridge
