// How fast every distinct convolution of vision networks is on a GPU, in 16 bits, channels last,
// with the bias, residual and activation that follow it, by each candidate that the tuner chooses
// among: microseconds of a launch inside a captured graph, on operands out of the cache. The floor
// is what its bytes take at 3.0 TB/s or its products at 750 TFLOP/s, whichever is longer: what an
// H100 can do. Sums count each as often as the network has it.
//
//   gpu_convolutions [--all] [--gradients] [--only TEXT] NETWORK BATCH ...
//
// --all prints a row for every candidate, --only takes the layers whose description contains a
// text.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/exit_status.h"
#include "ridge/analyze/operator_timing.h"
#include "ridge/base/error.h"
#include "ridge/base/statistics.h"
#include "ridge/device/tuner.h"
#include "ridge/gpu/device.h"
#include "ridge/ops/conv.h"

namespace ridge {
namespace {

using Case = OperatorCase;

constexpr double bytes_per_second = 3.0e12, flops_per_second = 7.5e14;

struct Layer {
  int in, pixels, out, size, stride;
  bool depthwise, residual;
  Epilogue epilogue;
  int count;
};

struct Network {
  std::string_view name;
  std::vector<Layer> layers;
};

using enum Epilogue;

// The layers of ResNet-50, stage by stage: reductions, 3 x 3, expansions (with a residual, but for
// the projections beside the first).
std::vector<Layer> resnet50() {
  std::vector<Layer> all{{3, 224, 64, 7, 2, false, false, relu, 1}};
  int in = 64, pixels = 56;
  for (const auto& [width, blocks] : {std::pair{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    const int stride = width == 64 ? 1 : 2, after = pixels / stride;
    all.push_back({in, pixels, width, 1, 1, false, false, relu, 1});
    all.push_back({4 * width, after, width, 1, 1, false, false, relu, blocks - 1});
    all.push_back({width, pixels, width, 3, stride, false, false, relu, 1});
    all.push_back({width, after, width, 3, 1, false, false, relu, blocks - 1});
    all.push_back({width, after, 4 * width, 1, 1, false, true, relu, blocks});
    all.push_back({in, pixels, 4 * width, 1, stride, false, false, none, 1});
    in = 4 * width;
    pixels = after;
  }
  return all;
}

struct Stage {
  int expand, out, blocks, stride, size;
};

// Inverted bottlenecks: expansion, depthwise, projection.
std::vector<Layer> bottlenecks(std::span<const Stage> stages, int last, Epilogue epilogue) {
  std::vector<Layer> all{{3, 224, 32, 3, 2, false, false, epilogue, 1}};
  int in = 32, pixels = 112;
  for (const Stage& s : stages)
    for (int block = 0; block < s.blocks; ++block) {
      const int stride = block == 0 ? s.stride : 1, hidden = in * s.expand;
      if (s.expand > 1) all.push_back({in, pixels, hidden, 1, 1, false, false, epilogue, 1});
      all.push_back({hidden, pixels, hidden, s.size, stride, true, false, epilogue, 1});
      pixels /= stride;
      all.push_back({hidden, pixels, s.out, 1, 1, false, block > 0, none, 1});
      in = s.out;
    }
  all.push_back({in, pixels, last, 1, 1, false, false, epilogue, 1});
  return all;
}

std::vector<Layer> densenet121() {
  std::vector<Layer> all{{3, 224, 64, 7, 2, false, false, relu, 1}};
  int channels = 64, pixels = 56;
  for (const int blocks : {6, 12, 24, 16}) {
    for (int block = 0; block < blocks; ++block, channels += 32)
      all.push_back({channels, pixels, 128, 1, 1, false, false, relu, 1});
    all.push_back({128, pixels, 32, 3, 1, false, false, none, blocks});
    if (blocks == 16) break;
    all.push_back({channels, pixels, channels / 2, 1, 1, false, false, none, 1});
    channels /= 2;
    pixels /= 2;
  }
  return all;
}

std::vector<Network> networks() {
  constexpr std::array mobile{Stage{1, 16, 1, 1, 3}, Stage{6, 24, 2, 2, 3}, Stage{6, 32, 3, 2, 3},
                              Stage{6, 64, 4, 2, 3}, Stage{6, 96, 3, 1, 3}, Stage{6, 160, 3, 2, 3},
                              Stage{6, 320, 1, 1, 3}};
  constexpr std::array efficient{
      Stage{1, 16, 1, 1, 3},  Stage{6, 24, 2, 2, 3},  Stage{6, 40, 2, 2, 5}, Stage{6, 80, 3, 2, 3},
      Stage{6, 112, 3, 1, 5}, Stage{6, 192, 4, 2, 5}, Stage{6, 320, 1, 1, 3}};
  return {{"resnet50", resnet50()},
          {"mobilenet_v2", bottlenecks(mobile, 1280, relu6)},
          {"efficientnet_b0", bottlenecks(efficient, 1280, silu)},
          {"densenet121", densenet121()}};
}

// Equal layers once, with how many there are.
std::vector<Layer> distinct(const std::vector<Layer>& layers) {
  std::vector<Layer> all;
  for (const Layer& l : layers) {
    const auto same = [&](const Layer& o) {
      return std::tie(l.in, l.pixels, l.out, l.size, l.stride, l.depthwise, l.residual,
                      l.epilogue) ==
             std::tie(o.in, o.pixels, o.out, o.size, o.stride, o.depthwise, o.residual, o.epilogue);
    };
    if (const auto found = std::ranges::find_if(all, same); found != all.end())
      found->count += l.count;
    else if (l.count > 0)
      all.push_back(l);
  }
  return all;
}

// Chooses the candidate it is told to.
class Choose final : public Tuner {
 public:
  explicit Choose(std::size_t candidate) : candidate_(candidate) {}
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>&) override {
    candidates_ = candidates;
    return std::min(candidate_, candidates - 1);
  }
  void tell(std::string_view, std::string_view choice) override { told = choice; }
  bool is_last() const { return candidate_ + 1 >= candidates_; }

  std::string told;

 private:
  std::size_t candidate_, candidates_ = 1;
};

struct Times {
  double first = 0, library = 0, best = 0;  // of the library's first plan, its best, and of all
  std::string library_name, best_name;
};

Times times_of(Device& device, const Case& c, bool all) {
  Times times;
  for (std::size_t candidate = 0;; ++candidate) {
    Choose tuner(candidate);
    const auto begin = std::chrono::steady_clock::now();
    double seconds = 0;
    try {
      seconds = statistics_of(time_operator(device, c, {.kernels = {.tuner = &tuner}})).median;
    } catch (const Error& error) {
      fmt::print("  candidate {} of {}: {}\n", candidate, c.label, error.what());
      if (tuner.is_last()) break;
      continue;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (all)
      fmt::print("    {:36} {:9.2f} us, measured in {:.2f} s\n", tuner.told, seconds * 1e6,
                 taken.count());
    const bool is_library = tuner.told.starts_with("cuDNN");
    if (candidate == 0) times = {seconds, seconds, seconds, tuner.told, tuner.told};
    if (is_library && seconds < times.library)
      times.library = seconds, times.library_name = tuner.told;
    if (seconds < times.best) times.best = seconds, times.best_name = tuner.told;
    if (tuner.is_last()) break;
  }
  return times;
}

std::vector<Case> cases_of(const Layer& l, std::int64_t batch, bool gradients) {
  const ConvGeometry g{.stride = {l.stride, l.stride},
                       .padding = {l.size / 2, l.size / 2},
                       .groups = l.depthwise ? l.in : 1,
                       .layout = ImageLayout::nhwc};
  const TensorType x{DType::bf16, {batch, l.pixels, l.pixels, l.in}};
  const TensorType weight{DType::bf16, {l.out, l.size, l.size, l.depthwise ? 1 : l.in}};
  const TensorType y = Conv2d{g}.infer(std::vector{x, weight})[0];
  const std::string label =
      fmt::format("{}{}x{}/{} {} @ {} to {}{}", l.depthwise ? "dw " : "", l.size, l.size, l.stride,
                  l.in, l.pixels, l.out, l.residual ? " + residual" : "");
  if (gradients)
    return {{label + " dx", Conv2dInputGrad{g, x.shape}, {y, weight}},
            {label + " dw", Conv2dWeightGrad{g, weight.shape}, {y, x}}};
  std::vector<TensorType> in{x, weight, {DType::bf16, {l.out}}};
  if (l.residual) in.push_back(y);
  return {{label, Conv2d{g, true, l.residual, l.epilogue}, in}};
}

double floor_of(const Case& c) {
  const Cost work = cost_of(c);
  return std::max(static_cast<double>(work.bytes()) / bytes_per_second,
                  2 * static_cast<double>(work.macs) / flops_per_second);
}

void measure_network(Device& device, const Network& network, std::int64_t batch, bool all,
                     bool gradients, std::string_view only) {
  fmt::print("{}, batch {}: us\n{:38} {:>3} {:>8} {:>8} {:>8} {:>8}\n", network.name, batch, "", "",
             "floor", "plan 0", "library", "best");
  double floors = 0, first = 0, library = 0, best = 0;
  for (const Layer& l : distinct(network.layers))
    for (const Case& c : cases_of(l, batch, gradients)) {
      if (c.label.find(only) == std::string::npos) continue;
      const Times t = times_of(device, c, all);
      const double least = floor_of(c);
      fmt::print("{:38} {:3} {:8.2f} {:8.2f} {:8.2f} {:8.2f} {}\n", c.label, l.count, least * 1e6,
                 t.first * 1e6, t.library * 1e6, t.best * 1e6, t.best_name);
      std::fflush(stdout);
      floors += l.count * least;
      first += l.count * t.first;
      library += l.count * t.library;
      best += l.count * t.best;
    }
  fmt::print("{:42} {:8.1f} {:8.1f} {:8.1f} {:8.1f}\n\n", "sum", floors * 1e6, first * 1e6,
             library * 1e6, best * 1e6);
}

void run(std::span<char* const> arguments) {
  bool all = false, gradients = false;
  std::string_view only;
  std::vector<std::string_view> named;
  for (const std::string_view argument : arguments)
    if (!named.empty() && named.back() == "--only") {
      only = argument;
      named.pop_back();
    } else if (argument == "--all")
      all = true;
    else if (argument == "--gradients")
      gradients = true;
    else
      named.push_back(argument);
  const std::unique_ptr<Device> device = open_gpu({.deterministic = false});
  for (std::size_t i = 0; i + 1 < named.size(); i += 2)
    for (const Network& network : networks())
      if (network.name == named[i])
        measure_network(*device, network, std::atoi(named[i + 1].data()), all, gradients, only);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  return ridge::exit_status_of([&] { ridge::run({argv + 1, argv + argc}); });
}
