#pragma once

#include <cstddef>

#include "ridge/graph/graph.h"

namespace ridge {

// The values of a model's forward graph through which it is fed and read.
struct Model {
  Value input;                // i32[batch, seq]: tokens; or f32[N, 3, H, W]: images
  Value targets;              // i32: the class that each row of the logits should name
  Value logits;               // in the dtype computed in
  std::size_t class_dim = 1;  // the dimension of the logits along which the classes are
  Value loss;                 // f32 scalar: mean cross-entropy in nats, kept readable
  Value step;  // i32 scalar input that decides what is dropped; no value if nothing is
};

}  // namespace ridge
