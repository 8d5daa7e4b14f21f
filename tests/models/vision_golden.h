#pragma once

#include <string_view>

namespace ridge {

extern const std::string_view vision_golden_text;  // vision_golden.json

}  // namespace ridge
