#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/devices.h"
#include "ridge/session/evaluation.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t synthetic_batches = 8;
constexpr std::size_t shown_tokens = 5;

bool is_about_evaluation(const OptionInfo& option) {
  constexpr std::string_view names[] = {
      "network",      "data",    "batch-size", "seq-len", "eval-batches", "validation-fraction",
      "init-from",    "weights", "dtype",      "use-amp", "version",      "enable-pass",
      "disable-pass", "seed",    "device",     "threads", "image-size",   "deterministic"};
  return std::ranges::find(names, option.name) != std::end(names);
}

// The model's file decides what the model is, the command line what is done with it.
struct EvalRequest {
  explicit EvalRequest(Command command)
      : run(command, {.defaults = [this](std::string_view network) { return stored(network); },
                      .has = is_about_evaluation,
                      .adapt = [this](RunOptions o) { return in_use(std::move(o)); }}) {}

  // The options of the checkpoint; else the defaults of a network.
  RunOptions stored(std::string_view network) const {
    if (checkpoint.empty()) return default_options(network);
    RunOptions options = options_of_checkpoint(checkpoint);
    options.data.clear();
    return options;
  }
  // A configuration may be that of the training: what it started from, and how it went, say nothing
  // of what it has come to.
  RunOptions in_use(RunOptions options) const {
    options = options_in_use(std::move(options));
    options.mode = name_of(Use::inference);
    options.eval_every = 0;
    options.resume.clear();
    if (!checkpoint.empty()) options.weights.clear(), options.init_from.clear();
    return options;
  }

  std::string checkpoint;
  RunRequest run;
  std::string prompt;
  std::vector<std::int64_t> prompt_tokens;
  std::string json;
  std::string logits;
};

void check_source(const EvalRequest& request, const RunOptions& options) {
  const int sources = static_cast<int>(!request.checkpoint.empty()) +
                      static_cast<int>(!options.init_from.empty()) +
                      static_cast<int>(!options.weights.empty());
  if (sources != 1)
    throw UsageError(
        "evaluate which model? give one of --checkpoint FILE, --init-from DIR, and --network NAME "
        "with --weights FILE");
  if (request.checkpoint.empty()) return;
  const std::string stored = options_of_checkpoint(request.checkpoint).network;
  if (network_named(options.network) != stored)
    throw UsageError("--network is {}, but {} is a checkpoint of {}", options.network,
                     request.checkpoint, stored);
}

RunOptions effective_options(const EvalRequest& request) {
  RunOptions options = request.run.options([&](RunOptions& o) {
    check_source(request, o);
    if (!request.run.was_set("validation-fraction")) o.validation_fraction = 0.1;
  });
  if (!request.run.was_set("validation-fraction")) options.validation_fraction = 1;
  if (!request.run.was_set("eval-batches"))
    options.eval_batches = options.data.empty() ? synthetic_batches : 0;
  return options;
}

std::function<void(Graph&)> initializer(const EvalRequest& request) {
  if (request.checkpoint.empty()) return {};
  return [&request](Graph& graph) { initialize_from_checkpoint(request.checkpoint, graph); };
}

std::string_view model_of(const EvalRequest& request, const RunOptions& options) {
  return !request.checkpoint.empty()  ? request.checkpoint
         : !options.init_from.empty() ? options.init_from
                                      : options.weights;
}

void write_json(Terminal& terminal, const EvalRequest& request, const Json& json) {
  if (request.json.empty()) return;
  write_text_file(request.json, text_of(json));
  terminal.line(fmt::format("Wrote {}", request.json));
}

