#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ridge/passes/schedules.h"

namespace ridge {

// Everything that defines a run of any workload: what runs, how it computes, where, what it reads
// and writes. The command line, the JSON configuration and the configuration stored in a checkpoint
// are all made of options_of(), the one list of these fields. Which of them a network has a use
// for, and what they are by default, its family says (session/workload.h); the defaults here are
// those of the workshop's model, and default_options() has those of others.
struct RunOptions {
  // Workload.
  std::string network = "tiny_llama";  // a name or an alias of a network of any family
  std::string mode = "training";       // or "inference"

  // A language model. 0 stands for "derived": see resolve().
  std::int64_t vocab_size = 0;
  std::int64_t hidden_dim = 256;
  std::int64_t n_layers = 4;
  std::int64_t n_heads = 8;
  std::int64_t n_kv_heads = 0;
  std::int64_t intermediate_dim = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  bool tie_embeddings = false;

  // A vision network.
  std::int64_t image_size = 0;         // rows and columns; 0: the network's own
  std::string channels_last = "auto";  // or "on", "off": whether the pass of this name runs

  // Training.
  std::int64_t batch_size = 8;
  std::int64_t seq_len = 128;
  std::int64_t num_steps = 50;  // of inference: passes
  std::int64_t gradient_accumulation_steps = 1;
  std::string optimizer = "adamw";  // or "sgd"
  double learning_rate = 1e-4;
  std::string lr_schedule = "constant";  // or "cosine"
  std::int64_t lr_warmup_steps = 0;
  double min_learning_rate = 0.0;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adam_eps = 1e-8;
  double momentum = 0.9;                           // of SGD
  double max_grad_norm = 0.0;                      // 0: gradients are not clipped
  std::string dtype = "fp32";                      // a name of precisions()
  bool use_amp = false;                            // the workshop's spelling of dtype bf16
  double loss_scale = 65536.0;                     // of dtype fp16: the first
  std::int64_t loss_scale_growth_interval = 2000;  // good steps after which it doubles
  std::string version = "v1";                      // a name of schedules()
  std::string enable_pass, disable_pass;           // names, separated by commas
  std::string recompute = "none";                  // or "attention", "block", "block:3"
  std::int64_t seed = 42;
  // The same bits at every run, which on a CPU they always are; a language model's also on any
  // number of ranks: see micro_batches.
  bool deterministic = false;
  // Parts of a batch in training whose gradients are summed in an order of their own, whoever
  // computes which; 0: derived.
  std::int64_t micro_batches = 0;
  std::int64_t derived_micro_batches = 0;  // what resolve() made of 0: another batch has others

  // Data and evaluation.
  std::string data;     // empty: synthetic
  std::string weights;  // of a vision network: a file to start from
  double validation_fraction = 0.1;
  std::int64_t eval_every = 0;  // 0: never
  std::int64_t eval_batches = 8;

  // Machine.
  std::string device = "auto";     // or "cpu", "cuda"
  std::int64_t threads = 0;        // 0: all processors this process may use
  std::int64_t ranks = 1;          // that share each batch
  std::int64_t gpus = 0;           // of this machine, with ranks_per_gpu ranks each; 0: not said
  std::int64_t ranks_per_gpu = 1;  // at most; 0: as many as it takes
  // Of what each rank keeps a part alone: 1, of the optimizer's state; 2, of gradients too; 3, of
  // parameters too.
  std::int64_t zero = 0;
  bool sync_batch_norm = false;  // over ranks

  // Files and reports.
  std::string output_dir = "output";
  std::int64_t save_every = 0;  // 0: never
  std::string resume;
  std::string init_from;
  std::int64_t log_interval = 1;
  std::int64_t warmup_steps = 3;  // left out of averages
  bool flops = false;

  // Profiling.
  bool enable_pytorch_profiler = false;
  bool enable_deepspeed_flops = false;
  bool enable_all_profiling = false;
  bool profile_memory = false;
  bool profile_operators = false;
  bool profile_system = false;                // what the machine does beside the steps
  std::int64_t profile_system_interval = 20;  // milliseconds between two samples of it
  bool counters = false;                      // hardware counters of every operator
  bool compress_traces = false;               // the traces in JSON, by gzip
  std::string profile_dir = "profiles";
  std::string group_by = "operator";  // rows and order of the operator table; see profile/
  std::string sort_by = "total";
  std::int64_t profile_steps = 0;       // 0: steps 5 to 10
  std::int64_t flops_profile_step = 0;  // 0: none

