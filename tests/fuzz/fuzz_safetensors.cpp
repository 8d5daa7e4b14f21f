// The safetensors reader on any bytes: it takes them or throws FormatError, in memory bounded by
// their number. What it takes must be consistent.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/safetensors.h"
#include "tests/fuzz/allocation.h"

namespace {

// Messages and exceptions.
constexpr std::size_t allowance = 4096;

void require(bool condition) {
  if (!condition) std::abort();
}

// An even first byte: the rest is the file. An odd one: the rest is a header up to a byte of 0xFF,
// and data, so that a mutation of the header needs no matching one of its length.
std::vector<std::byte> file_of(std::span<const std::byte> input) {
  if (input.empty()) return {};
  const bool framed = (static_cast<int>(input[0]) & 1) != 0;
  input = input.subspan(1);
  std::vector<std::byte> file;
  if (framed) {
    const auto end = std::ranges::find(input, std::byte{0xFF});
    const std::uint64_t length = static_cast<std::uint64_t>(end - input.begin());
    const auto bytes = std::as_bytes(std::span(&length, 1));
    file.assign(bytes.begin(), bytes.end());
    file.insert(file.end(), input.begin(), end);
    input = {end == input.end() ? end : end + 1, input.end()};
  }
  file.insert(file.end(), input.begin(), input.end());
  return file;
}

void read(std::span<const std::byte> content) {
  const ridge::AllocationLimit limit(ridge::SafetensorsFile::max_memory_ratio * content.size() +
                                     allowance);
  const ridge::SafetensorsFile file(content, "input");
  std::size_t covered = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const ridge::StoredTensor tensor = file.tensor(i);
    require(tensor.bytes.empty() ||
            (tensor.bytes.data() >= content.data() &&
             tensor.bytes.data() + tensor.bytes.size() <= content.data() + content.size()));
    covered += tensor.bytes.size();
    if (const auto type = tensor.type()) require(type->bytes() == tensor.bytes.size());
  }
  require(covered < content.size());
}

void look_up(std::span<const std::byte> content) {
  const ridge::SafetensorsFile file(content, "input");
  for (std::size_t i = 0; i < file.size(); ++i) {
    const ridge::StoredTensor tensor = file.tensor(i);
    const auto found = file.find(tensor.name);
    require(found && found->bytes.data() == tensor.bytes.data());
  }
  for (const auto& [key, value] : file.metadata()) require(file.metadata(key) == value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> content = file_of(std::as_bytes(std::span(data, size)));
  try {
    read(content);
    look_up(content);
  } catch (const ridge::FormatError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
