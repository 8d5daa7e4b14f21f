#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/models/model.h"

namespace ridge {

// The shape of a LLaMA decoder (Touvron et al., 2023) with grouped-query attention.
struct LlamaConfig {
  std::int64_t vocab_size = 1000;
  std::int64_t hidden_dim = 256;
  std::int64_t n_layers = 4;
  std::int64_t n_heads = 8;
  std::int64_t n_kv_heads = 4;
  std::int64_t intermediate_dim = 512;
  float norm_eps = 1e-6f;
  float rope_theta = 10000.0f;
  float init_std = 0.02f;
  bool tie_embeddings = false;

  std::int64_t head_dim() const { return hidden_dim / n_heads; }
  // UsageError naming the first size that makes no sense, with the reason.
  void check() const;
  std::int64_t parameter_count() const;
  bool operator==(const LlamaConfig&) const = default;
};

// Appends the forward graph: per layer RMSNorm, attention with separate q/k/v/o projections, rotary
// embedding over consecutive pairs and a causal mask, residual; RMSNorm, SwiGLU, residual; then the
// final RMSNorm, output projection and cross-entropy.
//
// The input is tokens 0 .. S-1 of each window, i32[batch, seq], the targets are tokens 1 .. S, and
// the logits are [batch, seq, vocab].
//
// Parameters are f32 and named "embedding.weight", "layers.<i>.attention.q_proj.weight", ...; a
// projection's weight is [out, in]. With `compute` bf16 or f16, products, activations inside the
// blocks and logits are that, while parameters, the residual stream and every reduction stay f32.
Model build_llama(Graph& graph, const LlamaConfig& config, std::int64_t batch_size,
                  std::int64_t seq_len, DType compute = DType::f32);

}  // namespace ridge
