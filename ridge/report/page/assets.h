#pragma once

#include <string_view>

// The files of this folder, and the chart library, as the build embeds them: see cmake/embed.cmake.
namespace ridge {

extern const std::string_view page_template, page_style, page_d3, page_d3_license;
extern const std::string_view page_common, page_summary, page_steps, page_table, page_icicle,
    page_timeline, page_system, page_roofline, page_units, page_findings, page_environment;

}  // namespace ridge
