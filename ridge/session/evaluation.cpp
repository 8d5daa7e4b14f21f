#include "ridge/session/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/safetensors.h"

namespace ridge {
namespace {

// How many samples there are to evaluate.
std::int64_t samples_of(const RunOptions& options, const Workload& workload) {
  const std::int64_t wanted = options.eval_batches * workload.batch_size;
  const auto all = workload.open()->validation_samples();
  if (!all) {
    if (wanted == 0)
      throw UsageError("synthetic {}s never end: set eval-batches to at least 1",
                       workload.info.sample);
    return wanted;
  }
  if (*all == 0)
    throw UsageError("{}: with validation-fraction 0 there is nothing to evaluate on",
                     options.data);
  return options.eval_batches == 0 ? *all : std::min(wanted, *all);
}

}  // namespace

void write_logits(const std::filesystem::path& path, Session& session,
                  std::span<const std::byte> input) {
  const Value& logits = session.model().logits;
  const Value& in = session.model().input;
  const std::vector<float> floats = session.logits();
  const NamedType tensors[] = {{"logits", {DType::f32, logits.shape()}},
                               {session.graph().info(in.id).name, in.type()}};
  write_safetensors(path, tensors, {}, [&](std::size_t i) {
    return i == 0 ? std::as_bytes(std::span(floats)) : input;
  });
}

EvaluationReport evaluate(const RunOptions& options, Device& device,
                          const std::function<void(Graph&)>& initialize,
                          const std::filesystem::path& logits_path) {
  const auto begin = std::chrono::steady_clock::now();
  const RunOptions in_use = options_in_use(options);
  const Workload workload = workload_of(in_use);
  const std::int64_t samples = samples_of(options, workload);
  EvaluationReport report{.samples = samples, .tokens = samples * workload.info.tokens_per_sample};
  double sum = 0;  // of the samples' losses
  // Samples [first, last) in batches of `size`, of which `first` is a multiple.
  const auto run = [&](std::int64_t first, std::int64_t last, std::int64_t size) {
    if (first == last) return;
    RunOptions sized = in_use;
    sized.batch_size = size;
    Session session(sized, device, {.initialize = initialize, .fixed_input = false});
    report.peak_bytes = std::max(report.peak_bytes, session.executor().peak_bytes());
    const Evaluation found = session.evaluate_samples(
        first / size, last - first, [&](std::int64_t batch, std::span<const std::byte> input) {
          if (batch == 0 && !logits_path.empty()) write_logits(logits_path, session, input);
        });
    sum += found.loss * static_cast<double>(found.samples);
    if (found.right) report.right = report.right.value_or(0) + *found.right;
  };
  const std::int64_t whole = samples / workload.batch_size * workload.batch_size;
  run(0, whole, workload.batch_size);
  run(whole, samples, 1);  // what does not fill a batch
  report.loss = sum / static_cast<double>(samples);
  if (report.tokens > 0) report.perplexity = std::exp(report.loss);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace ridge
