#include "ridge/session/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/session/devices.h"
#include "ridge/session/workload.h"

namespace ridge {
namespace {

constexpr std::int64_t max_count = 1'000'000'000;
constexpr double max_beta = 0.999999;  // closer to 1, 1 - beta has no digits in single precision

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

// GPUs that were asked for are ranks, and ranks that were asked for besides have to be as many.
void derive_ranks(RunOptions& o) {
  if (o.ranks_per_gpu == 0)
    throw UsageError("--gpus {} says nothing of ranks with --ranks-per-gpu 0: use --ranks", o.gpus);
  const std::int64_t ranks = o.gpus * o.ranks_per_gpu;
  if (o.ranks != 1 && o.ranks != ranks)
    throw UsageError("--gpus {} with {} rank{} each are {} ranks, but --ranks is {}", o.gpus,
                     o.ranks_per_gpu, o.ranks_per_gpu == 1 ? "" : "s", ranks, o.ranks);
  if (o.device == "cpu")
    throw UsageError("--gpus {} needs --device {}, not cpu", o.gpus, gpu_name());
  o.ranks = ranks;
  if (o.device == "auto") o.device = gpu_name();
}

void derive_run(RunOptions& o) {
  o.dtype = precision_named(o.dtype).name;
  o.device = canonical_device(o.device);
  if (o.use_amp) o.dtype = "bf16", o.use_amp = false;
  check_range("gpus", o.gpus, 0, 1 << 16);
  check_range("ranks-per-gpu", o.ranks_per_gpu, 0, 1 << 10);
  if (o.gpus > 0) derive_ranks(o);
  if (o.profile_steps > 0 && !o.profiling()) o.enable_pytorch_profiler = true;
}

void check_training(const RunOptions& o) {
  check_range("batch-size", o.batch_size, 1, 1 << 20);
  check_range("seq-len", o.seq_len, 1, 1 << 20);
  check_range("num-steps", o.num_steps, 1, max_count);
  check_range("gradient-accumulation-steps", o.gradient_accumulation_steps, 1, 1 << 16);
  check_range("seed", o.seed, 0, std::numeric_limits<std::int64_t>::max());
  check_range("ranks", o.ranks, 1, 1 << 16);
  check_range("zero", o.zero, 0, 3);
  if (o.batch_size % o.ranks != 0)
    throw UsageError("--batch-size {} does not divide among {} ranks: use a multiple of {}",
                     o.batch_size, o.ranks, o.ranks);
  check_choice("channels-last", o.channels_last, {"auto", "on", "off"});
  // Whatever the device: it may yet turn out to lack the precision.
  const Target any{.multiplies_float8 = true};
  o.schedule(any);
}

void check_micro_batches(const RunOptions& o) {
  check_range("micro-batches", o.micro_batches, 1, 1 << 12);
  const auto parts = static_cast<std::uint64_t>(o.micro_batches);
  if (!std::has_single_bit(parts))
    throw UsageError("--micro-batches is {}: their sums are a binary tree; use a power of two",
                     o.micro_batches);
  if (o.batch_size % o.micro_batches != 0)
    throw UsageError("--batch-size {} does not divide into {} micro-batches: use a multiple of {}",
                     o.batch_size, o.micro_batches, o.micro_batches);
  if (!o.sums_pairwise() || o.micro_batches % o.ranks == 0) return;
  const bool divides = std::has_single_bit(static_cast<std::uint64_t>(o.ranks));
  throw UsageError(
      "{} micro-batches, whose gradients are summed in one order on any number of ranks, do not "
      "divide among {}: use {}, or --micro-batches 1 to sum in any order",
      o.micro_batches, o.ranks,
      divides ? fmt::format("--micro-batches {}", o.ranks) : "a power of two of --ranks");
}

void check_optimizer(const RunOptions& o) {
  check_choice("optimizer", o.optimizer, {"adamw", "sgd"});
  check_real("momentum", o.momentum, 0, max_beta);
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

void check_run(const RunOptions& o) {
  check_real("validation-fraction", o.validation_fraction, 0, 0.9);
  check_range("eval-every", o.eval_every, 0, max_count);
  check_range("eval-batches", o.eval_batches, 0, max_count);
  if (o.eval_every > 0 && !o.data.empty() && o.validation_fraction == 0)
    throw UsageError("--eval-every {} has nothing to evaluate: --validation-fraction is 0",
                     o.eval_every);
  check_range("threads", o.threads, 0, 4096);
  check_range("save-every", o.save_every, 0, max_count);
  check_range("log-interval", o.log_interval, 1, max_count);
  check_range("warmup-steps", o.warmup_steps, 0, max_count);
  check_range("profile-steps", o.profile_steps, 0, max_count);
  check_range("flops-profile-step", o.flops_profile_step, 0, max_count);
  check_range("profile-system-interval", o.profile_system_interval, 1, 60'000);
  if (!o.resume.empty() && !o.init_from.empty())
    throw UsageError("--resume {} and --init-from {}: a run starts from one or the other", o.resume,
                     o.init_from);
  for (const auto& [name, path] :
       {std::pair{"output-dir", &o.output_dir}, std::pair{"profile-dir", &o.profile_dir}})
    if (path->empty()) throw UsageError("--{} is empty; '.' is the current directory", name);
}

// Sizes of the other workload must make sense too, which the family of this one does not look at.
void check_sizes(const RunOptions& o) {
  for (const auto& [name, size] :
       {std::pair{"image-size", o.image_size}, std::pair{"hidden-dim", o.hidden_dim},
        std::pair{"n-layers", o.n_layers}, std::pair{"n-heads", o.n_heads},
        std::pair{"n-kv-heads", o.n_kv_heads}, std::pair{"intermediate-dim", o.intermediate_dim},
        std::pair{"vocab-size", o.vocab_size}})
    check_range(name, size, 0, std::int64_t{1} << 31);
}

}  // namespace

std::string canonical_device(std::string_view device) {
  if (device == "gpu") return std::string(gpu_name());
  check_choice("device", device, {"auto", "cpu", "cuda", "hip"});
  return std::string(device);
}

void RunOptions::resolve() {
  for (const OptionInfo& option : options_of(*this))
    if (auto* const* text = std::get_if<std::string*>(&option.target))
      check_text(option.name, **text);
  check_choice("mode", mode, {"training", "inference"});
  derive_run(*this);
  network = network_named(network);
  const WorkloadFamily& family = family_of(network);
  const bool derives_micro_batches = micro_batches == derived_micro_batches;
  if (derives_micro_batches) micro_batches = 0;
  if (family.derive) family.derive(*this);
  if (micro_batches == 0) micro_batches = 1;
  if (derives_micro_batches) derived_micro_batches = micro_batches;
  check_training(*this);
  check_micro_batches(*this);
  check_optimizer(*this);
  check_run(*this);
  family.check(*this);
  check_sizes(*this);
}

ScheduleRequest RunOptions::schedule_request() const {
  ScheduleRequest request{version, enable_pass,     disable_pass, recompute,
                          ranks,   sums_pairwise(), zero,         sync_batch_norm};
  const auto add = [](std::string& list) {
    list += fmt::format("{}{}", list.empty() ? "" : ",", channels_last_pass);
  };
  if (channels_last == "off") add(request.disable);
  if (channels_last == "on") add(request.enable);
  return request;
}

Schedule RunOptions::schedule(const Target& target) const {
  return ridge::resolve(schedule_request(), precision(), target, use());
}

bool RunOptions::profiling() const {
  return enable_pytorch_profiler || enable_deepspeed_flops || enable_all_profiling ||
         profile_memory || profile_operators || profile_system || counters;
}

std::vector<OptionInfo> options_of(RunOptions& o) {
  return {
      {"network", {}, "Workload", "Choose the network; ridge bench --list names all", &o.network},
      {"mode", {}, "Workload", "Choose training, or inference (forward passes only)", &o.mode},

      {"batch-size", {}, "Training", "Set the number of samples in a batch", &o.batch_size},
      {"seq-len", {"seq-length"}, "Training", "Set the sequence length in tokens", &o.seq_len},
      {"num-steps",
       {"steps", "iterations"},
       "Training",
       "Run this many optimizer steps, or passes in inference",
       &o.num_steps},
      {"optimizer", {}, "Training", "Choose adamw or sgd", &o.optimizer},
      {"learning-rate", {"lr"}, "Training", "Set the optimizer's learning rate", &o.learning_rate},
      {"lr-schedule", {}, "Training", "Choose constant or cosine", &o.lr_schedule},
      {"lr-warmup-steps",
       {},
       "Training",
       "Raise the rate linearly over this many first steps",
       &o.lr_warmup_steps},
      {"min-learning-rate",
       {"min-lr"},
       "Training",
       "End the cosine schedule at this rate",
       &o.min_learning_rate},
      {"weight-decay", {}, "Training", "Set the decoupled weight decay", &o.weight_decay},
      {"beta1", {}, "Training", "Set AdamW's decay of the mean gradient", &o.beta1},
      {"beta2", {}, "Training", "Set AdamW's decay of the mean squared gradient", &o.beta2},
      {"adam-eps", {}, "Training", "Add this to AdamW's root mean square", &o.adam_eps},
      {"momentum", {}, "Training", "Set SGD's momentum", &o.momentum},
      {"max-grad-norm",
       {"grad-clip", "clip-grad-norm"},
       "Training",
       "Clip the norm of the gradients to this; 0: no clipping",
       &o.max_grad_norm},
      {"gradient-accumulation-steps",
       {"grad-accum", "accumulation-steps"},
       "Training",
       "Sum the gradients of this many batches in a step",
       &o.gradient_accumulation_steps},
      {"dtype",
       {"precision"},
       "Training",
       "Compute in fp32, tf32 (fp32 with products rounded to 19 bits), or with fp32 master weights "
       "bf16, fp16 (with dynamic loss scaling) or fp8 (bf16 with 8-bit products in the inner "
       "blocks, on a GPU that has them); for inference also int8",
       &o.dtype},
      {"loss-scale",
       {},
       "Training",
       "Multiply the loss by this at first (fp16), to keep small gradients; halve it at each "
       "overflow and skip that step",
       &o.loss_scale},
      {"loss-scale-growth-interval",
       {"loss-scale-window"},
       "Training",
       "Double the loss scale after this many steps without overflow (fp16)",
       &o.loss_scale_growth_interval},
      {"use-amp", {"amp"}, "Training", "Use --dtype bf16", &o.use_amp},
      {"version",
       {"schedule"},
       "Training",
       "Choose the schedule: v1 to v4, or a compile mode; see ridge passes",
       &o.version},
      {"enable-pass",
       {"enable-passes"},
       "Training",
       "Add passes to the schedule, separated by commas; see ridge passes",
       &o.enable_pass},
      {"disable-pass",
       {"disable-passes"},
       "Training",
       "Leave these passes out of the schedule",
       &o.disable_pass},
      {"recompute",
       {},
       "Training",
       "Recompute activations in the backward pass: none, attention or block; "
       "attention:N or block:N in the first N blocks alone",
       &o.recompute},
      {"seed", {}, "Training", "Seed the weights and the data", &o.seed},

      {"hidden-dim", {"hidden-size"}, "Model", "Set the width of the model", &o.hidden_dim},
      {"n-layers", {"num-layers"}, "Model", "Set the number of layers", &o.n_layers},
      {"n-heads", {"num-heads"}, "Model", "Set the number of attention heads", &o.n_heads},
      {"n-kv-heads",
       {"num-kv-heads"},
       "Model",
       "Set the number of key/value heads; 0: half the heads where they divide",
       &o.n_kv_heads},
      {"intermediate-dim",
       {"intermediate-size"},
       "Model",
       "Set the feed-forward width; 0: twice --hidden-dim",
       &o.intermediate_dim},
      {"vocab-size",
       {},
       "Model",
       "Set the vocabulary size; 0: 256 for a text file, else 1000",
       &o.vocab_size},
      {"tie-embeddings",
       {},
       "Model",
       "Use the embedding as the output projection too",
       &o.tie_embeddings},
      {"norm-eps", {}, "Model", "Add this to the mean square in RMSNorm", &o.norm_eps},
      {"rope-theta", {}, "Model", "Set the base of the rotary embedding", &o.rope_theta},
      {"image-size",
       {},
       "Model",
       "Set the rows and columns of an image; 0: the network's own",
       &o.image_size},

      {"data",
       {},
       "Data",
       "Read tokens from a file of text or a .bin file, or images from a safetensors file or a "
       "folder "
       "with a subfolder of PNG and JPEG files for each class; without it: synthetic",
       &o.data},
      {"weights",
       {},
       "Data",
       "Start a vision network from this file, under torchvision's names",
       &o.weights},
      {"validation-fraction",
       {},
       "Data",
       "Keep this part of the data for validation",
       &o.validation_fraction},
      {"eval-every", {}, "Data", "Evaluate every so many steps; 0: never", &o.eval_every},
      {"eval-batches", {}, "Data", "Evaluate on this many batches", &o.eval_batches},

      {"device", {}, "Machine", "Run on auto (a GPU if there is one), cpu, cuda or hip", &o.device},
      {"channels-last",
       {},
       "Training",
       "Keep the channels of a pixel side by side: auto (as the schedule does), on or off",
       &o.channels_last},
      {"deterministic",
       {},
       "Machine",
       "Give the same bits in every run, and a language model on any number of ranks, at some cost "
       "in speed",
       &o.deterministic},
      {"micro-batches",
       {},
       "Machine",
       "Sum the gradients of this many parts of a batch in the order of a binary tree, the same on "
       "any number of ranks; 0: 8, or what divides the batch, with --deterministic, else 1",
       &o.micro_batches},
      {"threads",
       {"num-threads"},
       "Machine",
       "Use this many processors; 0: all available",
       &o.threads},
      {"ranks",
       {"nproc-per-node"},
       "Machine",
       "Share each batch among this many processes",
       &o.ranks},
      {"gpus",
       {"num-gpus"},
       "Machine",
       "Share each batch among this many GPUs, with a process on each: --device cuda and as many "
       "--ranks",
       &o.gpus},
      {"ranks-per-gpu",
       {},
       "Machine",
       "Let this many processes share a GPU, which is slow, and for tests; 0: as many as it takes",
       &o.ranks_per_gpu},
      {"zero",
       {"zero-stage"},
       "Machine",
       "Keep only a part on each rank of: 0, nothing; 1, optimizer state; 2, summed gradients too; "
       "3, parameters too",
       &o.zero},
      {"sync-batch-norm",
       {},
       "Machine",
       "Normalize in batch norms by the statistics of all ranks; in training",
       &o.sync_batch_norm},

      {"output-dir",
       {},
       "Output",
       "Write config.json, performance_summary.json and checkpoint.safetensors here",
       &o.output_dir},
      {"save-every",
       {},
       "Training",
       "Save a checkpoint every so many steps and at the end; 0: never",
       &o.save_every},
      {"resume",
       {},
       "Output",
       "Resume from this checkpoint, with its options unless given here",
       &o.resume},
      {"init-from", {}, "Output", "Start from the weights of a Hugging Face folder", &o.init_from},
      {"log-interval", {}, "Output", "Print every so many steps", &o.log_interval},
      {"warmup-steps",
       {"warmup"},
       "Output",
       "Leave this many first steps out of averages",
       &o.warmup_steps},
      {"flops", {}, "Output", "Print the exact FLOPs of a step", &o.flops},

      {"enable-pytorch-profiler",
       {"profile"},
       "Profiling",
       "Profile operators over some steps",
       &o.enable_pytorch_profiler},
      {"profile-dir", {}, "Profiling", "Write profiles to this directory", &o.profile_dir},
      {"profile-memory",
       {"enable-memory-profiling"},
       "Profiling",
       "Report memory at every step",
       &o.profile_memory},
      {"profile-operators", {}, "Profiling", "Report operators in detail", &o.profile_operators},
      {"profile-system",
       {},
       "Profiling",
       "Sample the processor's cores, memory, disk, network and power beside the steps",
       &o.profile_system},
      {"profile-system-interval",
       {},
       "Profiling",
       "Sample them every so many milliseconds",
       &o.profile_system_interval},
      {"counters", {}, "Profiling", "Count cycles, instructions and misses too", &o.counters},
      {"compress-traces",
       {},
       "Profiling",
       "Write traces as .json.gz; trace viewers read them",
       &o.compress_traces},
      {"group-by",
       {},
       "Profiling",
       "Group the operator table by operator, shape, module or phase",
       &o.group_by},
      {"sort-by",
       {},
       "Profiling",
       "Sort it by total, self, calls, average, flops, gflops, bytes, gbps or name",
       &o.sort_by},
      {"profile-steps",
       {},
       "Profiling",
       "Profile this many steps after step 5; 0: five, and no profile "
       "without "
       "another of these flags",
       &o.profile_steps},
      {"enable-deepspeed-flops", {}, "Profiling", "Report FLOPs", &o.enable_deepspeed_flops},
      {"flops-profile-step",
       {},
       "Profiling",
       "Report the FLOPs of this step; 0: any",
       &o.flops_profile_step},
      {"enable-all-profiling", {}, "Profiling", "Enable all of these", &o.enable_all_profiling},
  };
}

RunOptions default_options(std::string_view network) {
  const WorkloadFamily& family = family_of(network);
  RunOptions options;
  options.network = network;
  if (family.set_defaults) family.set_defaults(options);
  return options;
}

RunOptions without_schedule(RunOptions options) {
  const ScheduleRequest none;
  options.version = none.row;
  options.enable_pass = none.enable;
  options.disable_pass = none.disable;
  options.recompute = none.recompute;
  options.channels_last = "auto";
  return options;
}

RunOptions options_in_use(RunOptions options) {
  if (options.use() == Use::inference) return options;
  const std::string version = options.version;
  options = without_schedule(std::move(options));
  options.version = version;
  options.mode = name_of(Use::inference);
  return options;
}

RunOptions course_of(const RunOptions& options) {
  RunOptions copy = options, course;
  const std::vector<OptionInfo> from = options_of(copy), to = options_of(course);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::string& group = from[i].group;
    if (group != "Workload" && group != "Model" && group != "Training" && group != "Data") continue;
    std::visit([&]<class T>(T* value) { *std::get<T*>(to[i].target) = *value; }, from[i].target);
  }
  return course;
}

}  // namespace ridge
