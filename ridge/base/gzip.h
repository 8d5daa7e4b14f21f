#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ridge/base/file.h"

struct z_stream_s;

namespace ridge {

// Writes text into a file in the format of gzip.
class GzipWriter {
 public:
  explicit GzipWriter(AtomicFile& file);  // which outlives it
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void write(std::string_view text);
  void finish();  // once, and last; committing the file is left to its owner

 private:
  void drain(int flush);

  AtomicFile& file_;
  std::unique_ptr<z_stream_s> stream_;
};

// Text in the format of gzip.
std::string gzipped(std::string_view text);

// Whether a file begins as gzip's do.
bool is_gzip(std::span<const std::byte> file);

// The content of a gzip file. FormatError, with its name, if it is damaged or cut short, or has
// more than `max_bytes`.
std::string gunzip(std::span<const std::byte> file, std::size_t max_bytes, std::string_view name);

}  // namespace ridge
