#include "ridge/ops/epilogue.h"

namespace ridge {
namespace {

constexpr ElementFunction identity{.name = "none",
                                   .value = [](double x) { return x; },
                                   .derivative = [](double) { return 1.0; },
                                   .flops = 0,
                                   .gradient_flops = 0};

}  // namespace

const ElementFunction& element_function(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::relu:
      return relu_function;
    case Epilogue::relu6:
      return element_function(ActivationKind::relu6);
    case Epilogue::silu:
      return silu_function;
    case Epilogue::hard_swish:
      return element_function(ActivationKind::hard_swish);
    case Epilogue::gelu:
      return element_function(ActivationKind::gelu);
  }
  return identity;
}

}  // namespace ridge
