#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/models/llama/llama.h"
#include "ridge/run/executor.h"
#include "ridge/session/options.h"

namespace ridge {

// A language model without a backward pass: the forward graph of resolved options and its executor.
class Evaluator {
 public:
  // `load` sets the graph's parameters. The device outlives the evaluator.
  using Load = std::function<void(Graph&, Executor&)>;
  Evaluator(const TrainOptions& options, Device& device, const Load& load);

  // The mean loss, in nats a token, over windows[batch_size, seq_len + 1].
  double loss(std::span<const std::int32_t> windows);
  // Of the last batch, as f32 [batch_size, seq_len, vocab_size].
  std::vector<float> logits();

  std::size_t peak_bytes() const { return executor_->peak_bytes(); }

 private:
  Graph graph_;
  LanguageModel model_;
  std::unique_ptr<Executor> executor_;
};

struct EvaluationReport {
  double loss = 0;  // nats a token
  double perplexity = 0;
  std::int64_t windows = 0;
  std::int64_t tokens = 0;  // predicted
  double seconds = 0;
  std::size_t peak_bytes = 0;
};

// The loss over the windows of the validation split in their order, each once, so that every token
// of the split but its first, and what is left over after the last whole window, is predicted once.
// At most eval_batches batches; all of them if that is 0, which synthetic tokens do not allow.
// If `logits_path` is not empty, the logits of the first batch are written there, as "logits" f32
// [B, S, V] beside "tokens" i32 [B, S].
EvaluationReport evaluate(const TrainOptions& options, Device& device, const Evaluator::Load& load,
                          const std::filesystem::path& logits_path = {});

}  // namespace ridge
