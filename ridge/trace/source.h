#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/base/gzip.h"

namespace ridge::trace {

// The text of a file from its begin to its end, unpacked if it is gzip's, whatever its name says.
class Source {
 public:
  // IoError if it cannot be opened.
  explicit Source(const std::filesystem::path& path);
  // That of a file in memory, which outlives it.
  explicit Source(std::string_view file);

  // Fills `into` as far as the text goes: fewer bytes are its last. IoError if the system refuses.
  std::size_t read(std::span<char> into);
  // Leaves out so many bytes of the text, or what is left of it.
  void skip(std::uint64_t bytes);
  std::uint64_t file_bytes_read() const { return file_bytes_; }
  bool is_packed() const { return unpacked_.has_value(); }
  // Why unpacking ended before the file's end: "cut short" or "damaged"; empty if it did not.
  std::string damage() const { return unpacked_ ? unpacked_->damage() : ""; }

 private:
  void unpack();
  std::size_t read_file(std::span<char> into);

  std::string path_;
  std::ifstream file_;
  std::optional<std::string_view> memory_;  // in place of the file
  std::uint64_t file_bytes_ = 0;
  std::optional<GzipReader> unpacked_;
};

}  // namespace ridge::trace
