#include "ridge/models/vision/vision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/ranges.h"
#include "ridge/session/images.h"
#include "ridge/session/weights.h"
#include "ridge/session/workload.h"

namespace ridge {
namespace {

std::vector<NetworkName> networks() {
  std::vector<NetworkName> names;
  for (VisionNetwork& network : vision_networks())
    names.push_back({network.name, std::move(network.aliases)});
  return names;
}

void set_defaults(RunOptions& o) {
  o.batch_size = 32;
  o.optimizer = "sgd";
  o.learning_rate = 0.01;
  o.weight_decay = 0;
  o.validation_fraction = 0.2;
  o.eval_batches = 0;
}

// How a network is built for a run in a precision.
VisionOptions vision_options(const RunOptions& o, DType compute, std::int64_t classes = 0) {
  return {.batch_size = o.rank_batch_size(),
          .image_size = o.image_size,
          .compute = compute,
          .training = o.use() == Use::training,
          .classes = classes};
}

void check(const RunOptions& o) {
  check_range("image-size", o.image_size, 0, 1 << 14);
  if (!o.init_from.empty())
    throw UsageError("--init-from is not for a vision network, which starts from --weights");
  if (o.validation_fraction > 0.5)
    throw UsageError("--validation-fraction is {}; of images at most half is held out",
                     o.validation_fraction);
  Graph graph;
  const Model model = build_vision(graph, o.network, vision_options(o, DType::f32));
  if (!o.data.empty() && model.targets.shape().rank() != 1)
    throw UsageError("--data labels whole images, but {} gives each pixel a class", o.network);
}

template <class T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// One batch of images from N(0, 1) and of uniform targets, in so many parts, which as many ranks
// share: they decide neither the time nor the memory of a step.
class RandomImages final : public Batches {
 public:
  RandomImages(std::uint64_t seed, std::uint32_t classes, std::int64_t parts, std::int64_t ranks)
      : seed_(seed),
        classes_(classes),
        parts_(static_cast<std::uint64_t>(parts)),
        one_each_(parts == ranks) {}

  void fill(Split, std::uint64_t index, std::span<std::byte> input,
            std::span<std::byte> targets) override {
    const std::span<float> pixels = as<float>(input);
    const std::span<std::int32_t> classes = as<std::int32_t>(targets);
    const std::uint64_t part = index % parts_, stream = stream_of("targets");
    fill_normal(pixels, 1.0f, seed_, stream_of("images"), part * pixels.size());
    for (std::size_t i = 0; i < classes.size(); ++i)
      classes[i] = static_cast<std::int32_t>(
          uniform_integer(classes_, seed_, stream, part * classes.size() + i));
  }
  bool always_same() const override { return one_each_; }
  std::string description() const override {
    return fmt::format("one batch of random images, labels uniform in [0, {})", classes_);
  }

 private:
  std::uint64_t seed_;
  std::uint32_t classes_;
  std::uint64_t parts_;
  bool one_each_;
};

class ImageBatches final : public Batches {
 public:
  ImageBatches(const RunOptions& o, std::int64_t size)
      : data_(open_images(o.data), static_cast<std::uint64_t>(o.seed), o.validation_fraction),
        size_(size) {}

  void fill(Split split, std::uint64_t index, std::span<std::byte> input,
            std::span<std::byte> targets) override {
    const std::span<std::int32_t> labels = as<std::int32_t>(targets);
    data_.batch(split, static_cast<std::int64_t>(index * labels.size()), size_, as<float>(input),
                labels);
  }
  std::optional<std::int64_t> validation_samples() const override {
    return data_.size(Split::validation);
  }
  bool has_labels() const override { return true; }
  std::string description() const override {
    return fmt::format("{}, {} held out", data_.images().description(),
                       data_.size(Split::validation));
  }

