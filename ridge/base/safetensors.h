#pragma once

// The safetensors format (https://github.com/huggingface/safetensors): 8 bytes with the length of
// the header, little-endian; the header, one JSON object
//   {"__metadata__": {"key": "text", ..},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..}
// and the data, which the tensors cover exactly: no overlaps, no holes, nothing after the last.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/file.h"
#include "ridge/base/shape.h"

namespace ridge {

// One tensor of a file. Its bytes lie in the file's mapping and are aligned only as the file
// happens to have them.
struct StoredTensor {
  std::string name;
  std::string dtype;                // as the format spells it: "F32", "BF16", "I64", ..
  std::vector<std::int64_t> shape;  // extents may be 0, unlike a Shape's
  std::span<const std::byte> bytes;

  // The type, where Ridge has one of that dtype and those extents.
  std::optional<TensorType> type() const;
  // Whether the elements are F64, F32, F16 or BF16, of any extents; and then these, converted.
  bool is_floating() const;
  std::vector<float> floats() const;
};

// A file that is known to be sound: the constructors check all of it but the tensors' elements, and
// throw FormatError for anything that is not as the format says. Of a dtype that is not known here
// the size goes unchecked. Whatever the file contains, its description takes at most
// max_memory_ratio times the memory that its text does, and the data stay where they are.
class SafetensorsFile {
 public:
  // Of hostile files: real ones take as much as their text.
  static constexpr std::size_t max_memory_ratio = 16;

  explicit SafetensorsFile(const std::filesystem::path& path);
  // The content of a file called `name`, which must outlive this object.
  SafetensorsFile(std::span<const std::byte> content, std::string name);

  // The tensors are numbered in the order of their names (of their bytes, not their letters).
  std::size_t size() const { return tensors_.size(); }
  const StoredTensor& tensor(std::size_t i) const { return tensors_[i]; }
  std::optional<StoredTensor> find(std::string_view name) const;

  std::optional<std::string> metadata(std::string_view key) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void parse();

  MappedFile file_;
  std::string name_;
  std::span<const std::byte> data_;
  std::vector<StoredTensor> tensors_;  // by name
  std::map<std::string, std::string> metadata_;
};

// A tensor to be written.
struct NamedType {
  std::string name;
  TensorType type;
};

// Where the parts of a file lie. In a file, tensors of wider elements come first and otherwise keep
// their order, so that every tensor is aligned to its elements.
struct SafetensorsLayout {
  std::string head;                  // the length of the header, and it
  std::vector<std::uint64_t> begin;  // by tensor: at which byte of the file its data begin
  std::vector<std::size_t> order;    // the tensors, in the order of their data
  std::uint64_t bytes = 0;           // of the file
};

// The layout of a file to be written. UsageError for names or metadata that the format cannot hold:
// a name used twice or reserved, or text that is not UTF-8.
SafetensorsLayout lay_out_safetensors(const std::filesystem::path& path,
                                      std::span<const NamedType> tensors,
                                      const std::map<std::string, std::string>& metadata);

// Writes a file atomically (see AtomicFile). The data are asked for one tensor at a time, so that
// they may be fetched from elsewhere into one buffer: `bytes_of(i)` gives those of tensors[i], good
// until the next call. UsageError as above.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedType> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<std::span<const std::byte>(std::size_t)>& bytes_of);

}  // namespace ridge
