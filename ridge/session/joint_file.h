#pragma once

// A safetensors file that all ranks of a run write together.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "ridge/base/safetensors.h"
#include "ridge/device/communicator.h"

namespace ridge {

// Bytes of a tensor that one rank writes: so many, after so many of the tensor.
struct TensorPiece {
  std::size_t tensor = 0, begin = 0, bytes = 0;
};

// What a rank has for the file.
struct JointContent {
  // Of all ranks together they are all tensors, each byte once.
  std::vector<TensorPiece> pieces;
  // Reads a piece of this rank's, whatever the others do.
  std::function<void(const TensorPiece& piece, std::span<std::byte> bytes)> read;
  // Reads all of a tensor; all ranks call it, for the same tensors in the same order.
  std::function<void(std::size_t tensor, std::span<std::byte> bytes)> read_whole;
};

// Writes a file atomically, at the place and of the tensors that all ranks name alike. Each rank
// writes its pieces where it sees the file that the first one makes; if one does not, the first one
// writes whole tensors alone. All of them return when the file is there, or none will be: then the
// first one throws IoError, and says whose fault it is.
void write_together(const std::filesystem::path& path, std::span<const NamedType> tensors,
                    const std::map<std::string, std::string>& metadata, Communicator& ranks,
                    const JointContent& content);

}  // namespace ridge