 private:
  ImageData data_;
  std::int64_t size_;
};

Workload make(const RunOptions& o) {
  const VisionNetwork network = vision_network(o.network);
  const std::int64_t size = o.image_size > 0 ? o.image_size : network.input_size;
  const std::int64_t classes = o.data.empty() ? network.classes : classes_of_images(o.data);
  const auto seed = static_cast<std::uint64_t>(o.seed);
  const std::int64_t given = o.data.empty() ? 0 : classes;
  Workload workload{
      .info = {.name = std::string(network.name),
               .title = std::string(network.name),
               .description = fmt::format("{}, {} image{} of {} x {}{}", network.name, o.batch_size,
                                          o.batch_size == 1 ? "" : "s", size, size,
                                          o.max_grad_norm > 0 ? ", clipped" : ""),
               .sample = "image",
               .classes = classes,
               .settings = {{"Image Size", fmt::format("{0} x {0}", size)},
                            {"Classes", fmt::to_string(classes)}},
               .model_options = {"network", "image-size"},
               .work_options = {"network", "image-size"}},
      .use = o.use(),
      .batch_size = o.batch_size,
      .optimizer = optimizer_config(o),
      .build =
          [o, given](Graph& graph, const Precision& precision) {
            return build_vision(graph, o.network, vision_options(o, precision.compute, given));
          },
      .open = [o, size, seed, classes]() -> std::unique_ptr<Batches> {
        if (!o.data.empty()) return std::make_unique<ImageBatches>(o, size);
        return std::make_unique<RandomImages>(seed, static_cast<std::uint32_t>(classes),
                                              o.batch_size / o.rank_batch_size(), o.ranks);
      },
      .initialize = {},
      .in_use = {}};
  if (!o.weights.empty())
    workload.initialize = [o](Graph& graph, Device&) { load_weights(graph, o.network, o.weights); };
  else if (o.use() == Use::inference)
    workload.initialize = [o, seed, given](Graph& graph, Device& device) {
      settle_statistics(graph, o.network, vision_options(o, DType::f32, given), seed, device);
    };
  if (o.use() == Use::training)
    workload.in_use = [o] {
      RunOptions in_use = o;
      in_use.mode = name_of(Use::inference);
      in_use.weights.clear();
      return make(in_use);
    };
  return workload;
}

// Four images of at least 64 pixels: enough of both that batch norms in the last layers see more
// than a few values each. At a rate for so few: at the usual one, training amplifies rounding until
// after some steps no two losses can be compared, also without batch norms.
void shrink(RunOptions& o) {
  o.batch_size = 4;
  o.learning_rate = 3e-4;  // where the loss jumps, as it does at a larger one, rounding decides
  for (o.image_size = 64;; o.image_size += 32) {
    try {
      RunOptions resolved = o;
      resolved.resolve();
      return;
    } catch (const UsageError&) {
      if (o.image_size > 512) throw;
    }
  }
}

// One network of each kind of block.
std::vector<RunOptions> verified(Use use) {
  std::vector<RunOptions> all;
  for (const char* network :
       {"alexnet", "resnet18", "resnet50", "mobilenet_v2", "shufflenet_v2_x0_5", "squeezenet1_1",
        "densenet121", "googlenet", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "swin_t",
        "vit_b_32"}) {
    RunOptions o = default_options(network);
    shrink(o);
    o.mode = name_of(use);
    o.resolve();
    all.push_back(o);
  }
  return all;
}

// Networks are deep, and normalize by statistics of few values. What one of fresh weights makes of
// rounding depends on the network, so there a schedule is right if it is no further from the
// reference than three times what the baseline is. In int8 all schedules compute the same integers,
// and a baseline would be compared with itself: they are held against the baseline in bf16.
// Measured over the networks of the table on four images of 64 to 96 pixels, with three seeds each:
// in int8 the loss is off by 5e-2 at most and the logits by up to 1.1, which is 1 to 4 times as far
// as in bf16. In fp32, with four seeds or five, ResNet-50's inference is off furthest on a CPU: the
// loss by 4.6e-6 and the logits by 6.6e-5. PyTorch's own ResNet-50 of fresh weights and settled
// statistics is off by up to 2.1e-5 and 7.7e-5, with six.
Tolerance tolerance(const Precision& precision) {
  using Products = Precision::Products;
  if (precision.products == Products::int8)
    return {.loss = 1e-1, .logits = 2e-1, .curve = 1e-1, .times_baseline = 6, .baseline = "bf16"};
  if (precision.products == Products::tf32 || precision.compute == DType::f16)
    return {.loss = 2e-3, .logits = 3e-2, .gradient = 2e-1, .curve = 1e-1, .times_baseline = 3};
  if (precision.compute == DType::bf16)
    return {.loss = 2e-2, .logits = 2e-1, .gradient = 9e-1, .curve = 5e-1, .times_baseline = 3};
  return {.loss = 1e-5, .logits = 1e-4, .gradient = 1e-2, .curve = 1e-3};
}

}  // namespace

const WorkloadFamily vision_family{.name = "vision",
                                   .models = "vision networks",
                                   .networks = networks,
                                   .set_defaults = set_defaults,
                                   .benchmark_batch = 64,
                                   .has_weights_files = true,
                                   .derive = nullptr,
                                   .check = check,
                                   .scaled = nullptr,
                                   .make = make,
                                   .verified = verified,
                                   .shrink = shrink,
                                   .adapt = nullptr,
                                   .tolerance = tolerance};

}  // namespace ridge