int evaluate_data(const EvalRequest& request, const RunOptions& options, Device& device,
                  Terminal& terminal) {
  terminal.line(fmt::format("Data: {}", options.data.empty() ? "synthetic" : options.data));
  terminal.busy("Evaluating...");
  const EvaluationReport report = evaluate(options, device, initializer(request), request.logits);
  Json json = {{"model", model_of(request, options)},
               {"network", options.network},
               {"data", options.data},
               {"dtype", options.dtype},
               {"batch_size", options.batch_size},
               {"samples", report.samples},
               {"loss", report.loss},
               {"seconds", report.seconds},
               {"peak_memory_bytes", report.peak_bytes}};
  const std::string& sample = workload_of(options).info.sample;
  if (report.tokens > 0) {
    json["seq_len"] = options.seq_len;
    json["windows"] = report.samples;
    json["tokens"] = report.tokens;
    json["perplexity"] = report.perplexity;
    terminal.line(fmt::format("Evaluated {} tokens in {} windows of {}, in {}",
                              format_count(report.tokens), format_count(report.samples),
                              options.seq_len, format_duration(report.seconds)));
    terminal.line(fmt::format("Loss = {} nats/token, Perplexity = {:.2f}", format_loss(report.loss),
                              report.perplexity));
  } else {
    terminal.line(fmt::format("Evaluated {} {}s in {}", format_count(report.samples), sample,
                              format_duration(report.seconds)));
    terminal.line(fmt::format("Loss = {} nats/{}", format_loss(report.loss), sample));
  }
  if (report.right) {
    const double accuracy =
        static_cast<double>(*report.right) / static_cast<double>(report.samples);
    json["accuracy"] = accuracy;
    terminal.line(fmt::format("Accuracy = {:.2f} % ({} of {})", 100 * accuracy,
                              format_count(*report.right), format_count(report.samples)));
  }
  if (!request.logits.empty()) terminal.line(fmt::format("Wrote {}", request.logits));
  write_json(terminal, request, json);
  return 0;
}

// The tokens of the prompt: those that are listed, or the bytes of the text.
std::vector<std::int32_t> tokens_of(const EvalRequest& request, const RunOptions& options) {
  std::vector<std::int32_t> tokens;
  if (request.prompt_tokens.empty()) {
    if (options.vocab_size != 256)
      throw UsageError(
          "--prompt is text, a token a byte, but this model has {} tokens: give --prompt-tokens "
          "with their numbers",
          options.vocab_size);
    for (const char c : request.prompt) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  for (const std::int64_t token : request.prompt_tokens) {
    if (token < 0 || token >= options.vocab_size)
      throw UsageError("--prompt-tokens has {}; this model's are 0 to {}", token,
                       options.vocab_size - 1);
    tokens.push_back(static_cast<std::int32_t>(token));
  }
  return tokens;
}

// What follows a prompt: the logits of all its positions, and the likeliest next tokens.
int continue_prompt(const EvalRequest& request, RunOptions options, Device& device,
                    Terminal& terminal) {
  const std::vector<std::int32_t> tokens = tokens_of(request, options);
  options.batch_size = 1;
  options.seq_len = std::ssize(tokens);
  Session session(options, device, {.initialize = initializer(request), .fixed_input = false});
  session.infer(std::as_bytes(std::span(tokens)), std::as_bytes(std::span(tokens)));
  const std::vector<float> logits = session.logits();
  const std::span last = std::span(logits).last(static_cast<std::size_t>(options.vocab_size));
  std::vector<std::size_t> order(last.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t shown = std::min(shown_tokens, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(shown),
                            std::greater{}, [&](std::size_t i) { return last[i]; });
  double sum = 0;
  for (const float x : last) sum += std::exp(static_cast<double>(x) - last[order[0]]);
  terminal.line(fmt::format("After {} token{}:", tokens.size(), tokens.size() == 1 ? "" : "s"));
  Json next = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t token = order[i];
    const double probability = std::exp(static_cast<double>(last[token]) - last[order[0]]) / sum;
    const bool is_letter = request.prompt_tokens.empty() && token > 0x20 && token < 0x7f;
    terminal.line(fmt::format("  {:>6}{}  {:6.2f} %  logit {:.4f}", token,
                              is_letter ? fmt::format(" '{}'", static_cast<char>(token)) : "    ",
                              100 * probability, last[token]));
    next.push_back({{"token", token}, {"probability", probability}, {"logit", last[token]}});
  }
  if (!request.logits.empty()) {
    write_logits(request.logits, session, std::as_bytes(std::span(tokens)));
    terminal.line(fmt::format("Wrote {}", request.logits));
  }
  write_json(terminal, request,
             {{"model", model_of(request, options)},
              {"dtype", options.dtype},
              {"version", options.version},
              {"tokens", tokens},
              {"next", next}});
  return 0;
}

// Calls work(). A network of images has as many classes as the folder that it was trained on, which
// may have been another number than it has by itself.
int telling_of_training_data(const EvalRequest& request, const RunOptions& options,
                             const std::function<int()>& work) {
  try {
    return work();
  } catch (const FormatError& error) {
    if (request.checkpoint.empty() || !options.data.empty()) throw;
    const std::string trained_on = options_of_checkpoint(request.checkpoint).data;
    if (trained_on.empty()) throw;
    throw FormatError("{}; it was trained with --data {}: give that", error.what(), trained_on);
  }
}

int evaluate_model(const EvalRequest& request) {
  const RunOptions options = effective_options(request);
  const bool has_prompt = !request.prompt.empty() || !request.prompt_tokens.empty();
  if (!request.prompt.empty() && !request.prompt_tokens.empty())
    throw UsageError("--prompt and --prompt-tokens exclude each other");
  const Workload workload = workload_of(options);
  if (has_prompt && workload.info.tokens_per_sample == 0)
    throw UsageError("--prompt is for models of tokens; {} takes {}s", options.network,
                     workload.info.sample);
  if (has_prompt && !options.data.empty())
    throw UsageError("--prompt and --data exclude each other: which is to be evaluated?");
  for (const std::string& file : {request.json, request.logits})
    if (!file.empty()) probe_writing(file);
  const std::unique_ptr<Device> device = open_device(options);
  Terminal terminal;
  Graph graph;
  workload.build(graph, options.precision());
  const std::int64_t parameters = parameter_count(graph);
  terminal.line(fmt::format("Model: {}, {} parameters", model_of(request, options),
                            format_count(parameters)));
  return telling_of_training_data(request, options, [&] {
    return has_prompt ? continue_prompt(request, options, *device, terminal)
                      : evaluate_data(request, options, *device, terminal);
  });
}

void describe(Command command, const char* flag, const char* text, const char* unless_given) {
  command.flag(flag).description(text).default_text(unless_given);
}

}  // namespace

