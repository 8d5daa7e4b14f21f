#include "ridge/ops/epilogue.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ridge {

std::string_view name_of(Epilogue epilogue) {
  constexpr std::string_view names[] = {"none", "relu", "relu6", "silu", "hard_swish", "gelu"};
  return names[static_cast<std::size_t>(epilogue)];
}

std::int64_t flops_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::silu:
      return 4;
    case Epilogue::hard_swish:
      return 3;
    case Epilogue::gelu:
      return 5;
    default:
      return 0;
  }
}

double applied(Epilogue epilogue, double x) {
  switch (epilogue) {
    case Epilogue::none:
      return x;
    case Epilogue::relu:
      return std::max(x, 0.0);
    case Epilogue::relu6:
      return std::clamp(x, 0.0, 6.0);
    case Epilogue::silu:
      return x / (1.0 + std::exp(-x));
    case Epilogue::hard_swish:
      return x * std::clamp(x + 3.0, 0.0, 6.0) / 6.0;
    case Epilogue::gelu:
      return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
  }
  return x;
}

double derivative(Epilogue epilogue, double x) {
  switch (epilogue) {
    case Epilogue::none:
      return 1;
    case Epilogue::relu:
      return x > 0 ? 1 : 0;
    case Epilogue::relu6:
      return x > 0 && x < 6 ? 1 : 0;
    case Epilogue::silu: {
      const double s = 1.0 / (1.0 + std::exp(-x));
      return s * (1.0 + x * (1.0 - s));
    }
    case Epilogue::hard_swish:
      return x <= -3 ? 0 : (x >= 3 ? 1 : x / 3 + 0.5);
    case Epilogue::gelu:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
             x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  }
  return 1;
}

std::int64_t derivative_flops_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::silu:
      return 8;
    case Epilogue::hard_swish:
      return 3;
    case Epilogue::gelu:
      return 11;
    default:
      return 0;
  }
}

}  // namespace ridge
