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

struct Workload {
  std::string name;   // "tiny_llama", "resnet50"
  std::string title;  // "Tiny LLaMA", "resnet50": for headings
  Use use = Use::training;
  // A line for people: "256 wide, 4 layers, 8/4 heads, .., 8 x 128 tokens".
  std::string description;
  // What defines a sample and the model, for headings: {"Hidden Dim", "256"}.
  std::vector<std::pair<std::string, std::string>> settings;
  std::int64_t batch_size = 1;         // samples in a batch
  std::int64_t tokens_per_sample = 0;  // 0: samples are no sequences of tokens
  OptimizerConfig optimizer;           // of training

  // Appends the forward graph for one batch.
  std::function<Model(Graph&, const Precision&)> build;
  // Opens the data, where errors in them are found.
  std::function<std::unique_ptr<Batches>()> open;
  // Gives persistent values other contents than their own Init before anything is rewritten
  // (Graph::set_init): weights from a file, statistics of fresh networks. Null: nothing to give.
  std::function<void(Graph&, Device&)> initialize;
  // The same model built to be used, where the forward pass of training cannot be evaluated because
  // it drops values and takes a batch's own statistics. Null: it can.
  std::function<Workload()> in_use;
};

// A family of workloads and what it does to the options of a run.
struct WorkloadFamily {
  std::string_view name;  // "language", "vision"
  bool (*has)(std::string_view network);
  void (*set_defaults)(RunOptions& options);  // where they are not RunOptions{}'s; may be null
  void (*derive)(RunOptions& options);        // replaces what is "derived" by its value
  void (*check)(const RunOptions& options);   // UsageError, as RunOptions::resolve()
  // Makes the workload from resolved options.
  Workload (*make)(const RunOptions& options);
};

std::span<const WorkloadFamily> workload_families();
// The one that has a network; UsageError, naming near ones, if none has.
const WorkloadFamily& family_of(std::string_view network);

Workload workload_of(const RunOptions& options);  // of resolved ones

// The optimizer that the options ask for.
OptimizerConfig optimizer_config(const RunOptions& options);

// The families.
extern const WorkloadFamily language_family;  // session/language.cpp
extern const WorkloadFamily vision_family;    // session/vision.cpp

}  // namespace ridge
