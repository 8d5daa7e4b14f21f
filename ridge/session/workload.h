#pragma once

// What a session runs. A workload is a value that says everything about it but how it is scheduled:
// which forward graph, fed with what, measured by what. The families of workloads (the LLaMA, the
// vision networks) are rows of one table; adding one touches its own files and that table.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/models/model.h"
#include "ridge/session/batches.h"
#include "ridge/session/optimizer.h"
#include "ridge/session/options.h"

namespace ridge {

// What is told of a workload: in headings, in records, in comparisons.
struct WorkloadInfo {
  std::string name;   // "tiny_llama", "resnet50"
  std::string title;  // "Tiny LLaMA", "resnet50": for headings
  // A line for people: "256 wide, 4 layers, 8/4 heads, .., 8 x 128 tokens".
  std::string description;
  std::string sample = "sample";       // what a sample is called: "sequence", "image"
  std::int64_t tokens_per_sample = 0;  // 0: samples are no sequences of tokens
  std::int64_t classes = 0;            // among which a target is one; 0: targets are no such thing
  // What defines a sample and the model, for headings: {"Hidden Dim", "256"}.
  std::vector<std::pair<std::string, std::string>> settings;
  // Names of options: those that define the model, and those that decide, beside the batch, how
  // much work a step is, the weightiest first.
  std::vector<std::string_view> model_options, work_options;

  // The work options that do not define the model: the sizes of a sample.
  std::vector<std::string_view> sample_options() const;
};

struct Workload {
  WorkloadInfo info;
  Use use = Use::training;
  std::int64_t batch_size = 1;  // samples in a batch, of which each rank has as many
  OptimizerConfig optimizer;    // of training

  // Appends the forward graph for one batch, or for a rank's part of one.
  std::function<Model(Graph&, const Precision&)> build;
  // Opens the data, where errors in them are found. Batches are those parts, one after another.
  std::function<std::unique_ptr<Batches>()> open;
  // Gives persistent values other contents than their own Init before anything is rewritten
  // (Graph::set_init): weights from a file, statistics of fresh networks. Null: nothing to give.
  std::function<void(Graph&, Device&)> initialize;
  // The same model built to be used, where the forward pass of training cannot be evaluated because
  // it drops values and takes a batch's own statistics. Null: it can.
  std::function<Workload()> in_use;
};

// How far a schedule may be from the double-precision reference; see analyze/verify.h.
struct Tolerance {
  double loss = 0, logits = 0, gradient = 0, curve = 0;
  // Or so many times as far as the baseline is, if that is more: in the same precision, or in that
  // of this name.
  double times_baseline = 0;
  std::string_view baseline = {};
};

// A network under the names that users give it.
struct NetworkName {
  std::string_view name;
  std::vector<std::string_view> aliases;
};

// A family of workloads and what it does to the options of a run. Everything that commands need to
// know of a kind of model is here: none of them asks which family it has.
struct WorkloadFamily {
  std::string_view name;    // "language", "vision": the flag of `ridge verify` that takes its set
  std::string_view models;  // what its networks are called, for people: "LLaMAs"
  std::vector<NetworkName> (*networks)();
  void (*set_defaults)(RunOptions& options);  // where they are not RunOptions{}'s; may be null
  std::int64_t benchmark_batch = 1;           // the batch size of `ridge bench`
  bool has_weights_files = false;             // which --weights reads and --save-weights writes
  // Replaces what is "derived" by its value; may be null.
  void (*derive)(RunOptions& options);
  void (*check)(const RunOptions& options);  // UsageError, as RunOptions::resolve()
  // The models of the same proportions as that of resolved options, the smallest first, each larger
  // in all of its sizes than the one before or as large; may be null, where models have no scale.
  std::vector<RunOptions> (*scaled)(const RunOptions& options);
  // Makes the workload from resolved options.
  Workload (*make)(const RunOptions& options);

  // For `ridge verify`. The models that stand for all, resolved; the defaults of one network, made
  // small enough for the reference (may be null); the change of a model that its precision does not
  // take to one near it that it may take (may be null); and the limits.
  std::vector<RunOptions> (*verified)(Use use);
  void (*shrink)(RunOptions& options);
  void (*adapt)(RunOptions& options);
  Tolerance (*tolerance)(const Precision& precision);
};

std::span<const WorkloadFamily> workload_families();
// The one that has a network, by its name or an alias; UsageError, naming near ones, if none has.
const WorkloadFamily& family_of(std::string_view network);
// The name of a network that is called so.
std::string_view network_named(std::string_view name_or_alias);

Workload workload_of(const RunOptions& options);  // of resolved ones

// The optimizer that the options ask for.
OptimizerConfig optimizer_config(const RunOptions& options);

// The families.
extern const WorkloadFamily language_family;  // session/language.cpp
extern const WorkloadFamily vision_family;    // session/vision.cpp

}  // namespace ridge
