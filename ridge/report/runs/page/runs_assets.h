#pragma once

#include <string_view>

// The files of this folder, as the build embeds them; see ridge/report/page/assets.h.
namespace ridge {

extern const std::string_view runs_template, runs_style;

}  // namespace ridge
