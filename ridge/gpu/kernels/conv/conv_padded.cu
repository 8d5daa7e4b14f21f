#include "ridge/gpu/kernels/conv/conv_padded.h"

#include <utility>

#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"

namespace ridge::gpu {
namespace {

constexpr int padded_channels = 8;  // 16 bytes
constexpr std::size_t alignment = 256;

using Pixel = Pack<std::uint16_t, padded_channels>;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// to[p] = from[p][0 .. channels) and zeros, for each of so many pixels.
__global__ void __launch_bounds__(elementwise_threads)
    pad_kernel(std::int64_t pixels, int channels, const std::uint16_t* from, Pixel* to) {
  begin_kernel();
  const std::int64_t p = thread_index<std::int64_t>();
  if (p >= pixels) return;
  Pixel pixel;
#pragma unroll
  for (int c = 0; c < padded_channels; ++c)
    pixel.at[c] = c < channels ? from[p * channels + c] : std::uint16_t{0};
  to[p] = pixel;
}

// And back.
__global__ void __launch_bounds__(elementwise_threads)
    unpad_kernel(std::int64_t pixels, int channels, const Pixel* from, std::uint16_t* to) {
  begin_kernel();
  const std::int64_t p = thread_index<std::int64_t>();
  if (p >= pixels) return;
  const Pixel pixel = from[p];
#pragma unroll
  for (int c = 0; c < padded_channels; ++c)
    if (c < channels) to[p * channels + c] = pixel.at[c];
}

std::int64_t pixels_of(const ImageShape& image) { return image.n * image.pixels(); }

std::size_t padded_bytes(const ImageShape& image) {
  return aligned(static_cast<std::size_t>(pixels_of(image)) * sizeof(Pixel));
}

class PaddedWeightGrad final : public FusedConv {
 public:
  PaddedWeightGrad(const Context& gpu, const ConvProblem& problem, std::shared_ptr<FusedConv> conv)
      : gpu_(gpu), problem_(problem), conv_(std::move(conv)) {}

  std::size_t workspace() const override {
    return padded_bytes(problem_.x) + padded_bytes(problem_.weight) + conv_->workspace() +
           alignment;
  }

  void run(Stream stream, const ConvPointers& o, void* workspace) const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace);
    auto* const x = static_cast<std::byte*>(workspace) + (aligned(begin) - begin);
    auto* const weight = x + padded_bytes(problem_.x);
    const int channels = static_cast<int>(problem_.x.c);
    const auto grid = [](std::int64_t pixels) {
      return dim3(blocks_for(pixels, elementwise_threads));
    };
    const std::int64_t pixels = pixels_of(problem_.x), taps = pixels_of(problem_.weight);
    launch(gpu_, pad_kernel, grid(pixels), dim3(elementwise_threads), 0, pixels, channels,
           static_cast<const std::uint16_t*>(o.x), reinterpret_cast<Pixel*>(x));
    ConvPointers padded = o;
    padded.x = x;
    padded.weight = weight;
    conv_->run(stream, padded, weight + padded_bytes(problem_.weight));
    launch(gpu_, unpad_kernel, grid(taps), dim3(elementwise_threads), 0, taps, channels,
           reinterpret_cast<const Pixel*>(weight),
           static_cast<std::uint16_t*>(const_cast<void*>(o.weight)));
  }

 private:
  const Context& gpu_;
  ConvProblem problem_;
  std::shared_ptr<FusedConv> conv_;
};

}  // namespace

bool takes_padding(const ConvProblem& problem) {
  return problem.kind == ConvProblem::Kind::weight_grad && is_16_bit(problem.dtype) &&
         problem.geometry.layout == ImageLayout::nhwc && problem.geometry.groups == 1 &&
         problem.x.c < padded_channels;
}

std::unique_ptr<FusedConv> padded_weight_grad(const Context& gpu, const ConvProblem& problem,
                                              std::size_t rank) {
  ConvProblem padded = problem;
  padded.x.c = padded.weight.c = padded_channels;
  return std::make_unique<PaddedWeightGrad>(gpu, problem, gpu.dnn->conv(padded, rank));
}

}  // namespace ridge::gpu
