#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

// The values of a model's forward graph through which it is fed and read.
struct Model {
  Value input;    // i32[batch, seq]: tokens; or f32[N, 3, H, W]: images
  Value targets;  // i32: the class that each row of the logits should name
  Value logits;   // in the dtype computed in, the classes along dimension 1 (images) or 2 (tokens)
  Value loss;     // f32 scalar: mean cross-entropy in nats, kept readable
  Value step;     // i32 scalar input that decides what is dropped; no value if nothing is
};

}  // namespace ridge
