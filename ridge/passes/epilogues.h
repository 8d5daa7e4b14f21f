#pragma once

// What convolutions and linear layers take into their own kernels.

#include "ridge/ops/epilogue.h"
#include "ridge/passes/rewrite.h"

namespace ridge {

// The epilogue that computes what node n does; none if there is no such.
inline Epilogue epilogue_of(const Rewriter& rw, NodeId n) {
  if (rw.op<Relu>(n)) return Epilogue::relu;
  if (rw.op<Silu>(n)) return Epilogue::silu;
  if (const Activation* activation = rw.op<Activation>(n)) switch (activation->kind) {
      case ActivationKind::relu6:
        return Epilogue::relu6;
      case ActivationKind::hard_swish:
        return Epilogue::hard_swish;
      case ActivationKind::gelu:
        return Epilogue::gelu;
      default:
        break;
    }
  return Epilogue::none;
}

}  // namespace ridge
