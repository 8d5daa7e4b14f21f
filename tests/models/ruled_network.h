#pragma once

// Vision networks with weights and an image that nobody has to ship: a rule makes them from names
// (vision_rule.h). Their logits are held to those that torchvision has from the same.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/models/vision/vision.h"
#include "ridge/run/executor.h"

namespace ridge::testing {

// vision_golden.json: of each network that torchvision has.
const nlohmann::json& vision_golden();

// Rows and columns of the image whose logits torchvision was asked for.
std::int64_t ruled_image_size(std::string_view network);

// One network; its weights are made once for all its runs.
class RuledNetwork {
 public:
  explicit RuledNetwork(std::string name) : name_(std::move(name)) {}

  // Of one image, on which int8 is calibrated. A dtype is fp32, tf32, bf16, fp16 or int8.
  std::vector<float> logits(Device& device, std::string_view dtype);
  // The largest difference of these logits to those of torchvision that are known, over their root
  // mean square; infinite if one is no number. Where torchvision has no such network, what it would
  // have are our own, by the CPU in fp32.
  double error(const std::vector<float>& logits);

  // A step in the form for training, on two images, without update.
  struct Step {
    double loss = 0;           // nats
    double gradient_norm = 0;  // of all parameters together
  };
  Step training_step(Device& device, std::string_view dtype);

 private:
  struct Expected {
    double rms = 0;
    std::vector<std::size_t> elements;
    std::vector<double> values;
  };
  const Expected& expected();
  void set_weights(Graph& graph);

  std::string name_;
  std::optional<Expected> expected_;
  std::map<std::string, std::vector<float>> weights_;
};

// The largest difference of a network's logits in this dtype to exact ones, over their root mean
// square, that its roundings explain; ruled_network.cpp derives it.
double logits_tolerance(std::string_view network, std::string_view dtype);

}  // namespace ridge::testing
