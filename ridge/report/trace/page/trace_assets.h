#pragma once

#include <string_view>

// The files of this folder, as the build embeds them: see cmake/embed.cmake.
namespace ridge {

extern const std::string_view trace_style, trace_view, trace_tables, trace_timeline, trace_path;

}  // namespace ridge
