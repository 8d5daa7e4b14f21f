#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/safetensors.h"
#include "ridge/base/units.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/evaluation.h"
#include "ridge/session/hf.h"

namespace ridge {
namespace {

constexpr std::int64_t synthetic_batches = 8;

struct Request {
  explicit Request(CLI::App& command)
      : flags(command, {"data", "batch-size", "seq-len", "eval-batches", "validation-fraction",
                        "init-from", "dtype", "use-amp", "seed", "device", "threads"}) {}

  bool given(std::string_view name) const {
    const std::vector<std::string> names = flags.given();
    return std::ranges::find(names, name) != names.end();
  }

  OptionFlags flags;
  std::string checkpoint;
  std::string json;
  std::string logits;
};

// What the model is comes from its file, and what is done with it from the command line.
TrainOptions effective_options(const Request& request) {
  TrainOptions options, defaults;
  request.flags.apply(options);
  if (request.checkpoint.empty() == options.init_from.empty())
    throw UsageError("evaluate which model? give one of --checkpoint FILE and --init-from DIR");
  if (options.init_from.empty()) {
    options = options_of_checkpoint(request.checkpoint);
    options.data.clear();
    options.device = defaults.device, options.threads = defaults.threads;
    options.eval_every = 0;
    request.flags.apply(options);
  } else {
    apply_hf_config(options, options.init_from);
  }
  options.resolve();
  if (!request.given("validation-fraction")) options.validation_fraction = 1;
  if (!request.given("eval-batches"))
    options.eval_batches = options.data.empty() ? synthetic_batches : 0;
  return options;
}

Evaluator::Load loader(const Request& request, const TrainOptions& options) {
  return [&request, &options](Graph& graph, Executor& executor) {
    if (request.checkpoint.empty())
      read_hf_parameters(options.init_from, options.model(), graph, executor);
    else
      read_parameters(SafetensorsFile(request.checkpoint), request.checkpoint, graph, executor);
  };
}

std::string json_of(const std::string& model, const TrainOptions& options,
                    const EvaluationReport& report) {
  const nlohmann::ordered_json json = {{"model", model},
                                       {"data", options.data},
                                       {"dtype", options.dtype},
                                       {"batch_size", options.batch_size},
                                       {"seq_len", options.seq_len},
                                       {"windows", report.windows},
                                       {"tokens", report.tokens},
                                       {"loss", report.loss},
                                       {"perplexity", report.perplexity},
                                       {"seconds", report.seconds},
                                       {"peak_memory_bytes", report.peak_bytes}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int evaluate_model(const Request& request) {
  const TrainOptions options = effective_options(request);
  const std::string& model = request.checkpoint.empty() ? options.init_from : request.checkpoint;
  const std::unique_ptr<Device> device = open_device(options);
  Terminal terminal;
  terminal.line(fmt::format("Model: {}, {} parameters", model,
                            format_count(options.model().parameter_count())));
  terminal.line(fmt::format("Data: {}", options.data.empty() ? "synthetic tokens" : options.data));
  terminal.busy("Evaluating...");
  const EvaluationReport report =
      evaluate(options, *device, loader(request, options), request.logits);
  terminal.line(fmt::format("Evaluated {} tokens in {} windows of {}, in {}",
                            format_count(report.tokens), format_count(report.windows),
                            options.seq_len, format_duration(report.seconds)));
  terminal.line(fmt::format("Loss = {} nats/token, Perplexity = {:.2f}", format_loss(report.loss),
                            report.perplexity));
  if (!request.logits.empty()) terminal.line(fmt::format("Wrote {}", request.logits));
  if (!request.json.empty()) {
    write_text_file(request.json, json_of(model, options, report));
    terminal.line(fmt::format("Wrote {}", request.json));
  }
  return 0;
}

void describe(CLI::App& command, const char* flag, const char* text, const char* unless_given) {
  command.get_option(flag)->description(text)->default_str(unless_given);
}

}  // namespace

void add_eval_command(CLI::App& program, Action& action) {
  CLI::App& command = *program.add_subcommand("eval", "The loss and perplexity of a model");
  const auto request = std::make_shared<Request>(command);
  command.add_option("--checkpoint", request->checkpoint, "A checkpoint of ridge train")
      ->type_name("FILE")
      ->group("Model");
  command.add_option("--json", request->json, "Write the result here too")
      ->type_name("FILE")
      ->group("Output");
  command
      .add_option("--logits", request->logits,
                  "Write the first batch's logits, f32 [batch, seq, vocab], and its tokens here")
      ->type_name("FILE")
      ->group("Output");
  command.get_option("--init-from")->description("A Hugging Face folder")->group("Model");
  describe(command, "--data", "The text or .bin file; without it, synthetic tokens", "");
  describe(command, "--validation-fraction", "Only this last part of the file, as in training",
           "all of it");
  describe(command, "--eval-batches", "At most so many batches", "all, of a file");
  command.footer(
      R"(The file is read in windows of --seq-len tokens that follow each other, so that every token but
the first, and what does not fill a window at the end, is predicted once. Batch and window sizes of
a checkpoint are those it was trained with, unless they are given.

Example:
  ridge eval --checkpoint output/checkpoint.safetensors --data book.txt)");
  command.callback([request, &action] { action = [request] { return evaluate_model(*request); }; });
}

}  // namespace ridge
