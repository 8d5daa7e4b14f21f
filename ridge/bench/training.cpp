#include "ridge/bench/training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "ridge/base/error.h"
#include "ridge/bench/calibration.h"
#include "ridge/bench/schedule.h"
#include "ridge/bench/weights.h"

namespace ridge {

VisionOptions vision_options(const BenchOptions& options, std::int64_t classes) {
  return {.batch_size = options.batch_size,
          .image_size = options.image_size,
          .compute = options.compute_dtype(),
          .training = options.trains(),
          .classes = classes};
}

VisionTraining::VisionTraining(const BenchOptions& options) : options_(options) {
  if (!options.data.empty()) data_.emplace(options.data, static_cast<std::uint64_t>(options.seed));
}

VisionOptions VisionTraining::network() const {
  return vision_options(options_, data_ ? data_->classes() : 0);
}

void VisionTraining::append(const VisionModel& model) {
  if (data_ && model.targets.shape().rank() != 1)
    throw UsageError("--data labels whole images, but {} gives each pixel a class",
                     options_.network);
  SgdConfig config{.momentum = options_.momentum, .weight_decay = options_.weight_decay};
  if (options_.compute_dtype() == DType::f16) config.loss_scaling = LossScaling{};
  model_ = model;
  step_ = add_sgd_step(model.loss, config);
}

void VisionTraining::start(Executor& executor) const {
  const std::array schedule{static_cast<float>(options_.learning_rate), 1.0f, 1.0f};
  executor.write(step_.schedule, std::span<const float>(schedule));
}

void VisionTraining::next(Executor& executor) {
  const std::array number{static_cast<std::int32_t>(steps_)};
  if (model_.step) executor.write(model_.step, std::span<const std::int32_t>(number));
  if (data_) feed(ImageData::Split::train, steps_ * options_.batch_size, model_, executor);
  ++steps_;
}

void VisionTraining::feed(ImageData::Split split, std::int64_t first, const VisionModel& model,
                          Executor& executor) {
  images_.resize(static_cast<std::size_t>(model.images.type().numel()));
  targets_.resize(static_cast<std::size_t>(model.targets.type().numel()));
  data_->batch(split, first, model.images.shape()[2], images_, targets_);
  executor.write(model.images, std::span<const float>(images_));
  executor.write(model.targets, std::span<const std::int32_t>(targets_));
}

Accuracy VisionTraining::accuracy(Graph& graph, Executor& executor, bool int8) {
  Graph forward;
  VisionOptions use = network();
  use.training = false;
  if (int8) use.compute = beside_int8(executor.device());
  const VisionModel model = build_vision(forward, options_.network, use);
  copy_weights(graph, executor, forward);
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  if (int8) {
    rewrite_for_inference(forward, compile_mode("default"), true);
    quantize(forward, executor.device(), seed,
             [&](Executor& calibrating) { feed(ImageData::Split::train, 0, model, calibrating); });
  }
  Executor evaluator(forward, executor.device());
  evaluator.initialize(seed);
  Accuracy found;
  const std::int64_t images = data_->size(ImageData::Split::held_out);
  const auto classes = static_cast<std::size_t>(model.logits.shape()[1]);
  while (found.images < images) {
    feed(ImageData::Split::held_out, found.images, model, evaluator);
    evaluator.run(Phase::forward);
    const std::vector<float> logits = evaluator.read_floats(model.logits);
    for (std::size_t i = 0; i < targets_.size() && found.images < images; ++i, ++found.images) {
      const auto row = std::span(logits).subspan(i * classes, classes);
      const auto best = std::ranges::max_element(row) - row.begin();
      found.right += best == targets_[i];
    }
  }
  return found;
}

}  // namespace ridge
