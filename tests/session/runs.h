#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/safetensors.h"
#include "ridge/session/session.h"

namespace ridge {

// The losses of the steps from where the session stands up to step `until`.
inline std::vector<double> losses_of(Session& session, std::int64_t until) {
  std::vector<double> losses;
  while (session.steps_done() < until) losses.push_back(session.step().loss);
  return losses;
}

// A LLaMA whose steps take a millisecond. Not resolved.
inline RunOptions small_llama() {
  RunOptions o;
  o.vocab_size = 50;
  o.hidden_dim = 32;
  o.n_layers = 2;
  o.n_heads = 4;
  o.batch_size = 3;
  o.seq_len = 24;
  return o;
}

// A network on a few small images.
inline RunOptions network_options(std::string_view network, Use use,
                                  std::string_view version = "none",
                                  std::string_view dtype = "fp32", std::int64_t image_size = 64) {
  RunOptions options = default_options(network);
  options.mode = name_of(use);
  options.version = version;
  options.dtype = dtype;
  options.batch_size = 2;
  options.image_size = image_size;
  options.learning_rate = 1e-3;  // at which networks without batch norm learn, too
  options.resolve();
  return options;
}

// The names of all compile modes.
inline std::vector<std::string_view> compile_modes() {
  std::vector<std::string_view> names;
  for (const ScheduleRow& row : schedules())
    if (row.kind == ScheduleRow::Kind::compile_mode) names.push_back(row.name);
  return names;
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
