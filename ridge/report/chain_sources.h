#pragma once

#include <cstddef>
#include <filesystem>

#include "ridge/graph/graph.h"

namespace ridge {

// Writes the source of the kernel that a GPU compiles for each of a graph's chains (Pointwise) to
// NAME.cu in a directory, which must exist; equal chains have one. Returns how many were written.
// IoError if one cannot be.
std::size_t write_chain_sources(const Graph& graph, const std::filesystem::path& directory);

}  // namespace ridge
