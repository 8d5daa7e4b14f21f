#pragma once

#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/ops/op.h"
#include "tests/base/message_of.h"

namespace ridge {

// What an operator says of operands that it does not take.
inline std::string message_of(const Op& op, const std::vector<TensorType>& in) {
  return message_of<ShapeError>([&] { infer(op, in); });
}

}  // namespace ridge