void add_eval_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("eval", "Evaluate a model: loss, perplexity, accuracy, logits");
  const auto request = std::make_shared<EvalRequest>(command);
  command.add_option("--checkpoint", request->checkpoint, "Evaluate this checkpoint of ridge train")
      .type_name("FILE")
      .group("Model");
  add_value(command, "--prompt", request->prompt,
            "Predict the token after this text; for models with a token a byte")
      .type_name("TEXT")
      .group("Prompt");
  add_value(command, "--prompt-tokens", request->prompt_tokens,
            "Predict the token after these, such as 1,17,4")
      .type_name("LIST")
      .group("Prompt");
  add_value(command, "--json", request->json, "Write the result here too")
      .type_name("FILE")
      .group("Output");
  add_value(command, "--logits", request->logits,
            "Write the logits of the first batch, or of the prompt, and its input to this "
            "safetensors file")
      .type_name("FILE")
      .group("Output");
  command.flag("--init-from").description("Evaluate a Hugging Face folder").group("Model");
  command.flag("--weights").group("Model");
  describe(command, "--data", "Evaluate these tokens or images; synthetic without it", "");
  describe(command, "--validation-fraction", "Use only this part of the data, as in training",
           "all of it");
  describe(command, "--eval-batches", "Evaluate at most so many batches", "all, of data");
  command.footer(
      R"(A file is read in windows of --seq-len tokens that follow each other, so that every token but the
first, and what does not fill a window at the end, is predicted once; of images each is classified
once. Batch and window sizes of a checkpoint are those it was trained with, unless they are given.

Examples:
  ridge eval --checkpoint output/checkpoint.safetensors --data book.txt
  ridge eval --checkpoint output/checkpoint.safetensors --prompt "once upon a" --logits next.safetensors
  ridge eval --network resnet18 --weights resnet18.safetensors --data flowers/ --dtype int8)");
  command.callback([request, &action] { action = [request] { return evaluate_model(*request); }; });
}

}  // namespace ridge