  // Replaces what is "derived" by its value (vocabulary 256 for a text file, else 1000; key heads
  // half the heads where they divide, else all; intermediate size twice the hidden; micro-batches
  // 8, or the largest power of two below that divides the batch, for a language model that is to be
  // deterministic, else 1; the profiler on if its steps are given and no profile is) and checks
  // every field: UsageError naming the option in the command line's spelling, its value and the
  // reason. Other spellings of a dtype or a device become the one above, and use_amp becomes dtype
  // bf16.
  void resolve();

  Precision precision() const { return precision_named(use_amp ? "bf16" : dtype); }
  Use use() const { return mode == "inference" ? Use::inference : Use::training; }
  // Whether a rank computes its micro-batches one by one, so that their gradients can be summed in
  // the order of one binary tree over those of all ranks.
  bool sums_pairwise() const { return use() == Use::training && micro_batches > 1; }
  // The batches of a step, whose gradients it sums, or the one of a pass: how often one rank
  // computes, and of how many samples at once.
  std::int64_t batches_per_step() const {
    if (use() == Use::inference) return 1;
    return gradient_accumulation_steps * (sums_pairwise() ? micro_batches / ranks : 1);
  }
  std::int64_t rank_batch_size() const {
    return batch_size / (sums_pairwise() ? micro_batches : ranks);
  }
  // Of all ranks.
  std::int64_t samples_per_step() const {
    return batch_size * (use() == Use::training ? gradient_accumulation_steps : 1);
  }
  ScheduleRequest schedule_request() const;
  // Resolves the schedule of these options, which are resolved, on a device.
  Schedule schedule(const Target& target) const;

  bool profiling() const;  // any of the profiles was asked for
  bool reports_memory() const { return profile_memory || enable_all_profiling; }
  bool reports_system() const { return profile_system || enable_all_profiling; }
  bool reports_flops() const { return flops || enable_deepspeed_flops || enable_all_profiling; }
  bool operator==(const RunOptions&) const = default;
};

// The defaults of a workload. UsageError for a network that there is not.
RunOptions default_options(std::string_view network);

// The same run under the baseline's schedule: no passes switched, nothing recomputed.
RunOptions without_schedule(RunOptions options);
// The options with which the model of a run is used. Passes and recomputation that were asked for
// training are not asked for then; a run in inference stays as it is.
RunOptions options_in_use(RunOptions options);

// One field under the names that users give it.
struct OptionInfo {
  std::string name;  // "batch-size": the flag is --batch-size, the JSON key the same
  std::vector<std::string> aliases;  // other spellings of the flag, without dashes
  std::string group;                 // heading in --help
  std::string help;
  std::variant<std::int64_t*, double*, bool*, std::string*> target;
};

std::vector<OptionInfo> options_of(RunOptions& options);

// The field of that name, or that has it as an alias; null if there is none.
const OptionInfo* find_option(const std::vector<OptionInfo>& options, std::string_view name);
// The field of that name, which has to be of integers: "batch-size".
std::int64_t& integer_option(RunOptions& options, std::string_view name);

// Sets a field from what was given on the command line; UsageError if that is no number, or none of
// true and false.
void set_from_text(const OptionInfo& option, std::string_view text);

// What --device names: "auto", "cpu" or "cuda", which "gpu" is too. UsageError for anything else.
std::string canonical_device(std::string_view device);

// The options that decide the course of a run (workload, model, training, data), with all others,
// which say where it runs and what it reports, at their defaults.
RunOptions course_of(const RunOptions& options);

// Options as JSON text with the names above as keys, and back: apply_json() sets the fields that
// are named, by any of their names and with dashes or underscores, leaves the others, and returns
// the names of those that it set.
// FormatError for text that is not a JSON object, a key that is no option (naming the nearest) or
// is given twice, or a value of the wrong type; no field is set then.
std::string to_json(const RunOptions& options);
std::vector<std::string> apply_json(RunOptions& options, std::string_view json);

// The nearest of `names` to a misspelled one: one that it begins, or the one fewest edits away
// (a letter inserted, removed, replaced or swapped with its neighbor); empty if none is near.
std::string nearest_name(std::string_view misspelled, const std::vector<std::string>& names);

}  // namespace ridge
