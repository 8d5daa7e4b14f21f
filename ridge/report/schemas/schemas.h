#pragma once

#include <string_view>

// The JSON schemas of the files of a profile, as the build embeds them: see cmake/embed.cmake.
namespace ridge {

extern const std::string_view schema_operators, schema_nodes, schema_modules, schema_memory,
    schema_memory_timeline, schema_bottlenecks, schema_system, schema_speed_of_light,
    schema_performance_summary, schema_config;

}  // namespace ridge
