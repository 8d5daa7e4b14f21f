#pragma once

#include "ridge/models/llama/llama.h"

namespace ridge {

// A LLaMA of two small layers, for tests of graphs and executors.
inline constexpr LlamaConfig tiny_llama{.vocab_size = 20,
                                        .hidden_dim = 24,
                                        .n_layers = 2,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .intermediate_dim = 40};

}  // namespace ridge
