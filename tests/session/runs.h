#pragma once

#include <algorithm>
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

// Those of the first `steps` steps of a run.
inline std::vector<double> loss_curve(const RunOptions& options, Device& device,
                                      std::int64_t steps) {
  Session session(options, device);
  return losses_of(session, steps);
}

// The sizes of a LLaMA and of its batches. Steps of the default take a millisecond; a test names
// the sizes that its results depend on. 0 stands for "derived", as in RunOptions.
struct LlamaSizes {
  std::int64_t vocab_size = 50, hidden_dim = 32, n_layers = 2, n_heads = 4, n_kv_heads = 0;
  std::int64_t intermediate_dim = 0, batch_size = 3, seq_len = 24;
};

// The smallest, for tests that take many steps.
inline constexpr LlamaSizes one_layer{
    .vocab_size = 32, .hidden_dim = 16, .n_layers = 1, .n_heads = 2, .batch_size = 2, .seq_len = 8};

// Options that train a LLaMA of these sizes. Not resolved.
inline RunOptions small_llama(const LlamaSizes& sizes = {}) {
  return {.vocab_size = sizes.vocab_size,
          .hidden_dim = sizes.hidden_dim,
          .n_layers = sizes.n_layers,
          .n_heads = sizes.n_heads,
          .n_kv_heads = sizes.n_kv_heads,
          .intermediate_dim = sizes.intermediate_dim,
          .batch_size = sizes.batch_size,
          .seq_len = sizes.seq_len};
}

// The rows of the table of schedules that choose different passes for this run.
inline std::vector<std::string> distinct_rows(RunOptions options, const Device& device) {
  std::vector<std::string> rows;
  std::vector<std::vector<const Pass*>> seen;
  for (const ScheduleRow& row : schedules()) {
    options.version = row.name;
    std::vector<const Pass*> passes = options.schedule(device.target()).passes;
    if (std::ranges::find(seen, passes) != seen.end()) continue;
    seen.push_back(std::move(passes));
    rows.emplace_back(row.name);
  }
  return rows;
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
