#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "ridge/base/safetensors.h"
#include "ridge/session/trainer.h"

namespace ridge {

// The losses of the steps from where the trainer stands up to step `until`.
inline std::vector<double> losses_of(Trainer& trainer, std::int64_t until) {
  std::vector<double> losses;
  while (trainer.steps_done() < until) losses.push_back(trainer.step().loss);
  return losses;
}

// The bytes of a file, such as a checkpoint.
inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Of a checkpoint, by name; without the metadata, which tell the version.
using Tensors = std::map<std::string, std::vector<std::byte>>;

inline Tensors tensors_in(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  Tensors tensors;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const StoredTensor tensor = file.tensor(i);
    tensors[std::string(tensor.name)].assign(tensor.bytes.begin(), tensor.bytes.end());
  }
  return tensors;
}

}  // namespace ridge
