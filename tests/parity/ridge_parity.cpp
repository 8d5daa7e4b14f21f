// ridge_parity OUT.safetensors OPTIONS_JSON: trains num-steps steps and writes all that parity.py
// compares: for each step and accumulated batch "<step>.<batch>.tokens", ".targets", ".logits" and
// ".loss"; for each step from 1 the weights before it ("<step>.weight.<parameter>"), the gradients
// as the optimizer gets them, before clipping ("<step>.grad.<parameter>"), and their norm
// ("<step>.grad_norm"); and the weights after the last step, numbered as before one more.

#include <fmt/format.h>

#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/models/llama.h"
#include "ridge/run/executor.h"
#include "ridge/train/data.h"
#include "ridge/train/optimizer.h"
#include "ridge/train/options.h"
#include "ridge/train/safetensors.h"
#include "ridge/train/trainer.h"

namespace ridge {
namespace {

// Values read back, until they are written to a file.
class Record {
 public:
  Record(Graph& graph, Executor& executor) : graph_(graph), executor_(executor) {}

  void add(std::string name, Value value) {
    types_.push_back({std::move(name), value.type()});
    executor_.read(value, std::span<std::byte>(bytes_.emplace_back(value.type().bytes())));
  }

  void add_weights(std::int64_t step) {
    for (const Value& p : graph_.parameters())
      add(fmt::format("{}.weight.{}", step, graph_.info(p.id).name), p);
  }

  void write(const char* path) const {
    write_safetensors(path, types_, {}, [&](std::size_t i) { return std::span(bytes_[i]); });
  }

 private:
  Graph& graph_;
  Executor& executor_;
  std::vector<NamedType> types_;
  std::deque<std::vector<std::byte>> bytes_;
};

// As Trainer does, but with the gradients and logits kept.
void train(const TrainOptions& options, const char* path) {
  AdamWConfig adamw;
  adamw.beta1 = options.beta1;
  adamw.beta2 = options.beta2;
  adamw.eps = options.adam_eps;
  adamw.weight_decay = options.weight_decay;
  adamw.max_grad_norm = options.max_grad_norm;
  const std::int64_t batch = options.batch_size, seq = options.seq_len;
  const std::int64_t accumulation = options.gradient_accumulation_steps;
  Graph graph;
  const LanguageModel model =
      build_llama(graph, options.model(), batch, seq, options.compute_dtype());
  const TrainingStep training = add_training_step(model.loss, adamw, accumulation);
  const std::vector<Value>& gradients =
      accumulation > 1 ? training.accumulators : training.gradients;
  graph.keep(model.logits, "logits");
  for (std::size_t i = 0; i < gradients.size(); ++i)
    graph.keep(gradients[i], graph.info(training.parameters[i].id).name + ".grad");

  CpuDevice device(static_cast<int>(options.threads));
  Executor executor(graph, device);
  executor.initialize(static_cast<std::uint64_t>(options.seed));
  const auto source = open_tokens(options);
  Record record(graph, executor);

  std::vector<std::int32_t> window(static_cast<std::size_t>(batch * (seq + 1)));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch * seq)), targets(tokens.size());
  for (std::int64_t step = 1; step <= options.num_steps; ++step) {
    executor.write(training.schedule, std::span<const float>(adamw_schedule(
                                          adamw, learning_rate_at(options, step), step)));
    record.add_weights(step);
    for (const Value& accumulator : training.accumulators) executor.fill_zero(accumulator);
    for (std::int64_t i = 0; i < accumulation; ++i) {
      source->batch(Split::train, static_cast<std::uint64_t>((step - 1) * accumulation + i), batch,
                    seq, window);
      for (std::int64_t b = 0; b < batch; ++b) {
        const auto row = window.begin() + b * (seq + 1);
        std::copy(row, row + seq, tokens.begin() + b * seq);
        std::copy(row + 1, row + 1 + seq, targets.begin() + b * seq);
      }
      executor.write(model.tokens, std::span<const std::int32_t>(tokens));
      executor.write(model.targets, std::span<const std::int32_t>(targets));
      executor.run(Phase::forward);
      executor.run(Phase::backward);
      record.add(fmt::format("{}.{}.tokens", step, i), model.tokens);
      record.add(fmt::format("{}.{}.targets", step, i), model.targets);
      record.add(fmt::format("{}.{}.logits", step, i), model.logits);
      record.add(fmt::format("{}.{}.loss", step, i), model.loss);
    }
    for (std::size_t i = 0; i < gradients.size(); ++i)
      record.add(fmt::format("{}.grad.{}", step, graph.info(training.parameters[i].id).name),
                 gradients[i]);
    executor.run(Phase::optimizer);
    if (training.grad_norm) record.add(fmt::format("{}.grad_norm", step), training.grad_norm);
  }
  record.add_weights(options.num_steps + 1);
  record.write(path);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: ridge_parity OUT.safetensors OPTIONS_JSON\n");
    return 2;
  }
  try {
    ridge::TrainOptions options;
    ridge::apply_json(options, argv[2]);
    options.resolve();
    if (options.threads == 0) options.threads = ridge::CpuDevice::default_threads();
    ridge::train(options, argv[1]);
  } catch (const ridge::Error& error) {
    fmt::print(stderr, "ridge_parity: {}\n", error.what());
    return 1;
  }
}
