#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ridge/bench/image_data.h"
#include "ridge/bench/options.h"
#include "ridge/models/vision/vision.h"
#include "ridge/run/executor.h"
#include "ridge/session/optimizer.h"

namespace ridge {

// How the network is built to be used, or to be trained on as many classes as there are (0: its
// own).
VisionOptions vision_options(const BenchOptions& options, std::int64_t classes = 0);

struct Accuracy {
  std::int64_t right = 0, images = 0;
  double share() const { return static_cast<double>(right) / static_cast<double>(images); }
};

// The training of a network: SGD, on the images of options.data or, without, on one batch that the
// session feeds.
class VisionTraining {
 public:
  // FormatError for data that are not as ImageData wants them.
  explicit VisionTraining(const BenchOptions& options);

  // How the network is to be built.
  VisionOptions network() const;
  // Appends the backward pass and the update of all parameters; in f16 with dynamic loss scaling.
  void append(const VisionModel& model);
  // Before the first step, and before each: feeds the learning rate; the step's number, which
  // decides what is dropped; and the next images, if there are data.
  void start(Executor& executor) const;
  void next(Executor& executor);

  bool has_data() const { return data_.has_value(); }
  // Of the network as it is now, in its form for use, on the images held out of training; in int8
  // after calibration on a batch of the others. Needs data.
  Accuracy accuracy(Graph& graph, Executor& executor, bool int8 = false);

 private:
  void feed(ImageData::Split split, std::int64_t first, const VisionModel& model,
            Executor& executor);

  BenchOptions options_;
  std::optional<ImageData> data_;
  VisionModel model_;
  TrainingStep step_;
  std::int64_t steps_ = 0;  // fed so far
  std::vector<float> images_;
  std::vector<std::int32_t> targets_;
};

}  // namespace ridge
