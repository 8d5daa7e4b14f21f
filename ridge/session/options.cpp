#include "ridge/session/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/ops/scaled_matmul.h"

namespace ridge {
namespace {

// A tensor above this is a slip of the keyboard on any machine. Far below the range of the integers
// that costs and sizes are added up in, so that these need no checks of their own.
constexpr double max_tensor_bytes = 0x1p44;
constexpr std::int64_t max_count = 1'000'000'000;
constexpr double max_beta = 0.999999;  // closer to 1, 1 - beta has no digits in single precision

void check_real(std::string_view name, double value, double least, double most) {
  if (!std::isfinite(value) || value < least || value > most)
    throw UsageError("--{} is {}; it must be a number from {} to {}", name, value, least, most);
}

// Text is printed on one line, stored as JSON and handed to the operating system.
void check_text(std::string_view name, const std::string& text) {
  if (std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    throw UsageError("--{} contains a control character", name);
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::type_error&) {
    throw UsageError("--{} is not UTF-8 text", name);
  }
}

void replace_spelling(std::string& text, std::initializer_list<std::string_view> spellings,
                      std::string_view canonical) {
  if (std::ranges::find(spellings, text) != spellings.end()) text = canonical;
}

// "hidden_dim 250 does .." in the command line's spelling: "--hidden-dim 250 does ..".
std::string with_flag_names(std::string_view message) {
  TrainOptions scratch;
  const std::vector<OptionInfo> options = options_of(scratch);
  std::string text;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  while (!message.empty()) {
    const auto end = std::ranges::find_if_not(message, is_word);
    std::string word(message.begin(), end);
    std::string dashed = word;
    std::ranges::replace(dashed, '_', '-');
    const bool is_option =
        dashed != word && std::ranges::find(options, dashed, &OptionInfo::name) != options.end();
    text += is_option ? "--" + dashed : word;
    message.remove_prefix(word.size());
    if (message.empty()) break;
    text += message.front();
    message.remove_prefix(1);
  }
  return text;
}

void derive(TrainOptions& o) {
  const bool text = !o.data.empty() && !std::string_view(o.data).ends_with(".bin");
  if (o.vocab_size == 0) o.vocab_size = text ? 256 : 1000;
  if (o.n_kv_heads == 0) o.n_kv_heads = o.n_heads % 2 == 0 ? o.n_heads / 2 : o.n_heads;
  if (o.intermediate_dim == 0) o.intermediate_dim = 2 * o.hidden_dim;
  replace_spelling(o.dtype, {"f32", "float32", "float"}, "fp32");
  replace_spelling(o.dtype, {"bfloat16"}, "bf16");
  replace_spelling(o.dtype, {"f16", "float16", "half"}, "fp16");
  o.device = canonical_device(o.device);
  if (o.use_amp) o.dtype = "bf16", o.use_amp = false;
  if (o.profile_steps > 0 && !o.profiling()) o.enable_pytorch_profiler = true;
}

void check_model(const TrainOptions& o) {
  check_real("norm-eps", o.norm_eps, 1e-30, 1.0);
  check_real("rope-theta", o.rope_theta, 1e-3, 1e12);
  try {
    o.model().check();
  } catch (const UsageError& error) {
    throw UsageError(with_flag_names(error.what()));
  }
}

// Tensor cores take 8 bits in units of 16, and two blocks stay in bf16.
void check_fp8(const TrainOptions& o) {
  if (o.dtype != "fp8") return;
  if (o.n_layers < 3)
    throw UsageError(
        "--dtype fp8 with --n-layers {}: the first and the last stay in bf16, so there have to be "
        "at least 3",
        o.n_layers);
  const LlamaConfig model = o.model();
  const auto check_units = [](std::string_view name, std::int64_t extent) {
    if (extent % ScaledMatMul::extent_multiple != 0)
      throw UsageError("--dtype fp8 with {} {}: it must be a multiple of {}", name, extent,
                       ScaledMatMul::extent_multiple);
  };
  check_units("--hidden-dim", o.hidden_dim);
  check_units("--n-kv-heads times the head's size,", model.n_kv_heads * model.head_dim());
  check_units("--intermediate-dim", o.intermediate_dim);
  check_units("--batch-size times --seq-len,", o.batch_size * o.seq_len);
}

void check_training(const TrainOptions& o) {
  check_range("batch-size", o.batch_size, 1, 1 << 20);
  check_range("seq-len", o.seq_len, 1, 1 << 20);
  check_range("num-steps", o.num_steps, 1, max_count);
  check_range("gradient-accumulation-steps", o.gradient_accumulation_steps, 1, 1 << 16);
  check_range("seed", o.seed, 0, std::numeric_limits<std::int64_t>::max());
  check_choice("dtype", o.dtype, {"fp32", "tf32", "bf16", "fp16", "fp8"});
  check_fp8(o);
  o.schedule();
}

void check_optimizer(const TrainOptions& o) {
  check_real("learning-rate", o.learning_rate, 0, 100);
  check_choice("lr-schedule", o.lr_schedule, {"constant", "cosine"});
  check_range("lr-warmup-steps", o.lr_warmup_steps, 0, max_count);
  if (o.lr_warmup_steps > o.num_steps)
    throw UsageError(
        "--lr-warmup-steps {} is more than --num-steps {}: the full rate would never "
        "be reached",
        o.lr_warmup_steps, o.num_steps);
  check_real("min-learning-rate", o.min_learning_rate, 0, 100);
  if (o.min_learning_rate > o.learning_rate)
    throw UsageError("--min-learning-rate {} is above --learning-rate {}", o.min_learning_rate,
                     o.learning_rate);
  check_real("weight-decay", o.weight_decay, 0, 100);
  check_real("beta1", o.beta1, 0, max_beta);
  check_real("beta2", o.beta2, 0, max_beta);
  check_real("adam-eps", o.adam_eps, 1e-30, 1);
  check_real("max-grad-norm", o.max_grad_norm, 0, 1e30);
  check_real("loss-scale", o.loss_scale, 1e-6, 1e38);
  check_range("loss-scale-growth-interval", o.loss_scale_growth_interval, 1, 1 << 24);
}

void check_run(const TrainOptions& o) {
  check_real("validation-fraction", o.validation_fraction, 0, 0.9);
  check_range("eval-every", o.eval_every, 0, max_count);
  check_range("eval-batches", o.eval_batches, 0, max_count);
  if (o.eval_every > 0 && o.eval_batches == 0)
    throw UsageError("--eval-every {} needs at least 1 of --eval-batches, not 0", o.eval_every);
  if (o.eval_every > 0 && !o.data.empty() && o.validation_fraction == 0)
    throw UsageError("--eval-every {} has nothing to evaluate: --validation-fraction is 0",
                     o.eval_every);
  check_range("threads", o.threads, 0, 4096);
  check_range("save-every", o.save_every, 0, max_count);
  check_range("log-interval", o.log_interval, 1, max_count);
  check_range("warmup-steps", o.warmup_steps, 0, max_count);
  check_range("profile-steps", o.profile_steps, 0, max_count);
  check_range("flops-profile-step", o.flops_profile_step, 0, max_count);
  if (!o.resume.empty() && !o.init_from.empty())
    throw UsageError("--resume {} and --init-from {}: a run starts from one or the other", o.resume,
                     o.init_from);
  for (const auto& [name, path] :
       {std::pair{"output-dir", &o.output_dir}, std::pair{"profile-dir", &o.profile_dir}})
    if (path->empty()) throw UsageError("--{} is empty; '.' is the current directory", name);
}

// Sizes that are each acceptable may still be absurd together.
void check_tensor_sizes(const TrainOptions& o) {
  const auto tokens = static_cast<double>(o.batch_size) * static_cast<double>(o.seq_len);
  const double widest =
      std::max({static_cast<double>(o.vocab_size), static_cast<double>(o.intermediate_dim),
                static_cast<double>(o.n_heads) * static_cast<double>(o.seq_len)});
  if (const double bytes = tokens * widest * 4; bytes > max_tensor_bytes)
    throw UsageError(
        "--batch-size {} with --seq-len {} needs a tensor of {:.2g} bytes: make them smaller",
        o.batch_size, o.seq_len, bytes);
}

}  // namespace

std::string canonical_device(std::string_view device) {
  if (device == "gpu") return "cuda";
  check_choice("device", device, {"auto", "cpu", "cuda"});
  return std::string(device);
}

void TrainOptions::resolve() {
  for (const OptionInfo& option : options_of(*this))
    if (auto* const* text = std::get_if<std::string*>(&option.target))
      check_text(option.name, **text);
  derive(*this);
  check_model(*this);
  check_training(*this);
  check_optimizer(*this);
  check_run(*this);
  check_tensor_sizes(*this);
}

LlamaConfig TrainOptions::model() const {
  return {.vocab_size = vocab_size,
          .hidden_dim = hidden_dim,
          .n_layers = n_layers,
          .n_heads = n_heads,
          .n_kv_heads = n_kv_heads,
          .intermediate_dim = intermediate_dim,
          .norm_eps = static_cast<float>(norm_eps),
          .rope_theta = static_cast<float>(rope_theta),
          .tie_embeddings = tie_embeddings};
}

Schedule TrainOptions::schedule() const {
  Schedule schedule = schedule_of(version, enable_pass, disable_pass, recompute, device == "cuda");
  if (dtype != "tf32") schedule.passes.erase(scaled_products);
  // These make of products what those of scaled operands cannot take the place of.
  if (dtype == "fp8" || schedule.has(scaled_products))
    for (const char* pass : {"gate-results", "linear-swiglu"}) schedule.passes.erase(pass);
  if (dtype == "fp8") schedule.passes.erase("accumulating-products");
  return schedule;
}

bool TrainOptions::profiling() const {
  return enable_pytorch_profiler || enable_deepspeed_flops || enable_all_profiling ||
         profile_memory || profile_operators || counters;
}

std::vector<OptionInfo> options_of(TrainOptions& o) {
  return {
      {"batch-size", {}, "Training", "Sequences in a batch", &o.batch_size},
      {"seq-len", {"seq-length"}, "Training", "Tokens in a sequence", &o.seq_len},
      {"num-steps", {"steps"}, "Training", "Optimizer steps", &o.num_steps},
      {"learning-rate", {"lr"}, "Training", "Learning rate of AdamW", &o.learning_rate},
      {"lr-schedule", {}, "Training", "constant or cosine", &o.lr_schedule},
      {"lr-warmup-steps",
       {},
       "Training",
       "Steps over which the rate rises to its full value",
       &o.lr_warmup_steps},
      {"min-learning-rate",
       {"min-lr"},
       "Training",
       "Where the cosine schedule ends",
       &o.min_learning_rate},
      {"weight-decay", {}, "Training", "Decoupled weight decay", &o.weight_decay},
      {"beta1", {}, "Training", "Decay of the mean of gradients", &o.beta1},
      {"beta2", {}, "Training", "Decay of the mean of their squares", &o.beta2},
      {"adam-eps", {}, "Training", "Added to the root of the squares", &o.adam_eps},
      {"max-grad-norm",
       {"grad-clip", "clip-grad-norm"},
       "Training",
       "Clip the norm of the gradients to this; 0: no clipping",
       &o.max_grad_norm},
      {"gradient-accumulation-steps",
       {"grad-accum", "accumulation-steps"},
       "Training",
       "Batches whose gradients make one step",
       &o.gradient_accumulation_steps},
      {"dtype",
       {"precision"},
       "Training",
       "fp32, tf32 (fp32 with products that a GPU rounds to 19 bits), or with fp32 master weights "
       "bf16, fp16 (on a GPU, with dynamic loss scaling) or fp8 (bf16 with 8-bit products in the "
       "inner blocks, on a GPU that has them)",
       &o.dtype},
      {"loss-scale",
       {},
       "Training",
       "fp16: what the loss is multiplied by at first, so that small gradients survive; halved at "
       "overflow, whose step is skipped",
       &o.loss_scale},
      {"loss-scale-growth-interval",
       {"loss-scale-window"},
       "Training",
       "fp16: steps without overflow after which the scale doubles",
       &o.loss_scale_growth_interval},
      {"use-amp", {"amp"}, "Training", "The same as --dtype bf16", &o.use_amp},
      {"version", {}, "Training", "Which schedule of the model runs: v1 to v4", &o.version},
      {"enable-pass",
       {"enable-passes"},
       "Training",
       "Rewrites to add to the version's, separated by commas; see ridge passes",
       &o.enable_pass},
      {"disable-pass",
       {"disable-passes"},
       "Training",
       "Rewrites to leave out of the version's",
       &o.disable_pass},
      {"recompute",
       {},
       "Training",
       "Compute again in the backward pass instead of keeping: none, attention or block; "
       "attention:N or block:N in the first N blocks alone",
       &o.recompute},
      {"seed", {}, "Training", "Decides weights and data", &o.seed},

      {"hidden-dim", {"hidden-size"}, "Model", "Width of the model", &o.hidden_dim},
      {"n-layers", {"num-layers"}, "Model", "Transformer layers", &o.n_layers},
      {"n-heads", {"num-heads"}, "Model", "Attention heads", &o.n_heads},
      {"n-kv-heads",
       {"num-kv-heads"},
       "Model",
       "Key and value heads; 0: half the heads where they divide",
       &o.n_kv_heads},
      {"intermediate-dim",
       {"intermediate-size"},
       "Model",
       "Width of the feed-forward; 0: twice --hidden-dim",
       &o.intermediate_dim},
      {"vocab-size",
       {},
       "Model",
       "Tokens there are; 0: 256 for a text file, else 1000",
       &o.vocab_size},
      {"tie-embeddings",
       {},
       "Model",
       "The embedding is the output projection too",
       &o.tie_embeddings},
      {"norm-eps", {}, "Model", "Added to the mean square in RMSNorm", &o.norm_eps},
      {"rope-theta", {}, "Model", "Base of the rotary embedding", &o.rope_theta},

      {"data",
       {},
       "Data",
       "Train on the bytes of this file, or on the tokens of a .bin file; without it, on synthetic "
       "tokens",
       &o.data},
      {"validation-fraction",
       {},
       "Data",
       "Part of the file kept for validation",
       &o.validation_fraction},
      {"eval-every", {}, "Data", "Steps between validation losses; 0: none", &o.eval_every},
      {"eval-batches", {}, "Data", "Batches in a validation loss", &o.eval_batches},

      {"device", {}, "Machine", "auto (a GPU if there is one), cpu or cuda", &o.device},
      {"deterministic",
       {},
       "Machine",
       "The same bits at every run on a GPU, at some cost in speed",
       &o.deterministic},
      {"threads",
       {"num-threads"},
       "Machine",
       "Processors to use; 0: all this process may",
       &o.threads},

      {"output-dir",
       {},
       "Output",
       "Where config.json, performance_summary.json and checkpoint.safetensors go",
       &o.output_dir},
      {"save-every",
       {},
       "Training",
       "Steps between checkpoints, and one at the end; 0: none",
       &o.save_every},
      {"resume",
       {},
       "Output",
       "Go on from this checkpoint, with its options where none are given",
       &o.resume},
      {"init-from", {}, "Output", "Start from the weights of a Hugging Face folder", &o.init_from},
      {"log-interval", {}, "Output", "Print every so many steps", &o.log_interval},
      {"warmup-steps", {}, "Output", "First steps to leave out of averages", &o.warmup_steps},
      {"flops", {}, "Output", "Print the exact FLOPs of a step", &o.flops},

      {"enable-pytorch-profiler",
       {"profile"},
       "Profiling",
       "Profile operators over some steps",
       &o.enable_pytorch_profiler},
      {"profile-dir", {}, "Profiling", "Where profiles go", &o.profile_dir},
      {"profile-memory",
       {"enable-memory-profiling"},
       "Profiling",
       "Report memory at every step",
       &o.profile_memory},
      {"profile-operators", {}, "Profiling", "Report operators in detail", &o.profile_operators},
      {"counters", {}, "Profiling", "Count cycles, instructions and misses too", &o.counters},
      {"compress-traces",
       {},
       "Profiling",
       "Write traces as .json.gz, which their viewers read too",
       &o.compress_traces},
      {"group-by",
       {},
       "Profiling",
       "Rows of the operator table: operator, shape, module or phase",
       &o.group_by},
      {"sort-by",
       {},
       "Profiling",
       "Its order: total, self, calls, average, flops, gflops, bytes, gbps or name",
       &o.sort_by},
      {"profile-steps",
       {},
       "Profiling",
       "Steps to profile after step 5, which warms the profiler up; 0: five, and no profile "
       "without "
       "another of these flags",
       &o.profile_steps},
      {"enable-deepspeed-flops", {}, "Profiling", "Report FLOPs", &o.enable_deepspeed_flops},
      {"flops-profile-step",
       {},
       "Profiling",
       "Step whose FLOPs are reported; 0: any",
       &o.flops_profile_step},
      {"enable-all-profiling", {}, "Profiling", "All of these", &o.enable_all_profiling},
  };
}

TrainOptions course_of(const TrainOptions& options) {
  TrainOptions copy = options, course;
  const std::vector<OptionInfo> from = options_of(copy), to = options_of(course);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::string& group = from[i].group;
    if (group != "Model" && group != "Training" && group != "Data") continue;
    std::visit([&]<class T>(T* value) { *std::get<T*>(to[i].target) = *value; }, from[i].target);
  }
  return course;
}

}  // namespace ridge
