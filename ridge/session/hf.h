#pragma once

// Folders in which Hugging Face's transformers keep a LLaMA: config.json beside model.safetensors,
// or beside several such files and model.safetensors.index.json. Its rotary embedding pairs element
// i of a head with element i + head_dim/2 where ours pairs consecutive elements, so the rows of the
// query and key projections are put into the other order on the way.

#include <filesystem>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/models/llama/llama.h"
#include "ridge/session/options.h"

namespace ridge {

// Sets the options of the model's sizes to those that a folder's config.json describes. IoError if
// that cannot be read, FormatError if it is no configuration of a LLaMA or asks for a feature that
// Ridge does not have, which it names; UsageError if one of the options has been set to something
// else: if it is named in `given`, or is not what it is by default.
void apply_hf_config(RunOptions& options, const std::filesystem::path& folder,
                     const std::vector<std::string>& given = {});

// Makes the folder's weights, of F32, F16 or BF16, the initial values of the parameters of a graph
// that build_llama() made for `config`. Everything is checked before anything is set: FormatError
// for a tensor that is missing, of another shape, or none of such a model's.
void initialize_from_hf(const std::filesystem::path& folder, const LlamaConfig& config,
                        Graph& graph);

// Writes the model of a checkpoint as such a folder, which is made if it is not there;
// transformers' LlamaForCausalLM then computes the same logits. Each file is written atomically,
// the configuration last. FormatError if the file is no checkpoint, IoError if the system refuses.
void export_hf(const std::filesystem::path& checkpoint, const std::filesystem::path& folder);

}  // namespace ridge
