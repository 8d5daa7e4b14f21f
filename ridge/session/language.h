#pragma once

// The LLaMA as a workload: next-token prediction.

#include <cstdint>
#include <string_view>
#include <vector>

#include "ridge/models/llama/llama.h"
#include "ridge/session/options.h"

namespace ridge {

inline constexpr std::string_view language_network = "tiny_llama";

// The model of resolved options.
LlamaConfig llama_config(const RunOptions& options);

}  // namespace ridge
