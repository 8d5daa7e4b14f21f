#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "ridge/session/session.h"

namespace ridge {

struct EvaluationReport {
  double loss = 0;        // nats a token or, where samples have none, a sample
  double perplexity = 0;  // of tokens
  std::int64_t samples = 0;
  std::int64_t tokens = 0;            // predicted; 0: samples are no sequences
  std::optional<std::int64_t> right;  // of samples with a label each: as Evaluation::right
  double seconds = 0;
  std::size_t peak_bytes = 0;
};

// The loss over the samples of the validation split in their order, each once: of tokens, every
// token of the split but its first, and what is left over after the last whole window, is predicted
// once. At most eval_batches batches; all of them if that is 0, which synthetic data do not allow.
// `initialize` sets what the model starts with, in place of Workload::initialize. If `logits_path`
// is not empty, the logits of the first batch are written there, as "logits" f32 beside the input.
EvaluationReport evaluate(const RunOptions& options, Device& device,
                          const std::function<void(Graph&)>& initialize = {},
                          const std::filesystem::path& logits_path = {});

// Writes the logits of a session's last pass, as "logits" f32, beside its input under the name that
// this has in the graph: "tokens" i32, "images" f32.
void write_logits(const std::filesystem::path& path, Session& session,
                  std::span<const std::byte> input);

}  // namespace ridge
