#include "ridge/base/dtype.h"

#include "ridge/base/error.h"

namespace ridge {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::f8e4m3:
    case DType::f8e5m2:
      return 1;
  }
  throw Error("unknown dtype {}", static_cast<int>(dtype));
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f8e4m3:
      return "f8e4m3";
    case DType::f8e5m2:
      return "f8e5m2";
    case DType::i32:
      return "i32";
  }
  throw Error("unknown dtype {}", static_cast<int>(dtype));
}

bool is_floating(DType dtype) { return dtype != DType::i32; }

bool is_float8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

}  // namespace ridge
