// How fast a convolution and its gradients run on a CPU, by oneDNN and by each of our own kernels
// that the tuner may choose (ridge/cpu/conv.h): the time of oneDNN, and what part of it ours take.
// They follow each other in turn, and the best of all rounds counts.
//
//   convolutions [forward|by-x|by-weight] [threads] [rounds] [count] [seed]
//
// Shapes are those of the table below or, where a count is given, so many drawn by chance: 1 to 16
// images of 4 to 112 pixels square, 16 to 512 channels, windows of 1, 3 and 5 pixels, steps of 1
// and 2.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/exit_status.h"
#include "ridge/base/error.h"
#include "ridge/cpu/conv.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/trial_memory.h"

namespace ridge {
namespace {

using Kind = ConvShape::Kind;

struct Size {
  std::int64_t images, from, extent, to, window = 3, step = 1;
};

// Of ResNet, VGG and AlexNet, and two small ones.
constexpr Size sizes[] = {{8, 64, 56, 64},         {8, 128, 28, 128},  {8, 256, 14, 256},
                          {8, 512, 7, 512},        {8, 64, 112, 64},   {8, 64, 112, 128},
                          {8, 256, 28, 512},       {64, 512, 7, 512},  {2, 32, 32, 32},
                          {16, 128, 28, 32},       {16, 160, 14, 160}, {8, 128, 56, 128, 3, 2},
                          {8, 512, 14, 512, 3, 2}, {8, 48, 27, 128, 5}};

std::vector<Size> drawn_sizes(int count, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](double least, double most) {
    std::uniform_real_distribution<double> power(std::log2(least), std::log2(most));
    return static_cast<std::int64_t>(std::exp2(power(random)));
  };
  std::vector<Size> drawn;
  while (std::ssize(drawn) < count) {
    const Size size{.images = draw(1, 17),
                    .from = 16 * draw(1, 33),
                    .extent = draw(4, 113),
                    .to = 16 * draw(1, 33),
                    .window = 2 * draw(1, 4) - 1,
                    .step = draw(1, 3)};
    const std::int64_t results = size.images * size.extent * size.extent / size.step / size.step;
    if (results * size.from * size.to * size.window * size.window < std::int64_t{20'000'000'000})
      drawn.push_back(size);
  }
  return drawn;
}

ConvShape shape_of(const Size& size, Kind kind) {
  const std::int64_t padding = size.window / 2;
  const ConvGeometry geometry{
      .stride = {size.step, size.step}, .padding = {padding, padding}, .layout = ImageLayout::nhwc};
  const Pair out = geometry.output({size.extent, size.extent}, {size.window, size.window});
  return {.kind = kind,
          .geometry = geometry,
          .x = {size.images, size.from, size.extent, size.extent},
          .y = {size.images, size.to, out[0], out[1]},
          .weight = {size.to, size.from, size.window, size.window},
          .weight_layout = ImageLayout::nhwc};
}

// What part of oneDNN's time the fastest takes.
double measure(ThreadPool& pool, const Size& size, Kind kind, int rounds) {
  const ConvShape s = shape_of(size, kind);
  const auto tensor = [](const ImageShape& image) {
    return trial_tensor(image.n * image.c * image.pixels(), DType::f32);
  };
  const TrialMemory x = tensor(s.x), y = tensor(s.y), weight = tensor(s.weight);
  struct Candidate {
    int tile;
    ConvPtr conv;
    TrialMemory packed, workspace;
    double best = std::numeric_limits<double>::infinity();
  };
  std::vector<int> tiles = conv_tiles(s, {.split_bf16 = true});
  tiles.insert(tiles.begin(), 0);
  std::vector<Candidate> candidates;
  for (const int tile : tiles) {
    ConvPtr conv = make_conv(s, tile);
    TrialMemory packed = trial_memory(conv->packed_bytes());
    TrialMemory workspace = trial_memory(conv->workspace());
    candidates.push_back({tile, std::move(conv), std::move(packed), std::move(workspace)});
  }
  for (int round = 0; round < rounds; ++round)
    for (Candidate& c : candidates) {
      const bool packs = c.conv->packed_bytes() > 0;
      const auto begin = std::chrono::steady_clock::now();
      if (packs) c.conv->pack(pool, weight.get(), c.packed.get());
      c.conv->run(pool, {x.get(), packs ? c.packed.get() : weight.get(), y.get()},
                  c.workspace.get());
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      c.best = std::min(c.best, time.count());
    }
  const double library = candidates.front().best;
  const double products = static_cast<double>(s.y.n * s.y.pixels() * s.y.c * s.x.c) *
                          static_cast<double>(s.weight.pixels());
  fmt::print("{:>4} {:>5} {:>5} {:>5} {:>6} {:>4} {:>10.2f} {:>8.3f}", size.images, size.from,
             size.extent, size.to, size.window, size.step, library * 1e3,
             2e-12 * products / library);
  double fastest = 1;
  for (const Candidate& c : candidates) {
    if (c.tile == 0) continue;
    fastest = std::min(fastest, c.best / library);
    fmt::print("  {}: {:.2f}",
               c.tile == by_split_products ? "split"
               : c.tile == by_split_blocks ? "split in blocks"
               : c.tile == by_products     ? "products"
                                           : fmt::format("tile {}", c.tile),
               c.best / library);
  }
  fmt::print("\n");
  std::fflush(stdout);
  return fastest;
}

Kind kind_named(std::string_view name) {
  if (name == "forward") return Kind::forward;
  if (name == "by-x") return Kind::input_grad;
  if (name == "by-weight") return Kind::weight_grad;
  throw UsageError("'{}' is none of forward, by-x, by-weight", name);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  using namespace ridge;
  return exit_status_of([&] {
    const Kind kind = kind_named(argc > 1 ? argv[1] : "by-weight");
    CpuDevice device(argc > 2 ? std::atoi(argv[2]) : available_processors());
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 10;
    std::vector<Size> measured(std::begin(sizes), std::end(sizes));
    if (argc > 4)
      measured =
          drawn_sizes(std::atoi(argv[4]), argc > 5 ? static_cast<unsigned>(std::atoi(argv[5])) : 1);
    fmt::print(
        "{}, {} rounds\n{:>4} {:>5} {:>5} {:>5} {:>6} {:>4} {:>10} {:>8}  part of its time\n",
        device.description(), rounds, "n", "from", "edge", "to", "window", "step", "oneDNN, ms",
        "TFLOP/s");
    std::vector<double> parts;
    for (const Size& size : measured) parts.push_back(measure(device.pool(), size, kind, rounds));
    std::ranges::sort(parts);
    fmt::print("the fastest of both: {:.2f} to {:.2f} of oneDNN's time, {:.2f} in the median\n",
               parts.front(), parts.back(), parts[parts.size() / 2]);
  });
}
