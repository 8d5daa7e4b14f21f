#pragma once

// Names that rocprofv3's JSON and CSV share.

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge::trace {

// "Memcpy HtoD (Host -> Device)" of "MEMORY_COPY_HOST_TO_DEVICE" or "HOST_TO_DEVICE".
std::string rocprof_copy_name(std::string_view operation);

// A grid is counted in work items there, in groups of them elsewhere.
std::int64_t workgroups(std::int64_t items, std::int64_t items_of_group);

}  // namespace ridge::trace
