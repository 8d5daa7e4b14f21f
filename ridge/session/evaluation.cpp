#include "ridge/session/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/safetensors.h"
#include "ridge/session/data.h"
#include "ridge/session/trainer.h"

namespace ridge {
namespace {

// Inputs are the windows without their last tokens, targets without their first.
std::vector<std::int32_t> columns(std::span<const std::int32_t> windows, std::int64_t rows,
                                  std::int64_t first, std::int64_t count) {
  const std::int64_t width = static_cast<std::int64_t>(windows.size()) / rows;
  std::vector<std::int32_t> result;
  result.reserve(static_cast<std::size_t>(rows * count));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = windows.begin() + row * width + first;
    result.insert(result.end(), begin, begin + count);
  }
  return result;
}

void write_logits(const std::filesystem::path& path, const TrainOptions& options,
                  std::span<const std::int32_t> tokens, std::span<const float> logits) {
  const std::int64_t batch = options.batch_size, seq = options.seq_len;
  const NamedType tensors[] = {{"logits", {DType::f32, {batch, seq, options.vocab_size}}},
                               {"tokens", {DType::i32, {batch, seq}}}};
  write_safetensors(path, tensors, {}, [&](std::size_t i) {
    return i == 0 ? std::as_bytes(logits) : std::as_bytes(tokens);
  });
}

}  // namespace

Evaluator::Evaluator(const TrainOptions& options, Device& device, const Load& load) {
  model_ = build_llama(graph_, options.model(), options.batch_size, options.seq_len,
                       options.compute_dtype());
  graph_.keep(model_.logits, "logits");
  narrow_products(graph_, options);
  executor_ = std::make_unique<Executor>(graph_, device);
  load(graph_, *executor_);
}

double Evaluator::loss(std::span<const std::int32_t> windows) {
  const std::int64_t batch = model_.tokens.shape()[0], seq = model_.tokens.shape()[1];
  const auto write = [&](Value input, std::int64_t first) {
    executor_->write(input, std::span<const std::int32_t>(columns(windows, batch, first, seq)));
  };
  write(model_.tokens, 0);
  write(model_.targets, 1);
  executor_->run(Phase::forward);
  return executor_->read_scalar(model_.loss);
}

std::vector<float> Evaluator::logits() { return executor_->read_floats(model_.logits); }

EvaluationReport evaluate(const TrainOptions& options, Device& device, const Evaluator::Load& load,
                          const std::filesystem::path& logits_path) {
  const auto begin = std::chrono::steady_clock::now();
  const auto source = open_tokens(options);
  const std::int64_t seq = options.seq_len;
  std::int64_t windows = options.eval_batches * options.batch_size;
  if (const auto all = source->validation_windows(seq)) {
    const auto available = static_cast<std::int64_t>(*all);
    windows = options.eval_batches == 0 ? available : std::min(windows, available);
    if (windows == 0)
      throw UsageError("{}: with validation-fraction 0 there is nothing to evaluate on",
                       options.data);
  }
  if (windows == 0) throw UsageError("synthetic tokens never end: set eval-batches to at least 1");

  EvaluationReport report{.windows = windows, .tokens = windows * seq};
  double sum = 0;  // of the windows' losses
  // Windows [first, last) in batches of `size`, of which `first` is a multiple.
  const auto run = [&](std::int64_t first, std::int64_t last, std::int64_t size) {
    if (first == last) return;
    TrainOptions sized = options;
    sized.batch_size = size;
    Evaluator evaluator(sized, device, load);
    report.peak_bytes = std::max(report.peak_bytes, evaluator.peak_bytes());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(size * (seq + 1)));
    for (std::int64_t at = first; at < last; at += size) {
      source->batch(Split::validation, static_cast<std::uint64_t>(at / size), size, seq, tokens);
      sum += evaluator.loss(tokens) * static_cast<double>(size);
      if (at == 0 && !logits_path.empty())
        write_logits(logits_path, sized, columns(tokens, size, 0, seq), evaluator.logits());
    }
  };
  const std::int64_t whole = windows / options.batch_size * options.batch_size;
  run(0, whole, options.batch_size);
  run(whole, windows, 1);  // what does not fill a batch
  report.loss = sum / static_cast<double>(windows);
  report.perplexity = std::exp(report.loss);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace ridge
